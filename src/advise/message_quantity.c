/* Quantities: reads sizes by the words around them, for texts of any program.
 *
 * Readers of known libraries come first; this one fills the numbers that they left unknown. It
 * looks at the line of the failure, a few lines after it, then a few before it. Each size takes
 * the nearest word with a meaning: "needs 12 GiB", "only 7.5 GiB is available", "used: 7 GiB of 8
 * GiB". A word belongs to one size. A size without such a word is not read. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "advise/message_parts.h"

#define LINES_AFTER     8
#define LINES_BEFORE    8
#define REGION_BYTES    (16 << 10)
#define QUANTITIES_MOST 64                   /* sizes that are read in one part of the text */
#define BARE_LEAST      (UINT64_C(1) << 20)  /* a smaller number without a unit may be anything */
#define WHOLE_LEAST     (UINT64_C(16) << 20) /* no device and no limit is smaller */
#define LIVE_MOST       (UINT64_C(8) << 40)  /* no device or host has as much */
#define PARAMETERS_MOST 4096                 /* billions of parameters; no model has more */
#define WORDS_BETWEEN   4 /* words between a size and the word that it belongs to */

typedef enum role { NONE, ASKED, FREE, LIVE, LIMIT, TOTAL, OTHER } role;

/* Words and what they say of a size beside them. A star: also longer words. OTHER: a size that is
 * not memory of the failure. */
static const struct {
  const char *word;
  role role;
} words[] = {
    {"alloc", ASKED},     {"allocate", ASKED},  {"allocating", ASKED}, {"allocation", ASKED},
    {"malloc", ASKED},    {"realloc", ASKED},   {"request*", ASKED},   {"tried", ASKED},
    {"attempt*", ASKED},  {"need*", ASKED},     {"requir*", ASKED},    {"want*", ASKED},
    {"desired", ASKED},   {"reserve", ASKED},   {"mlock", ASKED},      {"mmap", ASKED},
    {"projected", ASKED}, {"free", FREE},       {"avail*", FREE},      {"left", FREE},
    {"remain*", FREE},    {"used", LIVE},       {"use", LIVE},         {"using", LIVE},
    {"usage", LIVE},      {"allocated", LIVE},  {"occupied", LIVE},    {"held", LIVE},
    {"holds", LIVE},      {"consum*", LIVE},    {"rss", LIVE},         {"vmrss", LIVE},
    {"peak", LIVE},       {"limit*", LIMIT},    {"max", LIMIT},        {"maximum", LIMIT},
    {"allowed", LIMIT},   {"budget", LIMIT},    {"quota", LIMIT},      {"cap", LIMIT},
    {"capped", LIMIT},    {"total", TOTAL},     {"capacity", TOTAL},   {"reserved", OTHER},
    {"cached", OTHER},    {"swap", OTHER},      {"disk", OTHER},       {"file", OTHER},
    {"shmem", OTHER},     {"download*", OTHER}, {"weight*", OTHER},    {"threshold", OTHER},
    {"loaded", OTHER},    {"offload*", OTHER}, /* parts of a model that are in place */
    {"vm", OTHER},                             /* "total-vm": addresses, not memory */
};

static role role_of(const char *at, size_t length) {
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    size_t size = strlen(words[i].word);
    bool open = words[i].word[size - 1] == '*';
    if (open) size--;
    if ((open ? length >= size : length == size) && strncasecmp(at, words[i].word, size) == 0)
      return words[i].role;
  }
  return NONE;
}

/* Returns whether a wrapped sentence goes on after the line end at `at`. A word with a colon begins
 * a record of a log. */
static bool goes_on(scan_text t, const char *at) {
  const char *next = at + 1;
  char before = at > t.at ? at[-1] : '\n';
  while (next < t.end && *next == ' ') next++;
  const char *end = next;
  while (end < t.end && scan_is_word(*end)) end++;
  if (!islower((unsigned char)before) && !isdigit((unsigned char)before) && before != ',')
    return false;
  return next < t.end && (islower((unsigned char)*next) || isdigit((unsigned char)*next)) &&
         (end >= t.end || *end != ':');
}

/* Returns whether a clause ends at `at`. */
static bool ends_clause(scan_text t, const char *at) {
  if (*at == ';' || *at == ',') return true;
  if (*at == '\n') return !goes_on(t, at);
  return *at == '.' && (at + 1 >= t.end || at[1] == ' ' || at[1] == '\n');
}

