/* Csv: finds a whole row in the window, then splits it. Numbers are parsed straight from the
 * window; a field that is not a number is then classified as text. */
#include "arrays/csv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "files/missing.h"
#include "files/remote.h"

/* The window is const because the caller may parse it again. The compiler enforces it. */
#pragma GCC diagnostic error "-Wcast-qual"

static stow_status refuse(const csv *c, const char *why) {
  char where[CSV_WHERE_MAX];
  return stow_fail(STOW_ERR_FORMAT, "%s: %s", csv_where(c, c->line, where), why);
}

/* ---- classifying a field ---- */

/* Recognizes the words for missing values, NaN, infinity and booleans; leaves any other text
 * alone. */
static void classify_word(const csv *c, csv_field *f, const char *text, size_t length) {
  bool minus = length > 0 && text[0] == '-';
  const char *bare = text + (length > 0 && (text[0] == '-' || text[0] == '+'));
  size_t rest = length - (size_t)(bare - text);
  f->kind = CSV_TEXT;
  if (length > 9) return; /* longer than every word below */
  if (csv_is_word(bare, rest, "inf") || csv_is_word(bare, rest, "infinity")) {
    f->kind = CSV_FLOAT;
    f->value.d = minus ? -INFINITY : INFINITY;
  } else if (csv_is_word(bare, rest, "nan")) { /* with --na a value, else a missing one */
    f->kind = c->careful && c->options->na != NULL ? CSV_FLOAT : CSV_MISSING;
    f->value.d = NAN;
  } else if (csv_is_word(text, length, "true") || csv_is_word(text, length, "false")) {
    f->kind = CSV_BOOL;
    f->value.i = (text[0] | 0x20) == 't';
  } else if (!(c->careful && c->options->na != NULL) && csv_is_missing(text, length)) {
    f->kind = CSV_MISSING;
  }
}

bool csv_is_given(const csv *c, const char *text, size_t length) {
  for (size_t i = 0; i < c->options->na_count; i++)
    if (strlen(c->options->na[i]) == length && memcmp(c->options->na[i], text, length) == 0)
      return true;
  return false;
}

static bool take_number(csv_field *f, const char *at, const char *stop, bool padded) {
  const char *end;
  decimal_kind kind = decimal_read(at, &end, &f->value);
  if (!padded && kind != DECIMAL_FLOAT && csv_keeps_zeros(at, (size_t)(stop - at))) return false;
  switch (kind) {
  case DECIMAL_SIGNED: f->kind = CSV_SIGNED; break;
  case DECIMAL_UNSIGNED: f->kind = CSV_UNSIGNED; break;
  case DECIMAL_FLOAT: f->kind = CSV_FLOAT; break;
  case DECIMAL_BIG:
  case DECIMAL_NONE: return false;
  }
  return end == stop;
}

/* The same where the decimal point is a comma; a point makes it text. */
static bool take_comma(csv_field *f, const char *at, const char *stop, bool padded) {
  char copy[128 + DECIMAL_SLACK] = {0};
  size_t length = (size_t)(stop - at);
  if (length >= 128 || memchr(at, '.', length) != NULL) return false;
  memcpy(copy, at, length);
  char *comma = memchr(copy, ',', length);
  if (comma != NULL) *comma = '.';
  return take_number(f, copy, copy + length, padded);
}

bool csv_is_beyond(const csv *c, const csv_field *f) {
  char copy[512 + DECIMAL_SLACK] = {0};
  const char *at = f->text, *stop = f->text + f->length, *end;
  while (at < stop && (*at == ' ' || *at == '\t')) at++;
  while (stop > at && (stop[-1] == ' ' || stop[-1] == '\t')) stop--;
  size_t length = (size_t)(stop - at);
  if (f->kind != CSV_TEXT || length >= 512) return false;
  memcpy(copy, at, length);
  char *comma = c->point == ',' ? strchr(copy, ',') : NULL;
  if (comma != NULL) *comma = '.';
  decimal value;
  return decimal_read(copy, &end, &value) == DECIMAL_BIG && end == copy + length;
}

