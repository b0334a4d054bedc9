/* Table: one pass over the rows. Every number goes into its column's run of doubles, which the
 * vectorised scan takes when full; integers are followed exactly beside it, because a double holds
 * only 53 bits of them. */
#include "data/table.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { RUN_LEAST = 16, RUN_MOST = 1024, TELL_ROWS = 1024 };

/* What CPython spends on a short ASCII text beside its letters, and a reference to it: what a text
 * column costs in pandas today. */
#define TEXT_OBJECT_BYTES (49 + 8)

typedef struct column {
  double *run;
  size_t filled;
  scan floats; /* of every number, as doubles; missing ones as NaN */
  uint64_t signeds, unsigneds, fractions, bools, texts, missing, zeros;
  int64_t least, most;
  uint64_t most_unsigned;
  bool inexact;   /* an integer that no double holds */
  bool interning; /* text from the start: distinct values are counted */
  bool too_many;  /* …until there were too many */
  intern distinct;
  uint64_t text_bytes, longest, first_text_line;
  uint64_t missing_words; /* NA and the like, which are text if the column is */
} column;

typedef struct pass {
  column *columns;
  size_t count, run_max;
  double *runs;
  uint64_t distinct_max; /* bytes, each column */
  uint64_t rows;
} pass;

size_t table_row_max(const budget *b) {
  return (size_t)(b->bytes / 8);
}

/* ---- one value ---- */

static void add_number(pass *p, column *c, double value) {
  c->run[c->filled++] = value;
  if (c->filled < p->run_max) return;
  scan_add(&c->floats, c->run, c->filled);
  c->filled = 0;
}

static void add_signed(pass *p, column *c, int64_t value) {
  c->signeds++;
  c->zeros += value == 0;
  if (value < c->least) c->least = value;
  if (value > c->most) c->most = value;
  double near = (double)value;
  /* 2^63 itself does not come back into an int64. */
  if (near >= 0x1p63 || (int64_t)near != value) c->inexact = true;
  add_number(p, c, near);
}

static void add_unsigned(pass *p, column *c, uint64_t value) {
  c->unsigneds++;
  if (value > c->most_unsigned) c->most_unsigned = value;
  double near = (double)value;
  if (near >= 0x1p64 || (uint64_t)near != value) c->inexact = true;
  add_number(p, c, near);
}

static uint64_t numbers_of(const column *c) {
  return c->signeds + c->unsigneds + c->fractions + c->bools;
}

static void add_text(pass *p, column *c, const csv_field *f, uint64_t line) {
  if (c->texts == 0) {
    c->interning = numbers_of(c) + c->missing_words == 0;
    c->first_text_line = line;
    c->distinct.max_bytes = p->distinct_max;
  }
  c->texts++;
  if (!c->interning || c->too_many) return;
  uint32_t number;
  if (c->distinct.count >= p->distinct_max / 16 ||
      intern_add(&c->distinct, &number, f->text, f->length) != STOW_OK) {
    c->too_many = true;
    intern_free(&c->distinct);
    c->distinct = (intern){0};
  }
}

static void add_field(pass *p, column *c, const csv_field *f, uint64_t line) {
  c->text_bytes += f->length; /* of numbers too: the column may turn out to be text */
  if (f->length > c->longest) c->longest = f->length;
  /* Once a column is text, everything in it is; only nothing stays nothing. */
  if (c->texts > 0 && !(f->kind == CSV_MISSING && f->length == 0)) {
    add_text(p, c, f, line);
    return;
  }
  switch (f->kind) {
  case CSV_SIGNED: add_signed(p, c, f->value.i); break;
  case CSV_UNSIGNED: add_unsigned(p, c, f->value.u); break;
  case CSV_FLOAT:
    c->fractions++;
    add_number(p, c, f->value.d);
    break;
  case CSV_BOOL:
    c->bools++;
    c->zeros += f->value.i == 0;
    break;
  case CSV_MISSING:
    c->missing++;
    c->missing_words += f->length > 0;
    add_number(p, c, (double)NAN);
    break;
  case CSV_TEXT: add_text(p, c, f, line); break;
  }
}

/* ---- what the column turned out to be ---- */

static bool is_text(const column *c) {
  if (c->texts > 0) return true;
  uint64_t numbers = c->signeds + c->unsigneds + c->fractions;
  if (c->bools > 0) return numbers + c->missing > 0;
  if (c->unsigneds > 0 && c->least < 0) return true;  /* no type holds both */
  return c->inexact && c->fractions + c->missing > 0; /* nor these */
}

static void conclude_integers(column_facts *to, const column *c) {
  bool wide = c->unsigneds > 0;
  scan *s = &to->values;
  scan_begin(s, c->bools > 0 ? DTYPE_BOOL : wide ? DTYPE_U64 : DTYPE_I64);
  s->count = c->signeds + c->unsigneds + c->bools;
  s->zeros = c->zeros;
  if (c->bools > 0) {
    s->least_int = c->zeros == 0;
    s->most_int = c->zeros < c->bools;
    s->least = (double)s->least_int;
    s->most = (double)s->most_int;
    return;
  }
  s->least_int = c->signeds > 0 ? c->least : (int64_t)c->most_unsigned;
  s->most_int = wide ? c->most_unsigned : (uint64_t)c->most;
  s->least = c->floats.least;
  s->most = c->floats.most;
}

static dtype code_type(uint64_t codes) {
  return codes <= 256 ? DTYPE_U8 : codes <= 65536 ? DTYPE_U16 : DTYPE_U32;
}