/* ---- one size ---- */

typedef struct quantity {
  const char *at, *end; /* in the text */
  uint64_t bytes;
  bool unit;
} quantity;

/* Returns whether the number counts a model's parameters: "70b", "8x7B". No request in bytes is
 * written so. */
static bool counts_parameters(const quantity *q) {
  char unit = q->end > q->at ? q->end[-1] : ' ';
  return (unit == 'b' || unit == 'B') && q->end - q->at >= 2 && q->bytes < PARAMETERS_MOST &&
         (isdigit((unsigned char)q->end[-2]) || q->end[-2] == '-');
}

/* Finds the next number at or after `at` that may be a size. */
static bool next_quantity(scan_text t, const char *at, quantity *q) {
  for (; at < t.end; at++) {
    if (!isdigit((unsigned char)*at)) continue;
    bool part =
        at > t.at && (scan_is_word(at[-1]) || at[-1] == '.' || at[-1] == '-' || at[-1] == ',');
    q->at = at;
    q->bytes = scan_size_to(t, at, &q->unit, &q->end);
    if (!part && known(q->bytes) && !counts_parameters(q) &&
        (q->unit || q->end >= t.end || !scan_is_word(*q->end)))
      return true;
    while (at + 1 < t.end && (scan_is_word(at[1]) || at[1] == '.' || at[1] == ',')) at++;
  }
  return false;
}

/* Returns whether only " / ", " of " or " out of the " is between two sizes. */
static bool is_pair(const quantity *a, const quantity *b) {
  static const char *const between[] = {"/", " / ", " of ", " out of ", " out of the "};
  scan_text gap = {a->end, b->at};
  for (size_t i = 0; i < sizeof between / sizeof *between; i++) {
    size_t length = strlen(between[i]);
    if ((size_t)(gap.end - gap.at) == length && memcmp(gap.at, between[i], length) == 0)
      return true;
  }
  return false;
}

/* A word with a meaning near a size; role NONE: there is none. */
typedef struct key {
  const char *at, *end;
  role role;
  int words; /* between it and the size */
} key;

/* Finds the word before the size, in its clause and not before `low`. */
static key key_before(scan_text t, const char *low, const char *at) {
  key none = {NULL, NULL, NONE, 0}, found = none;
  int count = 0;
  for (const char *p = at; p > low;) {
    if (!scan_is_word(p[-1])) {
      p--;
      if (ends_clause(t, p)) break;
      continue;
    }
    const char *end = p;
    while (p > low && scan_is_word(p[-1])) p--;
    role r = role_of(p, (size_t)(end - p));
    if (found.role == NONE && r != NONE) {
      found = (key){p, end, r, count};
      count = 0;
      continue;
    }
    if (found.role != NONE) { /* the words before it: "max alloc size", "to use", "file-rss" */
      scan_text word = {p, end};
      if (r == OTHER && *end == '-') found.role = OTHER;
      if (r == OTHER && found.role == FREE) found.role = OTHER; /* "swap free" */
      bool reached = scan_starts(word, "eached") || scan_starts(word, "Reached");
      if ((r == LIMIT || reached) && found.role == ASKED) found.role = LIMIT;
      if (found.role == LIVE && count == 0 && scan_starts(word, "to")) found.role = ASKED;
      if (count++ > 0) break;
      continue;
    }
    count++;
  }
  return found;
}

/* Returns whether what follows the word belongs to another size: "7 GiB and", "larger than". */
static bool is_turn(scan_text word) {
  static const char *const turns[] = {"and", "but", "with", "while", "than", "vs", "exceed"};
  for (size_t i = 0; i < sizeof turns / sizeof *turns; i++)
    if (scan_starts(word, turns[i])) return true;
  return false;
}

/* Finds the word after the size, in its clause and before `high`. */
static key key_after(scan_text t, const char *at, const char *high) {
  int count = 0;
  for (const char *p = at; p < high && count <= WORDS_BETWEEN;) {
    if (!scan_is_word(*p)) {
      if (ends_clause(t, p) || *p == '(' || *p == ')') break;
      p++;
      continue;
    }
    const char *start = p;
    while (p < high && scan_is_word(*p)) p++;
    role r = role_of(start, (size_t)(p - start));
    if (r != NONE) return (key){start, p, r, count};
    if (is_turn((scan_text){start, p})) break;
    count++;
  }
  return (key){NULL, NULL, NONE, 0};
}