void csv_classify(const csv *c, csv_field *f, bool padded, const char *text, size_t length) {
  bool comma = c->point == ',';
  f->text = text;
  f->length = (uint32_t)length;
  if (csv_is_na(c, text, length)) {
    f->kind = CSV_MISSING;
    f->length = 0;
    return;
  }
  const char *stop = text + length;
  while (text < stop && (*text == ' ' || *text == '\t')) text++;
  while (stop > text && (stop[-1] == ' ' || stop[-1] == '\t')) stop--;
  if (text == stop)
    f->kind = CSV_MISSING;
  else if (!(comma ? take_comma : take_number)(f, text, stop, padded))
    classify_word(c, f, text, (size_t)(stop - text));
}

/* ---- rows ---- */

/* Returns the end of a row. A quote counts only at the start of a field, and then up to its closing
 * quote. */
const char *csv_row_end(const csv *c, const char *at, const char *end) {
  const char *line = memchr(at, '\n', (size_t)(end - at));
  if (memchr(at, '"', (size_t)((line != NULL ? line : end) - at)) == NULL) return line;
  for (bool begins = true; at < end; at++) {
    if (begins && *at == '"') {
      for (at++; at < end && (*at != '"' || (at + 1 < end && at[1] == '"')); at++)
        if (*at == '"') at++;
      if (at >= end) return NULL;
    }
    if (*at == '\n') return at;
    begins = *at == c->delimiter;
  }
  return NULL;
}

static stow_status add_field(csv *c, size_t n, csv_field **f) {
  if (n < c->capacity) return *f = &c->fields[n], STOW_OK;
  char where[CSV_WHERE_MAX];
  if (n >= c->fields_max)
    return stow_fail(STOW_ERR_BUDGET, "%s: more than %zu fields; raise --memory",
                     csv_where(c, c->line, where), c->fields_max);
  size_t capacity = c->capacity * 2 + 16;
  csv_field *more = realloc(c->fields, capacity * sizeof *more);
  if (more == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", c->in.name);
  c->fields = more;
  c->capacity = capacity;
  return *f = &more[n], STOW_OK;
}

/* Reserves memory for the unescaped fields of a row of `row_bytes` bytes. An unescaped field and
 * its terminator are never longer than the quoted field, so one reservation holds all fields of the
 * row and no field's text moves. */
static stow_status reserve_unescaped(csv *c, size_t row_bytes) {
  if (row_bytes + DECIMAL_SLACK <= c->unescaped_capacity) return STOW_OK;
  free(c->unescaped);
  c->unescaped = calloc(1, row_bytes + DECIMAL_SLACK);
  c->unescaped_capacity = c->unescaped != NULL ? row_bytes + DECIMAL_SLACK : 0;
  if (c->unescaped != NULL) return STOW_OK;
  char where[CSV_WHERE_MAX];
  return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no memory for a row of %zu bytes",
                   csv_where(c, c->line, where), row_bytes);
}

/* Copies text[0, stop), writing each doubled quote once. Returns the copy and sets *length. A quote
 * follows the copy, so number parsing stops there. */
static const char *unescape(csv *c, const char *text, const char *stop, size_t *length) {
  char *copy = c->unescaped + c->unescaped_used, *to = copy;
  for (const char *from = text; from < stop; from++) {
    *to++ = *from;
    from += *from == '"';
  }
  *length = (size_t)(to - copy);
  *to++ = '"';
  c->unescaped_used += (size_t)(to - copy);
  return copy;
}

/* Returns whether "007" is a number in the column of a field of c->fields. */
static bool is_padded(const csv *c, const csv_field *f) {
  return c->padded != NULL && f < c->fields + c->columns && c->padded[f - c->fields];
}

/* Parses the quoted field at *at, which points to its opening quote; `stop` is the end of the
 * row. */
static stow_status take_quoted(csv *c, csv_field *f, const char **at, const char *stop,
                               size_t row_bytes) {
  const char *text = *at + 1, *from = text;
  bool doubled = false;
  for (;;) {
    from = memchr(from, '"', (size_t)(stop - from));
    if (from == NULL) return refuse(c, "unclosed quote");
    if (from + 1 >= stop || from[1] != '"') break;
    doubled = true;
    from += 2;
  }
  *at = from + 1;
  if (*at < stop && **at != c->delimiter)
    return refuse(c, "text after a closing quote; write a quote inside a quoted field twice");
  size_t length = (size_t)(from - text);
  if (doubled) {
    STOW_TRY(reserve_unescaped(c, row_bytes));
    text = unescape(c, text, from, &length);
  }
  csv_classify(c, f, is_padded(c, f), text, length);
  return STOW_OK;
}

