/* Clean: one pass by line. A prefix is removed by a small grammar; several may follow each other
 * ("vllm-1  | ERROR 11-18 18:07:28 engine.py:366] …"), so the grammars are tried until none fits.
 */
#include "advise/clean.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define PREFIXES_MAX 6         /* a line has at most this many prefixes */
#define PADDING_MIN  8         /* spaces in a row that a terminal put there */
#define LONG_BYTES   (1 << 20) /* every line in this last part of a text is kept */
#define WRAP_MIN     60        /* columns of the narrowest terminal that wraps */
#define WORD_MOST    14        /* letters of most words that are moved to the next line */
#define ELEMENT_MOST 100       /* characters of an element of a web page */
#define SAME_START   4         /* characters that two records of one log have in common */
/* Most lines with the same words kept in the early part of a long log. */
#define SAME_LINES 1000
#define LINE_SLOTS 4096

static bool digit_at(scan_text t, const char *at) {
  return at < t.end && isdigit((unsigned char)*at);
}

/* Returns the position after a run of digits and of the characters in `more`. */
static const char *past(scan_text t, const char *at, const char *more) {
  while (at < t.end && (isdigit((unsigned char)*at) || (*at != '\0' && strchr(more, *at) != NULL)))
    at++;
  return at;
}

static const char *past_spaces(scan_text t, const char *at) {
  while (at < t.end && (*at == ' ' || *at == '\t')) at++;
  return at;
}

/* ---- prefixes: each returns the place after it, or NULL ---- */

/* Skips "> ", as in mail and issue trackers. */
static const char *quote(scan_text t) {
  if (t.at < t.end && *t.at == '>' && (t.at + 1 == t.end || t.at[1] == ' ')) return t.at + 1;
  return NULL;
}

/* Skips "2025-11-14T08:52:38.374Z ", "2019-07-21 23:26:45.086281: ", "[05/27/2023-17:01:36] ",
 * "[2059991.491436] ", "[1] ". */
static const char *stamp(scan_text t) {
  bool bracket = t.at < t.end && *t.at == '[';
  const char *at = t.at + bracket;
  if (!digit_at(t, at)) return NULL;
  const char *end = past(t, at, bracket ? "-/:.,TZ DPE" : "-/:.,TZ "); /* SGLang: "… DP0 TP1]" */
  size_t digits = 0, marks = 0;
  for (const char *p = at; p < end; p++) {
    digits += isdigit((unsigned char)*p) != 0;
    marks += *p == ':' || *p == '-' || *p == '/';
  }
  if (bracket) {
    if (end >= t.end || *end != ']') return NULL;
    return end + 1;
  }
  if (digits < 12 || marks < 4) return NULL;
  while (end > at && end[-1] != ' ' && end[-1] != ':') end--;
  return end > at ? end : NULL;
}

/* Skips "12:05:40  " of Jenkins. */
static const char *clock_time(scan_text t) {
  static const char form[] = "dd:dd:dd  ";
  if (t.end - t.at < (long)sizeof form - 1) return NULL;
  for (size_t i = 0; i < sizeof form - 1; i++)
    if (form[i] == 'd' ? !digit_at(t, t.at + i) : t.at[i] != form[i]) return NULL;
  return t.at + sizeof form - 1;
}

/* Skips " - whisperjav - ERROR - ": a logger's name and level between dashes. */
static const char *dashes(scan_text t) {
  static const char *const levels[] = {"- ERROR - ", "- WARNING - ", "- INFO - ", "- CRITICAL - "};
  if (t.at >= t.end || *t.at != '-') return NULL;
  scan_text head = {t.at, t.at + 80 < t.end ? t.at + 80 : t.end};
  for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
    const char *after = scan_find(head, levels[i]);
    if (after != NULL) return after;
  }
  return NULL;
}

/* Skips "[rank0]:", "rank7: ", "[default0]:", "(raylet)", "(pid=88)", "(EngineCore_0 pid=12)",
 * "[pod/web-0/main]" of kubectl logs --prefix. */
