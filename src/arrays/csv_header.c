/* Csv header: decides whether the first row names the columns.
 *
 * The default is yes, as in pandas and polars. The first row is data if every field is a number, if
 * one of its texts recurs in its column, if one is a date, a time or the like above others of its
 * kind, if it holds fractions, gaps or the same number twice, or if it starts a sequence (1, 2, 3).
 * Numbers may be names: pandas writes `,0,1,2` above an index and `,2019,2020` above dates, and
 * `country,2019,2020` is a table of years.
 *
 * Called by the table reader. Looks at up to SAMPLE_ROWS rows, never past the window. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/csv.h"
#include "arrays/csv_time.h"
#include "base/compare.h"

enum { SAMPLE_ROWS = 64, NAME_BYTES_MAX = 1024, FORM_BYTES_MAX = 64 };

/* What a field of the first row looks like. */
typedef enum look {
  LOOK_EMPTY,
  LOOK_TEXT,
  LOOK_WORD,    /* inf, nan, true: a value that may also be a name */
  LOOK_INTEGER, /* digits only */
  LOOK_VALUE    /* any other number, NA, or a very long text: rarely a name */
} look;

/* One column: its field in the first row, and statistics of the fields below. */
typedef struct evidence {
  look first;
  bool has_letter;                  /* the first row's text contains a letter */
  uint64_t number;                  /* number in the first row, if LOOK_INTEGER */
  double value;                     /* the same of any number; otherwise NAN */
  size_t numbers, texts, fractions; /* below the first row */
  size_t bools;                     /* of these numbers */
  bool recurs;                      /* a text below equals the first row's */
  bool alike;                       /* digits without letters, as every text below */
  bool continues;                   /* the fields below continue the count from `number` */
  bool counts_from_zero;            /* the fields below are 0, 1, 2, … */
} evidence;

typedef struct sample {
  const csv *from;
  evidence *columns;
  size_t rows;
} sample;

/* Returns whether it is "007" or the like: text, but no name. */
static bool is_padded(const csv_field *f) {
  if (f->kind != CSV_TEXT || f->length < 2 || !csv_keeps_zeros(f->text, f->length)) return false;
  for (uint32_t i = 1; i < f->length; i++)
    if (!isdigit((unsigned char)f->text[i])) return false;
  return true;
}

static look look_of(const csv_field *f) {
  const char *at = f->text, *end = f->text + f->length;
  if (is_padded(f)) return LOOK_VALUE;
  if (f->kind == CSV_TEXT) return f->length <= NAME_BYTES_MAX ? LOOK_TEXT : LOOK_VALUE;
  while (at < end && (*at == ' ' || *at == '\t')) at++;
  while (end > at && (end[-1] == ' ' || end[-1] == '\t')) end--;
  if (at == end) return LOOK_EMPTY;
  if (f->kind == CSV_MISSING) return LOOK_VALUE;
  if (isalpha((unsigned char)*at)) return LOOK_WORD;
  while (at < end && isdigit((unsigned char)*at)) at++;
  return at == end ? LOOK_INTEGER : LOOK_VALUE;
}

/* Writes the form of a text: 9 for digits, other bytes as they are. Returns its length, at most
 * `most`. */
static size_t form_of(char *form, size_t most, const csv_field *f) {
  size_t length = 0;
  for (uint32_t i = 0; i < f->length && length < most; i++) {
    char is = isdigit((unsigned char)f->text[i]) ? '9' : f->text[i];
    if (length == 0 || form[length - 1] != '9' || is != '9') form[length++] = is;
  }
  return length;
}

static bool is_pairs(const csv_field *f) {
  return csv_is_pairs(f->text, f->length);
}

static bool is_complex(const csv_field *f) {
  return csv_is_complex(f->text, f->length);
}

/* Returns whether two texts are of one kind: both times, both lines of libsvm, both complex
 * numbers, or of the same form (10/31/2024, 192.168.0.1). */
