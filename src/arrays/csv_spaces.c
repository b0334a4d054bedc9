/* Csv spaces: tables whose columns are separated by runs of spaces or tabs, or by single spaces
 * between numbers, as programs for people write them; pandas reads them with sep=r"\s+".
 *
 *      id   name    x          An input in front of an input: csv reads "id name x", one space
 *       1   Anna  0.5          between fields and none around the line. Bytes inside quotes stay,
 *      20   Bo    1.25         and so do line ends, so that line numbers are those of the file. */
#include <stdlib.h>
#include <string.h>

#include "arrays/csv.h"

enum {
  LOOK_BYTES = 16 << 10,
  COLUMNS_MAX = 1024, /* looked at for numbers */
  LINES_WITHOUT = 3   /* a table without a column of numbers needs this many lines */
};

static bool is_blank(uint8_t byte) {
  return byte == ' ' || byte == '\t';
}

/* ---- is it such a table? ---- */

typedef struct shape {
  size_t lines, first_count, columns; /* fields of the first line, of the longest other */
  size_t full;                        /* lines below the first that have `columns` fields */
  size_t tabs;                        /* of the first line */
  bool even_tabs;                     /* each line has as many */
  bool more_pairs;                    /* below the first line, each line has more pairs of numbers
                                       * with two blanks or more between them than tabs */
  bool runs;                          /* two blanks or more between some fields */
  bool around;                        /* blanks before or after the fields of some line */
  bool numbers;                       /* every field is a number */
  bool texts[COLUMNS_MAX];            /* columns with another value below the first line */
  /* Where the fields of the second line begin and end, in characters, and which of them other
   * lines have elsewhere. */
  uint32_t begins[COLUMNS_MAX], ends[COLUMNS_MAX];
  bool begin_moves[COLUMNS_MAX], end_moves[COLUMNS_MAX];
} shape;

static bool is_value(const uint8_t *at, size_t length) {
  char word[64], *end;
  if (length == 0 || length >= sizeof word) return false;
  memcpy(word, at, length);
  word[length] = '\0';
  if (csv_is_missing(word, length)) return true;
  strtod(word, &end);
  return (end == word + length && strpbrk(word, "xX") == NULL) || csv_is_complex(word, length);
}

/* Returns the end of the field at `at`; NULL if its quote does not close, or text follows it. */
static const uint8_t *field_end(const uint8_t *at, const uint8_t *stop) {
  if (*at != '"') {
    while (at < stop && !is_blank(*at)) at++;
    return at;
  }
  for (at++;; at += 2) {
    at = memchr(at, '"', (size_t)(stop - at));
    if (at == NULL) return NULL;
    if (at + 1 >= stop || is_blank(at[1])) return at + 1;
    if (at[1] != '"') return NULL;
  }
}

/* Notes what a field below the first line shows about its column. */
static void look_at_field(shape *s, size_t column, bool value, uint32_t begin, uint32_t end) {
  if (s->lines == 0 || column >= COLUMNS_MAX) return;
  if (s->lines == 1) s->begins[column] = begin, s->ends[column] = end;
  s->texts[column] = s->texts[column] || !value;
  s->begin_moves[column] = s->begin_moves[column] || begin != s->begins[column];
  s->end_moves[column] = s->end_moves[column] || end != s->ends[column];
}

/* Adds a line to the shape; false: this is no such table. */
static bool look_at_line(shape *s, const uint8_t *at, const uint8_t *stop) {
  size_t count = 0, tabs = 0, pairs = 0;
  uint32_t place = 0; /* in characters */
  const uint8_t *before = NULL;
  bool value_before = false, around = at < stop && (is_blank(*at) || is_blank(stop[-1]));
  for (; at < stop && is_blank(*at); at++, place++) tabs += *at == '\t';
  while (at < stop) {
    const uint8_t *end = field_end(at, stop);
    uint32_t begin = place;
    if (end == NULL) return false;
    s->runs = s->runs || (before != NULL && at - before > 1);
    bool value = is_value(at, (size_t)(end - at));
    s->numbers = s->numbers && value;
    pairs += value && value_before && at - before > 1;
    value_before = value;
    for (; at < end; at++) place += (*at & 0xc0) != 0x80;
    look_at_field(s, count++, value, begin, place);
    before = end;
    for (; at < stop && is_blank(*at); at++, place++) tabs += *at == '\t';
  }
  if (count == 0) return true; /* an empty line */
  if (s->lines == 0) s->first_count = count, s->tabs = tabs;
  s->more_pairs = s->more_pairs && (s->lines == 0 || pairs > tabs);
  s->even_tabs = s->even_tabs && tabs == s->tabs;
  s->around = s->around || around;
  if (s->lines < 2 || count > s->columns) s->columns = count, s->full = 0;
  s->full += s->lines > 0 && count == s->columns;
  s->lines++;
  return true;
}

