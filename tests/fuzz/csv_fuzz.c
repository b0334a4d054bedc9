/* Fuzzes the table reader and the types of its columns, and compares the row loop of every
 * instruction set with the plain one. */
#include <stdlib.h>
#include <string.h>

#include "arrays/csv_block_parts.h"
#include "data/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- blocks ---- */

enum { COLUMNS_MAX = 4 };

typedef struct outcome {
  csv_block b;
  csv_column columns[COLUMNS_MAX];
  uint64_t *values;
  size_t value_count;
  uint64_t lines, odd_rows;
  stow_status status;
} outcome;

static uint64_t code(size_t column, const char *text, size_t length) {
  return column + length + (length > 0 ? (uint64_t)(unsigned char)text[0] << 32 : 0);
}

static stow_status codes(void *context, size_t column, const char *const *texts,
                         const uint32_t *lengths, size_t count, uint64_t *to) {
  (void)context;
  for (size_t i = 0; i < count; i++) to[i] = code(column, texts[i], lengths[i]);
  return STOW_OK;
}

static void store(csv_column *to, size_t row, const csv_field *f) {
  if (f->kind == CSV_UNSIGNED)
    csv_column_wide(to, row, f->value.u);
  else if (f->kind == CSV_FLOAT)
    csv_column_float(to, row, f->value.d);
  else
    csv_column_integer(to, row, f->kind == CSV_MISSING ? 0 : f->value.i);
}

static csv_word add_word(void *context, size_t column, size_t row, const char *text,
                         size_t length) {
  outcome *o = context;
  static const csv plain = {.delimiter = ','};
  csv_field f;
  csv_classify(&plain, &f, o->columns[column].padded, text, length);
  if (f.kind == CSV_TEXT) return CSV_WORD_TEXT;
  store(&o->columns[column], row, &f);
  return f.kind == CSV_MISSING ? CSV_WORD_MISSING : CSV_WORD_VALUE;
}

static stow_status add_row(void *context, csv *c) {
  outcome *o = context;
  o->odd_rows++;
  for (size_t i = 0; i < o->b.count; i++) {
    const csv_field *f = &c->fields[i];
    csv_column *to = &o->columns[i];
    if (to->form == CSV_CODES || f->kind == CSV_TEXT) {
      to->form = CSV_CODES;
      to->values[o->b.rows] = code(i, f->text, f->length);
    } else {
      store(to, o->b.rows, f);
    }
  }
  return STOW_OK;
}

static void read_block(outcome *o, const uint8_t *data, size_t size, size_t columns, csv_form form,
                       const csv_loops *by) {
  uint8_t *window = calloc(1, size + INPUT_SLACK);
  memcpy(window, data, size);
  csv c = {.delimiter = ',', .columns = columns, .row_max = size + 1, .fields_max = size + 2};
  c.in =
      (input){.window = window, .at = window, .end = window + size, .at_eof = true, .name = "fuzz"};
  size_t rows_max = by->line_ends((const char *)data, size) + 1;
  *o = (outcome){.value_count = rows_max * columns};
  o->values = calloc(o->value_count, sizeof *o->values);
  o->b = (csv_block){.columns = o->columns,
                     .count = columns,
                     .rows_max = rows_max,
                     .texts = codes,
                     .word = add_word,
                     .row = add_row,
                     .context = o};
  for (size_t i = 0; i < columns; i++)
    o->columns[i] = (csv_column){.values = o->values + i * rows_max, .form = form};
  o->status = csv_block_fill_by(&o->b, &c, by);
  o->lines = c.lines;
  free(c.fields);
  free(c.unescaped);
  free(window);
}

/* Compares two results. Bytes after the last whole row, and values of columns that became text, are
 * undefined. */
static void check_same(const outcome *a, const outcome *b) {
  if (a->status != b->status) abort();
  if (a->status != STOW_OK) return;
  if (a->b.rows != b->b.rows || a->lines != b->lines || a->odd_rows != b->odd_rows) abort();
  for (size_t i = 0; i < a->b.count; i++) {
    const csv_column *x = &a->columns[i], *y = &b->columns[i];
    if (x->form != y->form || x->numbers != y->numbers || x->fractions != y->fractions ||
        x->negative != y->negative || x->inexact != y->inexact || x->missing != y->missing ||
        x->text_bytes != y->text_bytes || x->longest != y->longest)
      abort();
    if (x->form != CSV_CODES && memcmp(x->values, y->values, a->b.rows * sizeof *x->values) != 0)
      abort();
  }
}

static void compare_sets(const uint8_t *data, size_t size) {
  const csv_loops *list[CSV_LOOPS_MAX];
  size_t count = csv_loops_here(list), columns = 1 + data[0] % COLUMNS_MAX;
  csv_form form = data[0] & 8 ? CSV_FLOATS : CSV_INTEGERS;
  outcome first, other;
  read_block(&first, data + 1, size - 1, columns, form, list[0]);
  for (size_t i = 1; i < count; i++) {
    read_block(&other, data + 1, size - 1, columns, form, list[i]);
    check_same(&first, &other);
    free(other.values);
  }
  free(first.values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  csv c;
  file_facts f = {0};
  budget b = {.bytes = BUDGET_LEAST};
  if (size > 0) compare_sets(data, size);
  /* Compressed input may expand to any length, which would take too long. */
  if (size > 2 && data[0] == 0x1f && data[1] == 0x8b) return 0;
  if (csv_open_memory(&c, data, size, "fuzz", table_row_max(&b), NULL) != STOW_OK) return 0;
  /* Two bytes of UTF-16 become up to three of UTF-8, and a last odd byte becomes U+FFFD. */
  bool wide = size > 1 && (memcmp(data, "\xff\xfe", 2) == 0 || memcmp(data, "\xfe\xff", 2) == 0);
  size_t text_max = wide ? size / 2 * 3 + 3 : size;
  if (table_scan(&f, &c, HEADER_AUTO, &b) == STOW_OK) {
    if (f.rows > size || f.column_count > size + 1) abort();
    for (size_t i = 0; i < f.column_count; i++)
      if (f.columns[i].text_bytes > text_max || f.columns[i].missing > f.rows) abort();
  }
  inspect_free(&f);
  csv_close(&c);
  return 0;
}