/* "of size 4096", "byte size 4096": a word that says little. Without a unit the line must be about
 * memory, because any number of things has a size. */
static bool follows_size(scan_text t, const char *low, const quantity *q) {
  static const char *const about[] = {"buffer", "byte", "emory"};
  scan_text before = {q->at - low > 24 ? q->at - 24 : low, q->at};
  if (!q->unit && (q->bytes < BARE_LEAST ||
                   !scan_has_any(scan_line(t, q->at), about, sizeof about / sizeof *about)))
    return false;
  return scan_find_word(before, "size", NULL) != NULL || scan_has(before, "buffer of ");
}

/* "mem 4096kb", "running mem=1124M"; not "cpu=8,mem=32G", which was given. */
static bool follows_mem(const char *low, const char *at) {
  const char *end = at;
  while (end > low && (end[-1] == ' ' || end[-1] == '=' || end[-1] == ':')) end--;
  return end - low > 3 && memcmp(end - 3, "mem", 3) == 0 && end[-4] == ' ';
}

/* ---- the fields ---- */

static void take(uint64_t *to, uint64_t bytes) {
  if (!known(*to)) *to = bytes;
}

static void store(message *m, role r, uint64_t bytes, bool earlier) {
  bool host = m->kind == MESSAGE_HOST;
  switch (r) {
  case ASKED:
    if (bytes == 0) break;
    /* What a job or a container requested is its limit. */
    if (m->host == HOST_JOB)
      take(&m->limit_bytes, bytes);
    else if (m->host != HOST_CONTAINER && m->host != HOST_EVICTED)
      take(&m->asked_bytes, bytes);
    break;
  case FREE:
    /* What was free before the program took its part says nothing if the request would fit. */
    if (!earlier || (known(m->asked_bytes) && bytes < m->asked_bytes)) take(&m->free_bytes, bytes);
    break;
  case LIVE:
    if (bytes >= LIVE_MOST) break; /* a count below zero, as an unsigned number */
    if (!earlier || bytes >= BARE_LEAST) take(host ? &m->process_bytes : &m->live_bytes, bytes);
    break;
  case LIMIT:
    /* What Grid Engine's records have is what was used. */
    if (m->host == HOST_JOB && m->context.scheduler == SERVICE_SGE) break;
    if (bytes >= WHOLE_LEAST && m->host != HOST_EVICTED) take(&m->limit_bytes, bytes);
    break;
  case TOTAL:
    if (bytes >= WHOLE_LEAST) take(&m->device_bytes, bytes);
    break;
  default: break;
  }
}

/* The sizes of one part of the text, and how far its words are used up. */
typedef struct reading {
  scan_text t;
  quantity list[QUANTITIES_MOST];
  size_t count;
  const char *low; /* words before it belong to another size */
  role last;       /* of the size before */
  key live;        /* the word of the size in use that this part gave; role NONE: none */
} reading;

static void find_quantities(reading *r) {
  const char *at = r->t.at;
  while (r->count < QUANTITIES_MOST && next_quantity(r->t, at, &r->list[r->count]))
    at = r->list[r->count++].end;
}

/* Returns the number at the start of a size, without its unit. */
static double plain_number(const quantity *q) {
  double value = 0, scale = 0;
  for (const char *p = q->at; p < q->end && (isdigit((unsigned char)*p) || *p == '.'); p++) {
    if (*p == '.') {
      scale = 1;
      continue;
    }
    value = value * 10 + (*p - '0');
    scale *= 10;
  }
  return scale > 0 ? value / scale : value;
}

/* "512 of 15897 MiB": gives the first number the unit of the second. */
static void share_unit(quantity *a, const quantity *b) {
  double plain = plain_number(b);
  double bytes = plain > 0 ? plain_number(a) * ((double)b->bytes / plain) : 0;
  if (a->unit || !(bytes < 0x1p62)) return;
  a->bytes = (uint64_t)bytes;
  a->unit = true;
}

/* Chooses the word for size `i`; *follows: it comes after the size. `pair`: the next size belongs
 * to it. */