/* Returns whether each column is aligned at its left or at its right. */
static bool is_aligned(const shape *s) {
  for (size_t i = 1; i < s->columns && i < COLUMNS_MAX; i++)
    if (s->begin_moves[i] && s->end_moves[i]) return false;
  return true;
}

static size_t count_number_columns(const shape *s) {
  size_t count = 0;
  for (size_t i = 0; i < s->columns && i < COLUMNS_MAX; i++) count += !s->texts[i];
  return count;
}

/* Another delimiter in the first line, outside quotes, is the better explanation. */
static bool has_delimiter(const csv *c, const uint8_t *at, const uint8_t *stop) {
  bool quoted = false;
  for (; at < stop && *at != '\n'; at++) {
    if (*at == '"') quoted = !quoted;
    if (!quoted && (*at == ';' || *at == '|' || (*at == ',' && c->options->decimal != ',')))
      return true;
  }
  return false;
}

bool csv_spaces_is(const csv *c, size_t *columns) {
  size_t left = input_left(&c->in);
  const uint8_t *at = c->in.at, *stop = at + (left < LOOK_BYTES ? left : LOOK_BYTES);
  shape s = {.numbers = true, .even_tabs = true, .more_pairs = true};
  if (has_delimiter(c, at, stop)) return false;
  while (at < stop) {
    const uint8_t *end = memchr(at, '\n', (size_t)(stop - at));
    if (end == NULL && (left > LOOK_BYTES || !c->in.at_eof)) break; /* the line may continue */
    if (end == NULL) end = stop;
    const uint8_t *text = end > at && end[-1] == '\r' ? end - 1 : end;
    if (!look_at_line(&s, at, text)) return false;
    at = end + 1;
  }
  *columns = s.columns;
  if (s.columns < 2 || (s.tabs > 0 && s.even_tabs && !s.more_pairs)) return false;
  bool even = s.full + 1 >= s.lines;
  if (s.numbers) return (s.runs || s.around) && even && s.first_count == s.columns;
  if (s.lines < 2) return false;
  size_t number_columns = count_number_columns(&s);
  if (!s.runs) { /* "Room 12" is text, whatever surrounds it */
    if (!even || s.first_count != s.columns) return false;
    return (s.around && number_columns == s.columns) ||
           (s.columns >= 3 && number_columns * 2 > s.columns);
  }
  /* One name fewer: the first column has none. One more, as "Mounted on" of df: the last column is
   * empty, as in pandas. Rows may lack their last values. Prose has such lines too, but not with
   * columns of numbers. */
  if (s.columns > s.first_count + 1 || s.first_count > s.columns + 1) return false;
  bool aligned = even && s.lines >= LINES_WITHOUT && is_aligned(&s);
  if (s.first_count > s.columns && aligned) return s.columns >= 3;
  if (s.first_count > s.columns || !even) return number_columns > 1 && s.full * 2 >= s.lines - 1;
  return number_columns > 0 || aligned;
}

/* ---- one space for each run ---- */

typedef struct csv_spaces {
  input in;
  bool pending;       /* blanks were left out since the last field */
  bool line_begins;   /* no field of this line was seen */
  bool field_begins;  /* the next byte begins a field: a quote opens there */
  bool quoted, ended; /* inside quotes; just after the closing one */
} csv_spaces;

/* Converts the byte that the input is at. Returns whether it gives a byte, which is then *to. */
static bool take_byte(csv_spaces *s, uint8_t *to) {
  uint8_t byte = *s->in.at;
  bool line_end = byte == '\n' || byte == '\r';
  if (s->quoted) {
    s->quoted = byte != '"';
    s->ended = byte == '"';
  } else if (is_blank(byte)) {
    s->pending = !s->line_begins;
    s->ended = false;
    s->in.at++;
    return false;
  } else if (s->pending && !line_end) {
    s->pending = false;
    s->field_begins = true;
    *to = ' ';
    return true; /* and the byte is still to be taken */
  } else {
    s->quoted = byte == '"' && (s->field_begins || s->ended);
    s->ended = s->pending = false;
    s->line_begins = byte == '\n' || (s->line_begins && byte == '\r');
    s->field_begins = s->line_begins;
  }
  s->in.at++;
  *to = byte;
  return true;
}

static stow_status read_spaces(void *user, uint8_t *to, size_t room, size_t *got) {
  csv_spaces *s = user;
  *got = 0;
  while (*got == 0) {
    STOW_TRY(input_fill(&s->in, 1));
    if (input_left(&s->in) == 0) return STOW_OK;
    while (s->in.at < s->in.end && *got < room) *got += take_byte(s, to + *got);
  }
  return STOW_OK;
}

stow_status csv_spaces_wrap(input *in) {
  csv_spaces *s = calloc(1, sizeof *s);
  if (s != NULL) s->line_begins = s->field_begins = true;
  return input_wrap(in, s, read_spaces);
}