static const char *rank(scan_text t) {
  if (t.at >= t.end) return NULL;
  char open = *t.at, close = open == '[' ? ']' : ')';
  if (open != '[' && open != '(') {
    if (!scan_starts(t, "rank") || !digit_at(t, t.at + 4)) return NULL;
    const char *at = past(t, t.at + 4, "");
    return at < t.end && *at == ':' ? at + 1 : NULL;
  }
  const char *end = t.at + 1;
  while (end < t.end && *end != close && end - t.at < 60) end++;
  if (end >= t.end || *end != close) return NULL;
  scan_text inside = {t.at + 1, end};
  bool is = scan_starts(inside, "rank") || scan_starts(inside, "default") ||
            scan_starts(inside, "pod/") || scan_has(inside, "pid=") || scan_has(inside, "raylet") ||
            scan_has(inside, "rank=");
  if (!is) return NULL;
  return end + 1 < t.end && end[1] == ':' ? end + 2 : end + 1;
}

/* Skips "[1,0]<stderr>:" of mpirun --tag-output. */
static const char *tag(scan_text t) {
  if (t.at >= t.end || *t.at != '[' || !digit_at(t, t.at + 1)) return NULL;
  const char *at = past(t, t.at + 1, ",");
  if (at >= t.end || *at != ']') return NULL;
  scan_text rest = {at + 1, t.end};
  bool is = scan_starts(rest, "<stderr>:") || scan_starts(rest, "<stdout>:");
  return is ? rest.at + strlen("<stderr>:") : NULL;
}

/* Skips "node-3: " before a line of a traceback, or before another prefix ("0: [rank0]: "):
 * launchers over several machines name each. Frames are indented by two spaces, and code by
 * four. */
static const char *node(scan_text t) {
  const char *at = t.at;
  bool digit = false;
  while (at < t.end && at - t.at < 40 &&
         (isalnum((unsigned char)*at) || *at == '-' || *at == '_' || *at == '.'))
    digit = digit || isdigit((unsigned char)*at) != 0, at++;
  if (!digit || at + 1 >= t.end || at[0] != ':' || at[1] != ' ') return NULL;
  scan_text rest = {past_spaces(t, at + 2), t.end};
  bool is = rest.at == at + 2 ? scan_starts(rest, "Traceback (most recent call last)") ||
                                    scan_starts(rest, "[rank")
            : rest.at == at + 4 ? scan_starts(rest, "File \"")
                                : rest.at == at + 6;
  return is ? rest.at : NULL;
}

/* "vllm-1  | " of docker compose. */
static const char *compose(scan_text t) {
  const char *at = t.at;
  while (at < t.end && at - t.at < 40 &&
         (isalnum((unsigned char)*at) || *at == '-' || *at == '_' || *at == '.'))
    at++;
  if (at == t.at || at >= t.end || *at != ' ') return NULL;
  at = past_spaces(t, at);
  if (at + 1 >= t.end || *at != '|' || at[1] != ' ') return NULL;
  return at + 2;
}

/* Skips "stderr F " of a container's log file: the stream, and whether the line is full (F) or a
 * part (P). Comes after a timestamp. */
static const char *container(scan_text t) {
  static const char *const heads[] = {"stderr F ", "stdout F ", "stderr P ", "stdout P "};
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
    if (scan_starts(t, heads[i])) return t.at + strlen(heads[i]);
  return NULL;
}

/* Skips "Apr 19 22:43:30 box ollama[641298]: " of the system's journal, and "kernel: ". */
static const char *journal(scan_text t) {
  static const char *const months = "JanFebMarAprMayJunJulAugSepOctNovDec";
  if (t.end - t.at < 20) return NULL;
  char month[4] = {t.at[0], t.at[1], t.at[2], '\0'};
  if (strstr(months, month) == NULL || t.at[3] != ' ') return NULL;
  scan_text head = {t.at, t.at + 90 < t.end ? t.at + 90 : t.end};
  const char *after = scan_find(head, "]: ");
  if (after == NULL) after = scan_find(head, "kernel: ");
  return after;
}