static key choose(const reading *r, size_t i, bool pair, bool *follows) {
  static const char *const beyond[] = {"exceed", "larger than", "greater than", "more than"};
  const quantity *q = &r->list[i];
  size_t next = i + 1 + pair;
  const char *high = next < r->count ? r->list[next].at : r->t.end;
  key before = key_before(r->t, r->low, q->at);
  key after = key_after(r->t, pair ? r->list[i + 1].end : q->end, high);
  if (pair && after.role == TOTAL) after = key_after(r->t, after.end, high);
  bool close = before.role != NONE && before.words <= WORDS_BETWEEN;
  *follows =
      after.role != NONE && (!close || (after.words == 0 && before.words > (before.role != ASKED)));
  key used = *follows ? after : before;
  scan_text lead = {r->low, q->at};
  bool large = q->bytes >= BARE_LEAST;
  if (!q->unit && (!large || used.words > 2)) used.role = NONE;
  if (r->last != NONE && (used.role == NONE || used.role == ASKED) &&
      scan_has_any(lead, beyond, sizeof beyond / sizeof *beyond))
    used.role = LIMIT;
  if (r->last == LIMIT && used.role == NONE && scan_has(lead, "with ")) used.role = LIVE;
  if (scan_has(lead, "xceeded") && scan_has(lead, " by ")) used.role = OTHER;
  if (used.role == NONE && r->last == NONE && follows_size(r->t, r->low, q)) used.role = ASKED;
  if (used.role == NONE && q->unit && follows_mem(r->low, q->at)) used.role = LIVE;
  return used;
}

/* Returns whether the text names the largest buffer that the device gives, not its size. */
static bool names_buffer(scan_text t) {
  static const char *const names[] = {
      "max alloc size", "MAX_MEM_ALLOC",  "max size of memory object",
      "buffer maximum", "maximum buffer", "max buffer"};
  return scan_has_any(t, names, sizeof names / sizeof *names);
}

/* Returns whether a line of llama.cpp reports a buffer that was made: "compute buffer total size =
 * 81.63 MB", "CUDA0 model buffer size = 4095.05 MiB", "allocated 'data' buffer, size = …". */
static bool reports_buffer(scan_text line) {
  static const char *const signs[] = {
      "buffer total size",  "compute buffer size", "model buffer size", "KV buffer size",
      "output buffer size", "allocated 'data",     "mem required"};
  return scan_has_any(line, signs, sizeof signs / sizeof *signs);
}

/* Returns whether a line is about the whole machine: "CPU Virtual Memory: used = 187.92 GB, percent
 * = 74.7%", as psutil counts. */
static bool is_machine(scan_text line) {
  static const char *const signs[] = {"irtual Memory", "irtual memory:", "svmem(",
                                      "percent =", "percent="};
  return scan_has_any(line, signs, sizeof signs / sizeof *signs);
}

/* A log repeats what is in use: of lines with the same word, the one nearest to the failure counts.
 * Forgets the size of an earlier line. */
static void forget_older(message *m, reading *r, const key *now) {
  uint64_t *field = m->kind == MESSAGE_HOST ? &m->process_bytes : &m->live_bytes;
  size_t length = (size_t)(now->end - now->at);
  if (now->role != LIVE || now->at == NULL) return;
  if (!known(*field)) {
    r->live = *now;
    return;
  }
  if (r->live.role == NONE || length != (size_t)(r->live.end - r->live.at) ||
      memcmp(now->at, r->live.at, length) != 0 || now->at < r->live.end ||
      memchr(r->live.end, '\n', (size_t)(now->at - r->live.end)) == NULL)
    return;
  *field = MESSAGE_UNKNOWN;
  r->live = *now;
}