static stow_status split_row(csv *c, const char *at, const char *stop, size_t *count) {
  size_t row_bytes = (size_t)(stop - at);
  c->unescaped_used = 0;
  for (size_t n = 0;; n++) {
    csv_field *f = NULL;
    STOW_TRY(add_field(c, n, &f));
    if (at < stop && *at == '"') {
      STOW_TRY(take_quoted(c, f, &at, stop, row_bytes));
    } else {
      const char *end;
      decimal_kind kind = decimal_read(at, &end, &f->value);
      if (!c->careful &&
          (kind == DECIMAL_FLOAT || (kind == DECIMAL_SIGNED && !csv_keeps_zeros(at, 1))) &&
          (end == stop || *end == c->delimiter)) {
        f->kind = kind == DECIMAL_SIGNED ? CSV_SIGNED : CSV_FLOAT;
        f->text = at;
        f->length = (uint32_t)(end - at);
      } else {
        end = memchr(at, c->delimiter, (size_t)(stop - at));
        if (end == NULL) end = stop;
        csv_classify(c, f, is_padded(c, f), at, (size_t)(end - at));
      }
      at = end;
    }
    if (f->kind == CSV_TEXT && memchr(f->text, '\0', f->length) != NULL)
      return refuse(c, "a NUL byte: this is not text (or UTF-16 without a byte order mark: give "
                       "--encoding utf-16)");
    if (at >= stop) return *count = n + 1, STOW_OK;
    at++; /* the delimiter */
  }
}

stow_status csv_long_row(const csv *c, uint64_t line) {
  char where[CSV_WHERE_MAX];
  return stow_fail(STOW_ERR_BUDGET,
                   "%s: a row is longer than %zu KiB (unclosed quote?); raise --memory",
                   csv_where(c, line, where), c->row_max >> 10);
}

/* Brings the next row that is not blank into the window; *at is NULL at the end of the file. */
static stow_status find_row(csv *c, const char **at, const char **stop) {
  for (;;) {
    const char *end = NULL;
    size_t left = input_left(&c->in);
    if (left > 0) end = csv_row_end(c, (const char *)c->in.at, (const char *)c->in.end);
    while (end == NULL && !c->in.at_eof) {
      if (left > c->row_max) return csv_long_row(c, c->lines + 1);
      STOW_TRY(input_fill(&c->in, left + 1));
      left = input_left(&c->in);
      if (left > 0) end = csv_row_end(c, (const char *)c->in.at, (const char *)c->in.end);
    }
    c->line = c->lines + 1;
    *at = left > 0 ? (const char *)c->in.at : NULL;
    if (left == 0) return STOW_OK;
    *stop = end != NULL ? end : (const char *)c->in.end;
    c->in.at += (size_t)(*stop - *at) + (end != NULL);
    c->lines++;
    if (*stop > *at && (*stop)[-1] == '\r') --*stop;
    if (!csv_is_blank(*at, *stop, c->delimiter)) return STOW_OK;
  }
}

stow_status csv_next(csv *c, bool *more) {
  const char *at = NULL, *stop = NULL;
  STOW_TRY(find_row(c, &at, &stop));
  *more = at != NULL;
  if (at == NULL) return STOW_OK;
  if (memchr(at, '"', (size_t)(stop - at)) != NULL)
    for (const char *p = at; p < stop; p++) c->lines += *p == '\n';
  STOW_TRY(split_row(c, at, stop, &c->given));
  if (c->columns == 0) c->columns = c->given;
  char where[CSV_WHERE_MAX];
  if (c->given > c->columns) {
    size_t count = (size_t)(stop - at);
    bool mixed = memchr(at, '\r', count) != NULL && memchr(at, '"', count) == NULL;
    return stow_fail(STOW_ERR_FORMAT, "%s: %zu fields, but the lines before it have %zu%s",
                     csv_where(c, c->line, where), c->given, c->columns,
                     mixed ? "; some lines end with a carriage return alone: make all ends alike "
                             "(tr '\\r' '\\n' < FILE > NEW)"
                           : "");
  }
  for (size_t n = c->given; n < c->columns; n++) {
    csv_field *f = NULL;
    STOW_TRY(add_field(c, n, &f));
    *f = (csv_field){.kind = CSV_MISSING, .text = ""};
  }
  return STOW_OK;
}