/* Skips "ERROR 11-18 18:07:28 engine.py:366] ", "INFO 01-11 …", "[multiproc_executor.py:492] ".
 * Keeps a C++ source file, which names the library. */
static const char *source_line(scan_text t) {
  const char *at = t.at;
  scan_text head = {t.at, t.at + 90 < t.end ? t.at + 90 : t.end};
  const char *after = scan_find(head, "] ");
  if (after == NULL) return NULL;
  scan_text before = {at, after};
  if (!scan_has(before, ".py:")) return NULL;
  bool level = scan_starts(t, "ERROR ") || scan_starts(t, "INFO ") || scan_starts(t, "WARNING ") ||
               (at < t.end && *at == '[');
  return level ? after : NULL;
}

/* Skips the left side of a box. */
static const char *box(scan_text t) {
  return scan_starts(t, CLEAN_BOX) ? t.at + strlen(CLEAN_BOX) : NULL;
}

/* Returns the end of an element of a web page that begins at the start of `t`: "<pre>", "<span
 * class=…>", "</code>"; NULL if there is none. Python writes "<module>" and "<stdin>". */
static const char *element(scan_text t) {
  static const char *const names[] = {"pre", "code", "p",    "br",   "div", "span",
                                      "b",   "li",   "samp", "font", "td",  "blockquote"};
  if (t.at >= t.end || *t.at != '<') return NULL;
  const char *at = t.at + 1, *name;
  if (at < t.end && *at == '/') at++;
  for (name = at; at < t.end && islower((unsigned char)*at);) at++;
  size_t length = (size_t)(at - name);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (length != strlen(names[i]) || memcmp(name, names[i], length) != 0) continue;
    while (at < t.end && *at != '>' && at - name < ELEMENT_MOST) at++;
    return at < t.end && *at == '>' ? at + 1 : NULL;
  }
  return NULL;
}

/* Removes the elements at the end of a line. */
static void without_elements(scan_text *line) {
  for (int i = 0; i < PREFIXES_MAX && line->end > line->at && line->end[-1] == '>'; i++) {
    const char *open = line->end;
    while (open > line->at && line->end - open < ELEMENT_MOST && *open != '<') open--;
    if (element((scan_text){open, line->end}) != line->end) return;
    line->end = open;
  }
}

/* Removes the right side of a box. */
static void without_side(scan_text *line) {
  size_t side = strlen(CLEAN_BOX);
  if ((size_t)(line->end - line->at) < side || memcmp(line->end - side, CLEAN_BOX, side) != 0)
    return;
  line->end -= side;
  while (line->end > line->at && line->end[-1] == ' ') line->end--;
}

static scan_text without_prefixes(scan_text line) {
  static const char *(*const grammars[])(scan_text) = {
      quote,     tag, clock_time, stamp,   dashes,      rank,   node,
      container, box, compose,    journal, source_line, element};
  bool boxed = scan_starts((scan_text){past_spaces(line, line.at), line.end}, CLEAN_BOX);
  for (int i = 0; i < PREFIXES_MAX; i++) {
    const char *after = NULL;
    line.at = past_spaces(line, line.at);
    for (size_t g = 0; after == NULL && g < sizeof grammars / sizeof *grammars; g++)
      after = grammars[g](line);
    if (after == NULL) break;
    line.at = after;
  }
  line.at = past_spaces(line, line.at);
  while (line.end > line.at && (line.end[-1] == ' ' || line.end[-1] == '\t')) line.end--;
  if (boxed) without_side(&line);
  without_elements(&line);
  return line;
}

scan_text clean_line(scan_text line) {
  return without_prefixes(line);
}

/* ---- bytes ---- */

/* Appends `raw` without escape sequences; carriage returns become line ends, as a progress bar's
 * lines are. */