static void conclude_text(column_facts *to, const column *c, uint64_t rows) {
  to->text = true;
  to->type_name = "text";
  to->mixed = numbers_of(c) > 0;
  to->first_text_line = c->first_text_line;
  to->text_bytes = c->text_bytes;
  to->longest = c->longest;
  to->distinct_known = c->interning && !c->too_many;
  to->bytes = rows * TEXT_OBJECT_BYTES + c->text_bytes;
  to->bytes_after = to->bytes;
  if (!to->distinct_known) return;
  to->distinct = c->distinct.count;
  to->distinct_bytes = c->distinct.length - c->distinct.count; /* less the ends */
  to->smallest = code_type(to->distinct + (c->missing > 0));
  uint64_t coded = rows * dtype_bytes(to->smallest) + to->distinct_bytes;
  if (coded < to->bytes) to->bytes_after = coded;
}

static void conclude(column_facts *to, column *c, uint64_t rows) {
  if (c->filled > 0) scan_add(&c->floats, c->run, c->filled);
  c->filled = 0;
  to->missing = c->missing;
  if (is_text(c)) {
    conclude_text(to, c, rows);
    return;
  }
  if (c->fractions + c->missing > 0 || numbers_of(c) == 0)
    to->values = c->floats;
  else
    conclude_integers(to, c);
  to->type_name = dtype_name(to->values.type);
  to->smallest = scan_smallest(&to->values, false);
  to->bytes = rows * dtype_bytes(to->values.type);
  to->bytes_after = rows * dtype_bytes(to->smallest);
}

dtype table_column_type(const column_facts *c) {
  return c->text ? DTYPE_NONE : c->values.type;
}

/* ---- the pass ---- */

static stow_status begin_columns(pass *p, const csv *c, const budget *b) {
  p->count = c->columns;
  uint64_t each = b->bytes / 8 / p->count / sizeof(double);
  p->run_max = each < RUN_LEAST ? RUN_LEAST : each > RUN_MOST ? RUN_MOST : (size_t)each;
  uint64_t needed = p->count * (sizeof(column) + sizeof(column_facts) + p->run_max * 8);
  if (needed > b->bytes / 2)
    return stow_fail(STOW_ERR_BUDGET,
                     "%s: %zu columns need %" PRIu64 " KiB of memory to be told apart; give more "
                     "with --memory",
                     c->in.name, p->count, 2 * needed >> 10);
  /* An interned text costs its letters twice while its table grows, and 14 bytes of tables. */
  p->distinct_max = b->bytes / 4 / p->count / 4;
  p->columns = calloc(p->count, sizeof *p->columns);
  p->runs = malloc(p->count * p->run_max * sizeof *p->runs);
  if (p->columns == NULL || p->runs == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory for %zu columns", c->in.name,
                     p->count);
  for (size_t i = 0; i < p->count; i++) {
    column *one = &p->columns[i];
    one->run = p->runs + i * p->run_max;
    one->least = INT64_MAX;
    one->most = INT64_MIN;
    STOW_TRY(scan_begin(&one->floats, DTYPE_F64));
  }
  return STOW_OK;
}

static stow_status name_columns(file_facts *f, const csv *c) {
  f->columns = calloc(c->columns, sizeof *f->columns);
  if (f->columns == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", c->in.name);
  for (; f->column_count < c->columns; f->column_count++) {
    char number[24];
    const csv_field *field = &c->fields[f->column_count];
    snprintf(number, sizeof number, "%zu", f->column_count);
    char *name =
        f->has_header && field->length > 0 ? strndup(field->text, field->length) : strdup(number);
    if (name == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", c->in.name);
    f->columns[f->column_count].name = name;
  }
  return STOW_OK;
}

static stow_status read_rows(pass *p, csv *c, bool first_is_data, const budget *b,
                             uint64_t file_bytes) {
  bool more = true;
  for (bool have = first_is_data; more; have = false) {
    if (!have) STOW_TRY(csv_next(c, &more));
    if (!more) break;
    for (size_t i = 0; i < p->count; i++) add_field(p, &p->columns[i], &c->fields[i], c->line);
    if (++p->rows % TELL_ROWS == 0) STOW_TRY(budget_tell(b, c->in.raw_bytes, file_bytes));
  }
  return STOW_OK;
}

stow_status table_scan(file_facts *f, csv *c, table_header header, const budget *b) {
  pass p = {0};
  bool more;
  STOW_TRY(csv_next(c, &more));
  if (!more) return stow_fail(STOW_ERR_FORMAT, "%s: the file is empty", c->in.name);
  f->table = true;
  f->format = c->delimiter == '\t' ? "tsv" : "csv";
  f->has_header = header == HEADER_YES || (header == HEADER_AUTO && csv_looks_like_header(c));
  stow_status status = name_columns(f, c);
  if (status == STOW_OK) status = begin_columns(&p, c, b);
  if (status == STOW_OK) status = read_rows(&p, c, !f->has_header, b, f->file_bytes);
  f->rows = p.rows;
  for (size_t i = 0; i < p.count && p.columns != NULL; i++) {
    if (status == STOW_OK) {
      conclude(&f->columns[i], &p.columns[i], p.rows);
      f->bytes += f->columns[i].bytes;
      f->bytes_after += f->columns[i].bytes_after;
    }
    intern_free(&p.columns[i].distinct);
  }
  free(p.columns);
  free(p.runs);
  return status;
}

stow_status table_inspect(file_facts *f, const char *path, table_header header, const budget *b) {
  csv c;
  STOW_TRY(csv_open(&c, path, table_row_max(b)));
  stow_status status = table_scan(f, &c, header, b);
  csv_close(&c);
  return status;
}

stow_status table_skip_header(csv *c, const file_facts *f) {
  bool more;
  return f->has_header ? csv_next(c, &more) : STOW_OK;
}