/* ---- opening ---- */

/* Possible delimiters. The first is the default. */
static const char delimiters[] = ",\t;|";
enum { DELIMITERS = sizeof delimiters - 1, LOOK_BYTES = 4096, SAMPLE_BYTES = 64 << 10 };

/* Counts each delimiter in the line at `at`, outside quotes. Returns the start of the next line, or
 * NULL if no line end comes before `stop`. */
static const uint8_t *count_in_line(const uint8_t *at, const uint8_t *stop, size_t *counts) {
  bool quoted = false;
  memset(counts, 0, DELIMITERS * sizeof *counts);
  for (; at < stop && (quoted || *at != '\n'); at++) {
    if (*at == '"') quoted = !quoted;
    for (int i = 0; i < DELIMITERS; i++) counts[i] += !quoted && *at == (uint8_t)delimiters[i];
  }
  return at + 1 < stop ? at + 1 : NULL;
}

/* Returns whether the name of the file says that tabs separate the columns. */
static bool is_tsv(const char *name) {
  static const char *const packed[] = {".gz", ".zst", ".xz"};
  size_t length = strlen(name);
  for (size_t i = 0; i < sizeof packed / sizeof *packed; i++)
    if (text_ends_case(name, length, packed[i])) length -= strlen(packed[i]);
  return text_ends_case(name, length, ".tsv") || text_ends_case(name, length, ".tab");
}

/* Returns the delimiter that occurs equally often in each of the first lines. Tries the comma last,
 * because it also occurs in numbers and names. If there is none, or only one line, returns the most
 * frequent delimiter of the first line; for .tsv the tab. */
static char find_delimiter(const csv *c) {
  size_t first[DELIMITERS], counts[DELIMITERS], lines = 1, left = input_left(&c->in);
  const uint8_t *stop = c->in.at + (left < LOOK_BYTES ? left : LOOK_BYTES);
  const uint8_t *at = count_in_line(c->in.at, stop, first);
  bool even[DELIMITERS];
  int most = 0, best = 0;
  if (c->options->decimal == delimiters[0]) first[0] = 0; /* it is inside numbers */
  for (int i = 0; i < DELIMITERS; i++) {
    even[i] = first[i] > 0;
    if (first[i] > first[most]) most = i;
  }
  while (at != NULL) {
    bool blank = *at == '\n' || *at == '\r';
    at = count_in_line(at, stop, counts);
    if (at == NULL && left > LOOK_BYTES) break; /* the line may continue */
    for (int i = 0; i < DELIMITERS && !blank; i++) even[i] = even[i] && counts[i] == first[i];
    lines += !blank;
  }
  for (int i = 1; i < DELIMITERS; i++)
    if (even[i] && (best == 0 || first[i] > first[best])) best = i;
  if (lines > 1 && even[best]) return delimiters[best];
  return is_tsv(c->in.name) ? '\t' : delimiters[most];
}

/* Returns whether the first line is one of libsvm. It is one field, although the labels have commas
 * between them. */
static bool first_is_pairs(const csv *c) {
  size_t left = input_left(&c->in);
  const uint8_t *end = memchr(c->in.at, '\n', left);
  size_t length = end != NULL ? (size_t)(end - c->in.at) : left;
  if (length > 0 && c->in.at[length - 1] == '\r') length--;
  return csv_is_pairs((const char *)c->in.at, length);
}

/* What the fields of a line are, if single spaces separate them. */
typedef enum spacing {
  SPACED_NOT,     /* not separated by single spaces, or an unclosed quote */
  SPACED_VALUES,  /* numbers, texts in quotes, and R's words for other values */
  SPACED_NUMBERS, /* numbers only */
  SPACED_WORDS    /* some bare word: names */
} spacing;