static void without_escapes(buffer *out, scan_text raw) {
  for (const char *at = raw.at; at < raw.end;) {
    const char *plain = at;
    while (at < raw.end && ((unsigned char)*at >= ' ' || *at == '\n' || *at == '\t')) at++;
    if (at > plain) buffer_append(out, plain, (size_t)(at - plain));
    if (at >= raw.end) return;
    char c = *at++;
    if (c == '\r' && !(at < raw.end && *at == '\n')) buffer_char(out, '\n');
    if (c != 0x1b || at >= raw.end) continue;
    char kind = *at++;
    if (kind == '[')
      while (at < raw.end && !(*at >= '@' && *at <= '~') && *at != '\n') at++;
    else if (kind == ']')
      while (at < raw.end && *at != 0x07 && *at != 0x1b && *at != '\n') at++;
    if (at < raw.end && *at != '\n') at++;
  }
}

/* Appends a line; runs of spaces that a terminal put inside it become one. */
static void append_line(buffer *out, scan_text line) {
  for (const char *at = line.at; at < line.end;) {
    const char *spaces = at;
    while (spaces < line.end && *spaces != ' ') spaces++;
    const char *after = past_spaces(line, spaces);
    bool padding = after - spaces >= PADDING_MIN;
    buffer_append(out, at, (size_t)((padding ? spaces : after) - at));
    if (padding) buffer_char(out, ' ');
    at = after;
  }
}

/* Returns whether it is a digit, or a space that pads one. */
static bool is_digit_place(char c) {
  return c == ' ' || isdigit((unsigned char)c);
}

/* Returns whether both lines begin alike except for digits, like records of one log. */
static bool begin_alike(scan_text a, scan_text b) {
  if (a.end - a.at < SAME_START || b.end - b.at < SAME_START) return false;
  for (int i = 0; i < SAME_START; i++)
    if (a.at[i] != b.at[i] && !(is_digit_place(a.at[i]) && is_digit_place(b.at[i]))) return false;
  return true;
}

/* Returns whether the line at the start of `rest` may continue `before`. Not if a logger started
 * it. */
static bool continues(scan_text before, scan_text rest) {
  scan_text line;
  if (!scan_next_line(&rest, &line) || line.at == line.end || begin_alike(before, line))
    return false;
  return without_prefixes(line).at == past_spaces(line, line.at);
}

/* Returns how many characters of UTF-8 the line has. */
static size_t columns(scan_text line) {
  size_t count = 0;
  for (const char *at = line.at; at < line.end; at++) count += ((unsigned char)*at & 0xc0) != 0x80;
  return count;
}

/* Returns whether the next line surely goes on in the middle of `line`: no frame, no line of code
 * and no record begins so. */
static bool continues_surely(scan_text line, scan_text rest) {
  scan_text next;
  if (!continues(line, rest) || !scan_next_line(&rest, &next) || !scan_has(line, " ")) return false;
  char last = line.end[-1], first = *next.at, second = next.end - next.at > 1 ? next.at[1] : ' ';
  bool open = isalnum((unsigned char)last) || strchr("_-/.,( =", last) != NULL;
  bool capitals = isupper((unsigned char)last) && isupper((unsigned char)first) &&
                  (isupper((unsigned char)second) || second == '_');
  bool middle = islower((unsigned char)first) || isdigit((unsigned char)first) || capitals ||
                strchr("_-/.,)", first) != NULL || (first == ' ' && second != ' ') ||
                (last == ' ' && first != ' ');
  return open && middle;
}

/* Returns whether a line that is a little shorter than `width` goes on in small letters: then words
 * were moved to the next line, and none was cut. */
static bool moves_words(scan_text text, size_t width) {
  scan_text line, next;
  while (scan_next_line(&text, &line)) {
    size_t length = columns(line);
    scan_text rest = text;
    if (length < width && length + WORD_MOST >= width && scan_next_line(&rest, &next) &&
        next.at < next.end && islower((unsigned char)*next.at) &&
        isalpha((unsigned char)line.end[-1]))
      return true;
  }
  return false;
}