static void read_region(message *m, scan_text t, bool earlier) {
  reading r = {.t = t, .low = t.at};
  find_quantities(&r);
  if (r.count > 0 && m->kind != MESSAGE_HOST && names_buffer(t)) m->details |= MESSAGE_ONE_BUFFER;
  for (size_t i = 0; i < r.count; i++) {
    quantity *q = &r.list[i];
    bool pair = i + 1 < r.count && r.list[i + 1].unit && is_pair(q, &r.list[i + 1]);
    bool follows;
    if (pair) share_unit(q, &r.list[i + 1]);
    key used = choose(&r, i, pair, &follows);
    if (used.role == NONE && !q->unit) continue;
    if (m->kind == MESSAGE_HOST && used.role == LIVE && is_machine(scan_line(t, q->at)))
      used.role = OTHER;
    if (m->kind != MESSAGE_HOST && scan_has(scan_line(t, q->at), "ystem memory"))
      used.role = OTHER; /* the host's, beside a failure of the device */
    if ((m->context.traits & TRAIT_RENDER) != 0 && scan_has(scan_line(t, q->at), "Fra:"))
      used.role = OTHER; /* Blender's line of progress: the host's memory comes first in it */
    if (m->kind == MESSAGE_LLAMA && reports_buffer(scan_line(t, q->at))) used.role = OTHER;
    if (earlier) forget_older(m, &r, &used);
    store(m, used.role, q->bytes, earlier);
    r.last = used.role;
    if (pair) {
      q = &r.list[++i];
      if (used.role == LIVE) store(m, m->kind == MESSAGE_HOST ? LIMIT : TOTAL, q->bytes, earlier);
      if (used.role == FREE || used.role == ASKED) store(m, TOTAL, q->bytes, earlier);
    }
    r.low = follows && used.end > q->end ? used.end : q->end;
  }
}

static bool is_empty(scan_text line) {
  while (line.at < line.end && isspace((unsigned char)*line.at)) line.at++;
  return line.at == line.end;
}

/* Returns the line of the failure with lines after it, or lines before it. An empty line ends them:
 * what is beyond may be another failure. */
static scan_text lines_around(scan_text t, const char *where, bool before) {
  scan_text line = scan_line(t, where), region = before ? (scan_text){line.at, line.at} : line;
  for (int i = 0; i < (before ? LINES_BEFORE : LINES_AFTER); i++) {
    if (before ? region.at <= t.at : region.end + 1 >= t.end) break;
    line = scan_line(t, before ? region.at - 1 : region.end + 1);
    if (is_empty(line)) break;
    if (before)
      region.at = line.at;
    else
      region.end = line.end;
  }
  if (region.end - region.at > REGION_BYTES)
    region = before ? (scan_text){region.end - REGION_BYTES, region.end}
                    : (scan_text){region.at, region.at + REGION_BYTES};
  return region;
}

/* Reads what the scene takes on the device from Blender's last line of progress: "Fra:1
 * Mem:7212.11M (Peak 7980.42M) | Time:… | Mem:11034.12M, Peak:11034.12M | Scene, …"; the first
 * pair is the host's. */
static void read_render(message *m, scan_text t, const char *where) {
  scan_text before = {t.at, where};
  for (const char *at; (at = scan_find(before, "Fra:")) != NULL; before.at = at) {
    scan_text line = {at, scan_line(t, at).end};
    uint64_t bytes = scan_size_binary_after(line, "| Mem:");
    if (known(bytes) && bytes >= BARE_LEAST && m->kind != MESSAGE_HOST) m->live_bytes = bytes;
  }
}

/* Reads hashcat's line of the device: "* Device #1: GeForce GT 1030, 1792/2048 MB (512 MB
 * allocatable)": what is free of how much, and the most for one buffer. Its MB are 1024 kB. */
static void read_hashcat(message *m, scan_text t) {
  const char *end = NULL;
  if (scan_find_at(t, " allocatable)", &end) == NULL) return;
  scan_text line = {scan_line(t, end).at, end};
  const char *open = scan_find(line, " MB ("), *slash = NULL;
  if (open == NULL) return;
  m->limit_bytes = scan_size_binary(line, open);
  line.end = open;
  for (const char *p = open; p > line.at && slash == NULL; p--)
    if (p[-1] == '/') slash = p;
  if (slash == NULL) return;
  uint64_t total = scan_number(line, slash), left = 0;
  const char *digits = slash - 1;
  while (digits > line.at && isdigit((unsigned char)digits[-1])) digits--;
  left = scan_number(line, digits);
  if (!known(total) || !known(left) || total > 1 << 24 || left > total) return;
  m->device_bytes = total << 20;
  m->free_bytes = left << 20;
}

void message_quantities(message *m, scan_text t, const char *where) {
  if (where == NULL || where < t.at || where >= t.end) return;
  if ((m->context.traits & TRAIT_RENDER) != 0) read_render(m, t, where);
  if ((m->context.programs & PROGRAM_HASHCAT) != 0) read_hashcat(m, t);
  read_region(m, lines_around(t, where, false), false);
  read_region(m, lines_around(t, where, true), true);
}