static bool is_number(const char *word, size_t length) {
  char *end;
  strtod(word, &end);
  return (end == word + length && strpbrk(word, "xX") == NULL) || csv_is_complex(word, length);
}

/* Returns what the line from `at` to `stop` is; sets *count to the number of its fields. */
static spacing spaced_line(const uint8_t *at, const uint8_t *stop, size_t *count) {
  bool quotes = false, words = false, others = false;
  for (*count = 1;; at++, ++*count) {
    char word[64];
    size_t length = 0;
    if (at < stop && *at == '"') {
      const uint8_t *close = memchr(at + 1, '"', (size_t)(stop - at - 1));
      while (close != NULL && close + 1 < stop && close[1] == '"')
        close = memchr(close + 2, '"', (size_t)(stop - close - 2));
      if (close == NULL) return SPACED_NOT;
      at = close + 1;
      quotes = true;
    } else {
      while (at + length < stop && at[length] != ' ' && length < sizeof word) length++;
      if (length == 0 || length == sizeof word) return SPACED_NOT;
      memcpy(word, at, length);
      word[length] = '\0';
      at += length;
      bool value =
          strcmp(word, "NA") == 0 || strcmp(word, "TRUE") == 0 || strcmp(word, "FALSE") == 0;
      others = others || value;
      words = words || (!value && !is_number(word, length));
    }
    if (at >= stop) return words ? SPACED_WORDS : quotes || others ? SPACED_VALUES : SPACED_NUMBERS;
    if (*at != ' ') return SPACED_NOT;
  }
}

/* Returns whether the rows are separated by single spaces: the numbers that numpy.savetxt writes,
 * perhaps below names, or what R's write.table writes, where all texts are in quotes and the names
 * may be one fewer than the fields of a row. Other words between spaces are text. */
static bool is_spaced(const csv *c, size_t *columns) {
  size_t left = input_left(&c->in), lines = 0, count, first_count = 0;
  const uint8_t *at = c->in.at, *stop = at + (left < LOOK_BYTES ? left : LOOK_BYTES);
  spacing first = SPACED_NOT, is = SPACED_NOT;
  bool numbers = true;
  while (at < stop) {
    const uint8_t *end = memchr(at, '\n', (size_t)(stop - at));
    if (end == NULL && left > LOOK_BYTES) break; /* the line may continue */
    if (end == NULL) end = stop;
    const uint8_t *text = end > at && end[-1] == '\r' ? end - 1 : end;
    if (text > at) {
      is = spaced_line(at, text, &count);
      if (is == SPACED_NOT || (is == SPACED_WORDS && lines > 0)) return false;
      if (lines > 1 && count != *columns) return false;
      numbers = numbers && (lines == 0 || is == SPACED_NUMBERS);
      if (lines == 0) first = is, first_count = count;
      *columns = count;
      lines++;
    }
    at = end + 1;
  }
  bool same = lines > 0 && *columns == first_count;
  if (first == SPACED_NUMBERS) return same && numbers && *columns > 1;
  if (lines < 2 || *columns < 2) return false;
  if (first == SPACED_WORDS) return numbers && same;
  return same || *columns == first_count + 1;
}

/* Counts the words of a comment line after its "# ". */
static size_t count_words(const uint8_t *at, const uint8_t *stop) {
  size_t words = 0;
  for (; at < stop; at++) words += *at > ' ' && (at + 1 == stop || at[1] <= ' ');
  return words;
}

/* Returns whether more than one blank comes between some words, or any before or after them. */
static bool has_runs(const uint8_t *at, const uint8_t *stop) {
  bool blank = true;
  for (; at < stop; at++) {
    if (*at <= ' ' && (blank || *at != ' ')) return true;
    blank = *at <= ' ';
  }
  return blank;
}

/* Skips the lines that numpy.savetxt puts "# " before. Sets *last to the last of them, NULL if
 * there is none, and *end to its end. */
static size_t skip_hashes(csv *c, const uint8_t **last, const uint8_t **end) {
  size_t lines = 0;
  *last = NULL, *end = c->in.at;
  while (c->in.at + 1 < c->in.end && c->in.at[0] == '#' &&
         (c->in.at[1] == ' ' || c->in.at[1] == '\n')) {
    const uint8_t *stop = memchr(c->in.at, '\n', (size_t)(c->in.end - c->in.at));
    if (stop == NULL) return 0;
    *last = c->in.at, *end = stop;
    c->in.at = stop + 1;
    lines++;
  }
  return lines;
}