static bool are_alike(const csv_field *a, const csv_field *b) {
  char forms[2][FORM_BYTES_MAX];
  csv_time time;
  if (is_pairs(a)) return is_pairs(b);
  if (is_complex(a)) return is_complex(b);
  if (csv_time_read(&time, a->text, a->length)) return csv_time_read(&time, b->text, b->length);
  size_t length = form_of(forms[0], FORM_BYTES_MAX, a);
  return length < FORM_BYTES_MAX && length == form_of(forms[1], FORM_BYTES_MAX, b) &&
         memcmp(forms[0], forms[1], length) == 0;
}

/* Returns whether it is a time, a line of libsvm, a complex number, or has digits and no letters: a
 * date, an address, an amount. */
static bool is_digits(const csv_field *f) {
  csv_time time;
  bool digits = false, letters = false;
  for (uint32_t i = 0; i < f->length; i++) {
    digits = digits || isdigit((unsigned char)f->text[i]);
    letters = letters || isalpha((unsigned char)f->text[i]) || (f->text[i] & 0x80);
  }
  return (digits && !letters) || is_pairs(f) || is_complex(f) ||
         csv_time_read(&time, f->text, f->length);
}

static void begin_column(evidence *e, const csv_field *f) {
  e->first = look_of(f);
  e->continues = e->first == LOOK_INTEGER;
  e->counts_from_zero = true;
  e->alike = e->first == LOOK_TEXT && is_digits(f);
  if (e->first == LOOK_INTEGER)
    e->number = f->kind == CSV_UNSIGNED ? f->value.u : (uint64_t)f->value.i;
  e->value = f->kind == CSV_SIGNED     ? (double)f->value.i
             : f->kind == CSV_UNSIGNED ? (double)f->value.u
             : f->kind == CSV_FLOAT    ? f->value.d
                                       : NAN;
  for (uint32_t i = 0; i < f->length; i++)
    e->has_letter = e->has_letter || isalpha((unsigned char)f->text[i]) || (f->text[i] & 0x80);
}

static void add_field(evidence *e, const csv_field *first, const csv_field *f, size_t row) {
  uint64_t number = f->kind == CSV_SIGNED ? (uint64_t)f->value.i : UINT64_MAX;
  bool text = f->kind == CSV_TEXT && !is_padded(f);
  e->texts += text;
  e->numbers += !text && f->kind != CSV_MISSING;
  e->fractions += f->kind == CSV_FLOAT;
  e->bools += f->kind == CSV_BOOL;
  e->recurs = e->recurs || (f->kind == CSV_TEXT && f->length == first->length &&
                            memcmp(f->text, first->text, f->length) == 0);
  /* A line of libsvm without pairs is a number. */
  bool alike = text ? are_alike(first, f) : f->kind == CSV_MISSING || is_pairs(first);
  e->alike = e->alike && alike;
  e->continues = e->continues && number == e->number + row + 1;
  e->counts_from_zero = e->counts_from_zero && number == row;
}

/* Reads the rows below the first from the window. A row that cannot be parsed ends the sample; the
 * pass over the table reports it. */
static void read_sample(sample *s) {
  const csv *c = s->from;
  csv below = {.in = {.at = c->in.at, .end = c->in.end}};
  csv_view(&below, c);
  while (s->rows < SAMPLE_ROWS && below.in.at < below.in.end) {
    bool more = false;
    const char *at = (const char *)below.in.at, *end = (const char *)below.in.end;
    if (!c->in.at_eof && csv_row_end(&below, at, end) == NULL) break;
    if (csv_next(&below, &more) != STOW_OK || !more) break;
    for (size_t i = 0; i < c->columns; i++)
      add_field(&s->columns[i], &c->fields[i], &below.fields[i], s->rows);
    s->rows++;
  }
  free(below.fields);
  free(below.unescaped);
}

/* ---- row names ---- */

/* Returns whether every row below the first, as far as the sample goes, has `count` fields. Between
 * spaces, as free(1) prints them, only the first of these rows must be complete. Sets *ends to
 * whether each of the rows ends with a delimiter. */