/* Returns whether terminals and pagers have this width. */
static bool is_usual(size_t width) {
  static const size_t usual[] = {80, 100, 120, 132, 160};
  for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
    if (width == usual[i]) return true;
  return false;
}

static bool differs(scan_text a, scan_text b) {
  size_t size = (size_t)(a.end - a.at);
  return size != (size_t)(b.end - b.at) || memcmp(a.at, b.at, size) != 0;
}

/* Returns the width at which the terminal wrapped; 0 if it did not. At least three different lines
 * must have exactly the length of the longest, and others must continue them. Of a usual width one
 * is enough (*few), if the next line surely continues it. */
static size_t wrap_width(scan_text text, bool *few) {
  size_t longest = 0, count = 0;
  scan_text last = {NULL, NULL};
  scan_text rest = text, line;
  while (scan_next_line(&rest, &line)) {
    size_t length = columns(line);
    if (length < longest || length == 0) continue;
    if (length > longest) count = 0;
    if ((count == 0 || differs(last, line)) && continues(line, rest)) count++;
    longest = length;
    last = line;
  }
  *few = count < 3;
  if (*few && (!is_usual(longest) || moves_words(text, longest))) return 0;
  return longest >= WRAP_MIN ? longest : 0;
}

/* Returns whether a number in parentheses goes on in the next line: "(240.8 MiB/2" + "44.1 MiB
 * used)". One such line is enough to show that a terminal wrapped it. */
static bool splits_number(scan_text line, scan_text rest) {
  scan_text next;
  if (line.end - line.at < WRAP_MIN || !isdigit((unsigned char)line.end[-1])) return false;
  if (!scan_next_line(&rest, &next) || !digit_at(next, next.at)) return false;
  const char *open = line.end;
  while (open > line.at && line.end - open < WRAP_MIN && open[-1] != '(' && open[-1] != ')') open--;
  if (open == line.at || open[-1] != '(') return false;
  const char *close = next.at;
  while (close < next.end && close - next.at < WRAP_MIN && *close != ')' && *close != '(') close++;
  return close < next.end && *close == ')';
}

/* ---- the words of a long log ---- */

/* Words of a failure. A line without any of them is dropped from the early part of a long log. */
static const char *const failure_words[] = {
    "emory", "EMORY", "llocat", "ill",     "OOM", "oom", "xhaust", "rror",
    "Trace", "File ", "CUDA",   "cuda",    "137", "-9",  "ignal",  "rash",
    "died",  "GiB",   "MiB",    "left on", "KV",  "RAM", "shared", "ernel"};
/* Words of every line of a BFC allocator's dump. */
static const char *const dump_words[] = {" of size ", "Total Chunks: "};

/* Finds words in one pass: a bit for each pair of characters that begins a word shows where to
 * compare. 24 separate searches took most of the time of a long log. */
typedef struct word_finder {
  uint8_t pairs[65536 / 8];
  const char *const *words;
  size_t count;
} word_finder;

static unsigned pair_at(const char *at) {
  return (unsigned)(unsigned char)at[0] << 8 | (unsigned char)at[1];
}

/* Prepares the finder. Every word has two characters or more. */
static void finder_open(word_finder *f, const char *const *words, size_t count) {
  *f = (word_finder){.words = words, .count = count};
  for (size_t i = 0; i < count; i++) {
    unsigned pair = pair_at(words[i]);
    f->pairs[pair / 8] |= (uint8_t)(1u << pair % 8);
  }
}

static bool finder_has(const word_finder *f, scan_text line) {
  for (const char *at = line.at; at + 1 < line.end; at++) {
    unsigned pair = pair_at(at);
    if ((f->pairs[pair / 8] & 1u << pair % 8) == 0) continue;
    for (size_t i = 0; i < f->count; i++) {
      size_t length = strlen(f->words[i]);
      if ((size_t)(line.end - at) >= length && memcmp(at, f->words[i], length) == 0) return true;
    }
  }
  return false;
}