/* Skips the lines before the last one, and the "# " before its names; without names, that line
 * too. */
static stow_status take_hashes(csv *c, const uint8_t *last, const uint8_t *end, size_t lines,
                               bool names) {
  c->lines = names ? lines - 1 : lines;
  return input_skip(&c->in, (size_t)((names ? last + 2 : end + 1) - c->in.at));
}

/* Handles the output of numpy.savetxt, which puts "# " before each line of its header. If the last
 * one names as many columns as there are, the rest after "# " is the first row; other header lines
 * are skipped. */
static stow_status take_spaced(csv *c, bool *spaced, bool *runs) {
  csv behind = *c;
  const uint8_t *last, *end;
  size_t columns = 0, lines = skip_hashes(&behind, &last, &end);
  if (last != NULL && lines == 0) return STOW_OK;
  *spaced = is_spaced(&behind, &columns);
  *runs = !*spaced && csv_spaces_is(&behind, &columns);
  *spaced = *spaced || *runs;
  if (!*spaced) return STOW_OK;
  c->delimiter = ' ';
  if (last == NULL) return STOW_OK;
  bool names = count_words(last + 1, end) == columns && end - last > 2;
  *runs = *runs || (names && has_runs(last + 2, end));
  return take_hashes(c, last, end, lines, names);
}

/* Counts the fields of a line without quotes. *numbers: all of them are numbers. */
static size_t count_plain(const uint8_t *at, const uint8_t *stop, char delimiter, bool *numbers) {
  size_t fields = 0;
  *numbers = true;
  if (stop > at && stop[-1] == '\r') stop--;
  for (;; at++) {
    const uint8_t *end = memchr(at, delimiter, (size_t)(stop - at));
    if (end == NULL) end = stop;
    const uint8_t *first = at, *past = end;
    while (first < past && *first == ' ') first++;
    while (past > first && past[-1] == ' ') past--;
    *numbers = *numbers && past > first && is_number((const char *)first, (size_t)(past - first));
    fields++;
    if (end == stop) return fields;
    at = end;
  }
}

/* The same with another delimiter (numpy.savetxt(…, delimiter=",")): "# " before the names of a
 * table of numbers. */
static stow_status take_delimited(csv *c, bool *taken) {
  csv behind = *c;
  const uint8_t *last, *end;
  size_t lines = skip_hashes(&behind, &last, &end);
  if (last == NULL || lines == 0 || behind.in.at == behind.in.end) return STOW_OK;
  const uint8_t *row = behind.in.at, *stop = memchr(row, '\n', (size_t)(behind.in.end - row));
  if (stop == NULL) stop = behind.in.end;
  bool numbers, ignored;
  char delimiter = c->delimiter != '\0' ? c->delimiter : find_delimiter(&behind);
  size_t columns = count_plain(row, stop, delimiter, &numbers);
  if (columns < 2 || !numbers) return STOW_OK;
  *taken = true;
  c->delimiter = delimiter;
  bool names = end - last > 2 && count_plain(last + 2, end, delimiter, &ignored) == columns;
  return take_hashes(c, last, end, lines, names);
}

/* Returns whether all words of a line are numbers, however they are separated. */
static bool has_numbers_only(const uint8_t *at, const uint8_t *stop) {
  size_t count = 0;
  for (;;) {
    char word[64];
    size_t length = 0;
    while (at < stop && *at != '\0' && strchr(" \t\r,;|:", *at) != NULL) at++;
    if (at == stop) return count > 0;
    for (; at < stop && *at != '\0' && strchr(" \t\r,;|:", *at) == NULL; at++) {
      if (length == sizeof word - 1) return false;
      word[length++] = (char)*at;
    }
    word[length] = '\0';
    if (length == 0 || !is_number(word, length)) return false;
    count++;
  }
}

/* Returns whether the first lines are numbers, below names perhaps: numpy.savetxt may have written
 * them, which puts "# " before a footer too. */