static bool rows_have(const csv *c, size_t count, bool *ends) {
  csv below = {.in = {.at = c->in.at, .end = c->in.end}};
  bool more = true, all = true;
  size_t rows = 0;
  *ends = c->delimiter != ' ';
  csv_view(&below, c);
  while (all && rows < SAMPLE_ROWS && below.in.at < below.in.end) {
    const char *at = (const char *)below.in.at, *end = (const char *)below.in.end;
    if (!c->in.at_eof && csv_row_end(&below, at, end) == NULL) break;
    below.columns = 0; /* whatever it has */
    if (csv_next(&below, &more) != STOW_OK || !more) break;
    bool may_lack = rows > 0 && c->delimiter == ' ';
    all = may_lack ? below.columns <= count : below.columns == count;
    const char *last = (const char *)below.in.at;
    while (last > at && (last[-1] == '\n' || last[-1] == '\r')) last--;
    *ends = *ends && last > at && last[-1] == c->delimiter;
    rows++;
  }
  free(below.fields);
  free(below.unescaped);
  return all && rows > 0;
}

/* Returns whether the first row can only be names. */
static bool is_names(const csv *c) {
  for (size_t i = 0; i < c->columns; i++) {
    look is = look_of(&c->fields[i]);
    if (is != LOOK_TEXT && is != LOOK_WORD) return false;
  }
  return true;
}

