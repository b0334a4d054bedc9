/* Csv block: the rows of one window of a table, their values by columns.
 *
 *   csv_block b = {…}; csv_block_fill(&b, &c);      c: a csv whose window holds whole rows, and no
 * more
 *
 * Called by the reader of tables in data/. Rows of plain numbers, of nothing, and of text in
 * columns that are text already go by without a look back: the ends of 64 letters' fields are found
 * at once, and a number is read where its end is known. Any other row (quotes, words, another
 * number of fields) goes through csv_next and the caller's `row`, so there is one meaning of a
 * table. */
#ifndef ARRAYS_CSV_BLOCK_H
#define ARRAYS_CSV_BLOCK_H

#include "arrays/csv.h"

typedef enum csv_form {
  CSV_INTEGERS, /* int64 */
  CSV_WIDES,    /* uint64: some pass int64 */
  CSV_FLOATS,   /* doubles; nothing is NaN */
  CSV_CODES,    /* numbers of texts */
  CSV_LENGTHS   /* lengths of texts that stand elsewhere; only in a table's log */
} csv_form;

typedef struct csv_column {
  uint64_t *values; /* one for each row of the block */
  csv_form form; /* of all of them; what it was at the start may change from integers to floats */
  bool numbers, fractions; /* there are some */
  bool negative;           /* an integer below zero among uint64: no type holds both */
  bool inexact;     /* an integer among floats that no double holds: the nearest stands there */
  uint64_t missing; /* fields with nothing in them */
  uint64_t text_bytes, longest; /* letters of all fields; of the longest */
  uint64_t shortest;            /* letters of the shortest; UINT64_MAX before the first field */
} csv_column;

typedef struct csv_block {
  csv_column *columns;
  size_t count;
  size_t rows, rows_max;
  /* The number of a text in a column of codes. */
  stow_status (*text)(void *context, size_t column, const char *text, size_t length,
                      uint64_t *code);
  /* A row in c->fields that is the caller's to add, as row b->rows, which is counted for him. */
  stow_status (*row)(void *context, csv *c);
  void *context;
} csv_block;

/* Adds all rows of the window; rows_max must be more than its line ends. */
stow_status csv_block_fill(csv_block *b, csv *c);

/* One value at row `row`, the rows before it being there: for the caller's `row`. */
void csv_column_integer(csv_column *to, size_t row, int64_t value);
void csv_column_wide(csv_column *to, size_t row, uint64_t value);
void csv_column_float(csv_column *to, size_t row, double value);

/* How many line ends there are. */
size_t csv_line_ends(const char *at, size_t count);

#endif