static bool is_numbers(const csv *c) {
  size_t left = input_left(&c->in), lines = 0, others = 0;
  const uint8_t *at = c->in.at, *stop = at + (left < LOOK_BYTES ? left : LOOK_BYTES);
  while (at < stop) {
    const uint8_t *end = memchr(at, '\n', (size_t)(stop - at));
    if (end == NULL && (left > LOOK_BYTES || !c->in.at_eof)) break; /* the line may continue */
    if (end == NULL) end = stop;
    if (end > at && *at != '#') {
      others += !has_numbers_only(at, end);
      if (others > (lines == 0)) return false;
      lines++;
    }
    at = end + 1;
  }
  return lines > others;
}

/* Handles a first line "sep=;", which names the delimiter for spreadsheets. It is not a row. */
static stow_status take_separator(csv *c, bool *declared) {
  const char *at = (const char *)c->in.at;
  size_t left = input_left(&c->in), length = 5;
  *declared = left > length && strncasecmp(at, "sep=", 4) == 0 && at[4] != '\0' &&
              strchr(delimiters, at[4]) != NULL;
  length += *declared && at[length] == '\r' && left > length + 1;
  *declared = *declared && at[length] == '\n';
  if (!*declared) return STOW_OK;
  c->delimiter = at[4];
  c->lines = 1;
  return input_skip(&c->in, length + 1);
}

/* Skips empty lines before the first row: what --skip leaves of the lines it skips. */
static stow_status skip_empty(csv *c, size_t sample) {
  for (;;) {
    STOW_TRY(input_fill(&c->in, sample));
    const uint8_t *at = c->in.at;
    size_t left = input_left(&c->in), length = left > 0 && at[0] == '\r';
    if (left <= length || at[length] != '\n') return STOW_OK;
    STOW_TRY(input_skip(&c->in, length + 1));
    c->lines++;
  }
}

static const csv_options defaults = {0};

/* Finds the delimiter of text whose lines end with CR, in a copy of its first lines: it decides
 * where a quote opens, and so which CR ends a line. */
