/* Csv block: parses the rows of one window of a table into columns.
 *
 *   csv_block b = {…}; csv_block_fill(&b, &c);      c: a csv whose window holds only whole rows
 *
 * Called by the table reader in data/. The fast loop handles rows of plain numbers, empty fields,
 * and text in columns already known to be text: it finds the field ends of 64 bytes at once and
 * parses each number knowing its end. Every other row (quotes, words, another number of fields)
 * goes through csv_next and the caller's `row`, so both paths read a table the same way. */
#ifndef ARRAYS_CSV_BLOCK_H
#define ARRAYS_CSV_BLOCK_H

#include "arrays/csv.h"

typedef enum csv_form {
  CSV_INTEGERS, /* int64 */
  CSV_WIDES,    /* uint64: some are above INT64_MAX */
  CSV_FLOATS,   /* doubles; a missing value is NaN */
  CSV_CODES,    /* numbers of texts in the caller's dictionary */
  CSV_LENGTHS   /* lengths of texts stored elsewhere; only in a table's log */
} csv_form;

typedef struct csv_column {
  uint64_t *values; /* one per row of the block */
  csv_form form;    /* form of all values; may change from integers to floats while the block is
                     * filled */
  bool numbers, fractions;      /* seen in this block */
  bool padded;                  /* "007" is the number 7 here */
  bool negative;                /* a negative integer among uint64: no type holds both */
  bool inexact;                 /* an integer among floats that was rounded to the nearest double */
  uint64_t missing;             /* empty fields */
  uint64_t text_bytes, longest; /* bytes of all fields; of the longest */
  uint64_t shortest;            /* bytes of the shortest; UINT64_MAX before the first field */
} csv_column;

typedef struct csv_block {
  csv_column *columns;
  size_t count;
  size_t rows, rows_max;
  /* Returns the number of a text in a column of codes. */
  stow_status (*text)(void *context, size_t column, const char *text, size_t length,
                      uint64_t *code);
  /* Adds the row in c->fields as row b->rows. csv_block_fill counts it. */
  stow_status (*row)(void *context, csv *c);
  void *context;
} csv_block;

/* Adds all rows of the window. rows_max must be larger than the number of line ends. */
stow_status csv_block_fill(csv_block *b, csv *c);

/* Stores one value at row `row`; all earlier rows must be filled. For the caller's `row`. */
void csv_column_integer(csv_column *to, size_t row, int64_t value);
void csv_column_wide(csv_column *to, size_t row, uint64_t value);
void csv_column_float(csv_column *to, size_t row, double value);

/* Returns the number of line ends. */
size_t csv_line_ends(const char *at, size_t count);

#endif