/* Returns whether a line is a chunk or a bin of a BFC allocator's dump. */
static bool is_dump(const word_finder *dump, scan_text line) {
  if (!finder_has(dump, line)) return false;
  if (scan_has(line, "Total Chunks: ")) return true;
  return scan_has(line, " of size ") &&
         (scan_has(line, "InUse at ") || scan_has(line, "Free at ") || scan_has(line, "Chunk at "));
}

/* ---- lines that come again and again ---- */

/* How often a line of the same words came. Lines are the same if they differ in digits alone: a
 * progress line that names "3.1 GiB" in every step. Two lines may share a slot; then both count. */
typedef struct line_counts {
  uint16_t seen[LINE_SLOTS];
} line_counts;

static bool comes_too_often(line_counts *c, scan_text line) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (const char *at = line.at; at < line.end; at++)
    if (!isdigit((unsigned char)*at))
      hash = (hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3); /* FNV-1a */
  uint16_t *seen = &c->seen[(hash ^ hash >> 32) % LINE_SLOTS];
  if (*seen >= SAME_LINES) return true;
  ++*seen;
  return false;
}

/* ---- marks below a line of code ---- */

/* Returns whether the line marks a part of the line of code before it: "~~~~^^^^". Python 3.11 and
 * newer write one in every frame, and it is in the way of what looks at the line before. */
static bool is_marks(scan_text line) {
  const char *at = line.at;
  while (at < line.end && (*at == '^' || *at == '~' || *at == ' ')) at++;
  return at == line.end && line.at < line.end;
}

/* ---- all together ---- */

typedef struct cleaner {
  word_finder failure, dump;
  line_counts early;
} cleaner;

static void clean_lines(buffer *out, cleaner *c, scan_text rest) {
  bool few = false;
  size_t width = wrap_width(rest, &few);
  scan_text line;
  bool after_wrap = false;
  while (scan_next_line(&rest, &line)) {
    bool wrapped = width > 0 && columns(line) == width &&
                   (few ? continues_surely(line, rest) : continues(line, rest));
    wrapped = wrapped || splits_number(line, rest);
    bool early = rest.end - line.at > LONG_BYTES;
    if (early && (width == 0 || few) &&
        (!finder_has(&c->failure, line) || comes_too_often(&c->early, line)))
      continue;
    if (is_dump(&c->dump, line)) continue;
    /* Spaces at the margin are part of the text: "…memory, this" + " process has". */
    if (after_wrap && line.at < line.end && *line.at == ' ') buffer_char(out, ' ');
    scan_text bare = without_prefixes(line);
    if (is_marks(bare) && !wrapped && !after_wrap) continue;
    /* A box cuts a long path before its line: "…/trainer.py" + ":1323 in fit". */
    bool cut = bare.end - bare.at > 2 && *bare.at == ':' && isdigit((unsigned char)bare.at[1]);
    if (cut && bare.at > line.at && out->length > 3 &&
        memcmp(out->data + out->length - 4, ".py\n", 4) == 0)
      out->length--;
    append_line(out, bare);
    if (!wrapped)
      buffer_char(out, '\n');
    else if (line.end[-1] == ' ')
      buffer_char(out, ' ');
    after_wrap = wrapped;
  }
  if (out->length > 0 && out->data[out->length - 1] != '\n') buffer_char(out, '\n');
}

stow_status clean_text(buffer *out, scan_text raw) {
  buffer plain = BUFFER_INIT;
  cleaner *c = calloc(1, sizeof *c); /* too large for the stack of a small thread */
  without_escapes(&plain, raw);
  stow_status status = plain.status;
  if (c == NULL) status = stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to read a text");
  if (status == STOW_OK && plain.length > 0) {
    finder_open(&c->failure, failure_words, sizeof failure_words / sizeof *failure_words);
    finder_open(&c->dump, dump_words, sizeof dump_words / sizeof *dump_words);
    clean_lines(out, c, (scan_text){plain.data, plain.data + plain.length});
    status = out->status;
  }
  free(c);
  buffer_free(&plain);
  return status;
}