static stow_status find_delimiter_of_cr(const csv *c, const csv_options *o, size_t row_max,
                                        char *delimiter) {
  size_t count = input_left(&c->in) < SAMPLE_BYTES ? input_left(&c->in) : SAMPLE_BYTES;
  uint8_t *copy = malloc(count + 1);
  if (copy == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", c->in.name);
  for (size_t i = 0; i < count; i++)
    copy[i] =
        c->in.at[i] == '\r' && (i + 1 == count || c->in.at[i + 1] != '\n') ? '\n' : c->in.at[i];
  csv_options plain = {.decimal = o->decimal, .comment = o->comment, .skip = o->skip};
  csv first;
  stow_status status = csv_open_memory(&first, copy, count, c->in.name, row_max, &plain);
  if (status == STOW_OK) {
    *delimiter = first.delimiter;
    csv_close(&first);
  }
  free(copy);
  return status;
}

/* Makes the text UTF-8 with lines that end with LF or CRLF. */
static stow_status take_text(csv *c, const csv_options *o, size_t row_max, size_t sample) {
  csv_options lines = *o;
  STOW_TRY(csv_text_decode(&c->in, o));
  STOW_TRY(input_fill(&c->in, sample));
  bool cr = csv_text_has_cr(&c->in, o);
  if (cr && o->delimiter == '\0') STOW_TRY(find_delimiter_of_cr(c, o, row_max, &lines.delimiter));
  return csv_text_lines(&c->in, &lines, cr);
}

static stow_status begin(csv *c, size_t row_max, const csv_options *options) {
  const csv_options *o = c->options = options != NULL ? options : &defaults;
  c->row_max = row_max;
  c->fields_max = row_max / sizeof(csv_field);
  c->point = o->decimal == ',' ? ',' : '.';
  c->careful = o->na != NULL || c->point == ',';
  for (size_t i = 0; o->na != NULL && i < o->na_count; i++) {
    size_t length = strlen(o->na[i]);
    c->na_lengths |= UINT64_C(1) << (length < 63 ? length : 63);
  }
  size_t sample = c->in.capacity < SAMPLE_BYTES ? c->in.capacity : SAMPLE_BYTES;
  if (c->places != NULL) return input_fill(&c->in, sample); /* each file was looked at */
  STOW_TRY(take_text(c, o, row_max, sample));
  STOW_TRY(skip_empty(c, sample));
  bool declared = o->delimiter != '\0', runs = o->spaces, colons = o->colons, separated = false;
  bool marked = !declared || o->found; /* each file may have a header, a footer, a line "sep=;" */
  c->delimiter = o->delimiter;
  if (marked && is_numbers(c)) STOW_TRY(input_drop_footer(&c->in));
  if (marked) STOW_TRY(take_separator(c, &separated));
  declared = declared || separated;
  if (!declared && csv_colons_is(&c->in)) declared = colons = true;
  if (colons) c->delimiter = CSV_COLONS;
  if (!declared) STOW_TRY(take_spaced(c, &declared, &runs));
  if (!declared || o->found) STOW_TRY(take_delimited(c, &declared));
  if (!declared) c->delimiter = first_is_pairs(c) ? '|' : find_delimiter(c);
  if (!runs && !colons) return STOW_OK;
  STOW_TRY(colons ? csv_colons_wrap(&c->in) : csv_spaces_wrap(&c->in));
  return input_fill(&c->in, sample);
}

/* A table of zeros compresses a thousandfold. Rows are streamed, so no bound is needed. */
static const input_limits no_limits = {.max_bytes = UINT64_MAX, .max_ratio = UINT64_MAX};

void csv_view(csv *view, const csv *c) {
  view->options = c->options;
  view->places = c->places;
  view->careful = c->careful;
  view->point = c->point;
  view->na_lengths = c->na_lengths;
  view->delimiter = c->delimiter;
  view->columns = c->columns;
  view->padded = c->padded;
  view->row_max = c->row_max;
  view->fields_max = c->fields_max;
  view->in.name = c->in.name;
  view->in.at_eof = true;
}

/* Sets *is to whether the file is a zip archive; a URL only by its name. A read that fails is an
 * error: read as text, an archive gives another answer. */
static stow_status find_zip(bool *is, const char *path) {
  uint8_t start[4] = {0};
  *is = false;
  if (remote_is(path)) {
    *is = text_ends_case(path, strlen(path), ".zip");
    return STOW_OK;
  }
  if (strcmp(path, "-") == 0) return STOW_OK; /* standard input */
  FILE *file = fopen(path, "rbe");
  if (file == NULL) return missing_fail(path, errno);
  *is = fread(start, 1, sizeof start, file) == sizeof start &&
        memcmp(start, "PK\x03\x04", sizeof start) == 0;
  int why = ferror(file) != 0 ? errno : 0;
  fclose(file);
  if (why == 0) return STOW_OK;
  return stow_fail(STOW_ERR_IO, "%s: cannot read: %s", path, strerror(why));
}

stow_status csv_open_joined(csv *c, const input_reader *reader, const csv_places *places,
                            char delimiter, const char *name, size_t row_max,
                            const csv_options *options) {
  *c = (csv){.places = places, .delimiter = delimiter};
  STOW_TRY(input_open_reader(&c->in, reader, name, &no_limits));
  stow_status status = begin(c, row_max, options);
  if (status != STOW_OK) csv_close(c);
  return status;
}

stow_status csv_open_one(csv *c, const char *path, size_t row_max, const csv_options *options) {
  *c = (csv){0};
  bool zipped;
  STOW_TRY(find_zip(&zipped, path));
  if (zipped)
    STOW_TRY(csv_zip_open(&c->in, path, options != NULL ? options->member : NULL));
  else
    STOW_TRY(input_open(&c->in, path, &no_limits));
  stow_status status = begin(c, row_max, options);
  if (status != STOW_OK) csv_close(c);
  return status;
}

stow_status csv_open_memory(csv *c, const void *bytes, size_t count, const char *name,
                            size_t row_max, const csv_options *options) {
  *c = (csv){0};
  STOW_TRY(input_open_memory(&c->in, bytes, count, name, &no_limits));
  stow_status status = begin(c, row_max, options);
  if (status != STOW_OK) csv_close(c);
  return status;
}

void csv_close(csv *c) {
  input_close(&c->in);
  free(c->fields);
  free(c->unescaped);
  c->fields = NULL;
  c->unescaped = NULL;
}
