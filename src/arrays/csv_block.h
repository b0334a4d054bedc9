/* Csv block: parses the rows of one window of a table into columns.
 *
 *   csv_block b = {…}; csv_block_fill(&b, &c);      c: a csv whose window holds only whole rows
 *
 * Called by the table reader in data/. The fast loop handles rows of numbers, booleans, empty
 * fields, and text in columns already known to be text, quoted or not: it finds the field ends of
 * 64 bytes at once and parses each number knowing its end. It passes other words to the caller's
 * `word`. Every other row (a column's first text, unusual quotes, another number of fields) goes
 * through csv_next and the caller's `row`, so both paths read a table the same way. */
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
  bool bools;                   /* true or false seen in this block */
  bool whole;                   /* hint: most numbers among these floats have no point */
  bool negative;                /* a negative integer among uint64: no type holds both */
  bool inexact;                 /* an integer among floats that was rounded to the nearest double */
  uint64_t missing;             /* empty fields, and words for a missing value */
  uint64_t missing_words;       /* of these, the words that the fast loop met */
  uint64_t text_bytes, longest; /* bytes of all fields; of the longest */
  uint64_t shortest;            /* bytes of the shortest; UINT64_MAX before the first field */
} csv_column;

/* What a field was that the fast loop could not parse. */
typedef enum csv_word {
  CSV_WORD_TEXT,    /* nothing was stored: the row goes to `row` */
  CSV_WORD_VALUE,   /* stored */
  CSV_WORD_MISSING, /* stored as a missing value */
} csv_word;

typedef struct csv_block {
  csv_column *columns;
  size_t count;
  size_t rows, rows_max;
  /* Numbers the texts of a column of codes. They are valid until it returns. */
  stow_status (*texts)(void *context, size_t column, const char *const *texts,
                       const uint32_t *lengths, size_t count, uint64_t *codes);
  /* Stores at `row` a field that is neither a plain number, true or false, nor empty. NULL: such
   * rows go to `row`. */
  csv_word (*word)(void *context, size_t column, size_t row, const char *text, size_t length);
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

/* Returns the number of line ends, also of those in quotes. */
size_t csv_line_ends(const char *at, size_t count);
/* Returns the end of the last whole row from `at` on (after its '\n'), or NULL if there is none.
 * `at` is the start of a row; INPUT_SLACK bytes after `end` are readable. */
const char *csv_last_row(const csv *c, const char *at, const char *end);

#endif