stow_status csv_first(csv *c, table_header header, bool *more) {
  STOW_TRY(csv_next(c, more));
  if (!*more || header == HEADER_NO || (header == HEADER_AUTO && !is_names(c))) return STOW_OK;
  bool ends;
  if (!rows_have(c, c->columns + 1, &ends)) return STOW_OK;
  csv_field *fields = malloc((c->columns + 1) * sizeof *fields);
  if (fields == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", c->in.name);
  /* The field without a name is the first one, a name of the row, as R writes it; or the empty one
   * behind the last delimiter. */
  memcpy(fields + !ends, c->fields, c->columns * sizeof *fields);
  fields[ends ? c->columns : 0] = (csv_field){.kind = CSV_MISSING, .text = ""};
  free(c->fields);
  c->fields = fields;
  c->capacity = c->given = ++c->columns;
  return STOW_OK;
}

/* ---- the decision ---- */

typedef struct counts {
  size_t of[LOOK_VALUE + 1]; /* number of fields by look, without the ones above an index, and
                              * without the last one if all of its column is empty */
  size_t index;              /* columns of an index: empty first fields above filled columns */
  bool ascends;   /* the fields behind the index are numbers, each larger than the last */
  bool distinct;  /* no number occurs twice */
  bool from_zero; /* the numbers are 0, 1, 2, … in order */
} counts;

/* Returns whether a field of the first row is empty and none below it is. */
static bool is_above_filled(const sample *s, const evidence *e) {
  return e->first == LOOK_EMPTY && s->rows > 0 && e->texts + e->numbers == s->rows;
}

static stow_status count_looks(const sample *s, counts *n) {
  size_t columns = s->from->columns, filled = 0;
  uint64_t *numbers = malloc((columns + 1) * sizeof *numbers);
  if (numbers == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no memory", s->from->in.name);
  *n = (counts){.distinct = true, .from_zero = true, .ascends = true};
  while (n->index < columns && is_above_filled(s, &s->columns[n->index])) n->index++;
  for (size_t i = 0; i < columns; i++) {
    const evidence *e = &s->columns[i];
    bool unused = i + 1 == columns && s->rows > 0 && e->texts + e->numbers == 0;
    if (e->first != LOOK_EMPTY || (i > 0 && i >= n->index && !unused)) n->of[e->first]++;
    if (i == n->index) n->ascends = !isnan(e->value);
    if (i > n->index) n->ascends = n->ascends && e->value > e[-1].value;
    if (e->first != LOOK_INTEGER) continue;
    n->from_zero = n->from_zero && e->number == filled;
    numbers[filled++] = e->number;
  }
  qsort(numbers, filled, sizeof *numbers, compare_u64);
  for (size_t i = 1; i < filled; i++) n->distinct = n->distinct && numbers[i] != numbers[i - 1];
  free(numbers);
  return STOW_OK;
}

/* Returns whether every column from `first` on holds fractions. */
static bool above_fractions(const sample *s, size_t first) {
  for (size_t i = first; i < s->from->columns; i++)
    if (s->columns[i].fractions == 0) return false;
  return true;
}

/* Returns whether the empty first fields are above an index, as DataFrame.to_csv writes it. */
static bool above_index(const sample *s, const counts *n) {
  size_t columns = s->from->columns;
  if (s->columns[0].first != LOOK_EMPTY || n->of[LOOK_EMPTY] > 0 || !n->distinct) return false;
  if (columns < 2) return false;
  if (s->rows > 0 && s->columns[0].counts_from_zero) return true;
  if (n->from_zero && n->of[LOOK_INTEGER] == columns - 1) return true;
  if (n->index == 0 || n->index == columns) return false;
  bool integers = n->of[LOOK_INTEGER] == columns - n->index;
  if (s->rows < 2) return false;
  if (s->columns[n->index - 1].texts > 0) return n->ascends || integers;
  return integers && above_fractions(s, n->index);
}

/* Returns whether a number is above texts, or above true and false, which makes it a name. */
static bool number_above_texts(const sample *s) {
  for (size_t i = 0; i < s->from->columns; i++) {
    const evidence *e = &s->columns[i];
    if (e->first == LOOK_INTEGER && e->texts + e->bools > 0 && e->numbers == e->bools) return true;
  }
  return false;
}

/* Returns whether a word is above numbers, which makes it a name. "?" and "-" may also be missing
 * values. */
static bool text_above_numbers(const sample *s) {
  for (size_t i = 0; i < s->from->columns; i++) {
    const evidence *e = &s->columns[i];
    if (e->first == LOOK_TEXT && e->has_letter && e->numbers > 0 && e->texts == 0) return true;
  }
  return false;
}

/* Returns whether a date, a time or another text of digits is above others of its form: it is one
 * of them, not their name. */
static bool text_above_alike(const sample *s) {
  for (size_t i = 0; i < s->from->columns; i++)
    if (s->columns[i].alike && s->columns[i].texts > 0) return true;
  return false;
}

static bool looks_like_data(const sample *s, const counts *n) {
  if (n->of[LOOK_VALUE] > 0 || n->of[LOOK_EMPTY] > 0 || !n->distinct) return true;
  for (size_t i = 0; i < s->from->columns; i++) {
    const evidence *e = &s->columns[i];
    if (e->recurs || (s->rows > 0 && e->continues)) return true;
  }
  return false;
}

/* Returns whether 0, 1, 2, … are above fractions: the names that DataFrame.to_csv(index=False)
 * writes. */
static bool counts_above_fractions(const sample *s, const counts *n) {
  bool fractions = false;
  for (size_t i = 0; i < s->from->columns; i++)
    fractions = fractions || s->columns[i].fractions > 0;
  return fractions && n->from_zero && s->from->columns > 1 &&
         n->of[LOOK_INTEGER] == s->from->columns;
}

static bool decide(const sample *s, const counts *n) {
  size_t named = n->of[LOOK_TEXT], other = n->of[LOOK_INTEGER] + n->of[LOOK_VALUE];
  if (above_index(s, n) || counts_above_fractions(s, n)) return true;
  if (text_above_alike(s) && !text_above_numbers(s)) return false;
  if (named > 0 && other + n->of[LOOK_WORD] == 0) return true;
  if (named == 0)
    return n->of[LOOK_VALUE] + n->of[LOOK_EMPTY] == 0 && n->distinct && number_above_texts(s);
  if (text_above_numbers(s)) return true;
  return !looks_like_data(s, n);
}

stow_status csv_find_header(const csv *c, bool *header) {
  sample s = {.from = c, .columns = calloc(c->columns + 1, sizeof *s.columns)};
  counts n = {0};
  if (s.columns == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no memory", c->in.name);
  for (size_t i = 0; i < c->columns; i++) begin_column(&s.columns[i], &c->fields[i]);
  read_sample(&s);
  stow_status status = count_looks(&s, &n);
  if (status == STOW_OK) *header = decide(&s, &n);
  free(s.columns);
  return status;
}
