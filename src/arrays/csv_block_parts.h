/* Csv block parts: the loop over rows, compiled once per instruction set (csv_block_*.c). */
#ifndef ARRAYS_CSV_BLOCK_PARTS_H
#define ARRAYS_CSV_BLOCK_PARTS_H

#include "arrays/csv_block.h"

/* Positions of 64 bytes past those wanted, plus the eight written too many. */
#define CSV_ENDS_MORE 72

typedef struct csv_gap {
  uint32_t column, row;
} csv_gap;

/* Positions of the fields of some rows, relative to the first. */
typedef struct csv_batch {
  uint32_t *ends;    /* end of each field, row by row */
  uint32_t *start;   /* start of each row, and of the row after the last */
  uint32_t *lengths; /* lengths of the fields, column by column, `most` apart */
  size_t rows;
  uint32_t all_lines; /* all line ends, including those of empty lines after the last row */
  size_t size, most;  /* rows of the next batch; upper bound */
  bool quoted;        /* some fields are quoted */
  bool doubled;       /* some quotes are doubled */
  const char **texts; /* the fields of one column of codes */
  char *copy;         /* its fields that had doubled quotes, unescaped */
  size_t copy_used, copy_capacity;
  csv_gap *gaps; /* missing words of the batch: counted once it is known which rows are accepted */
  size_t gap_count;
} csv_batch;

/* Parses some rows from c->in.at on. If *odd, c->in.at points at a row the loop does not handle. */
typedef stow_status (*csv_rows)(csv_block *b, csv *c, csv_batch *f, bool *odd);

/* The loops of one instruction set. */
typedef struct csv_loops {
  const char *name;
  csv_rows rows;
  size_t (*line_ends)(const char *at, size_t count);
  /* Returns the end of the last whole row, or NULL. Stops early, and sets *odd, at quotes that it
   * does not handle. */
  const char *(*last_row)(const char *at, const char *end, char delimiter, bool *odd);
} csv_loops;

#define CSV_LOOPS_MAX 3
/* Lists the loops this machine supports, the widest last; returns their number. */
size_t csv_loops_here(const csv_loops *list[CSV_LOOPS_MAX]);
/* Runs csv_block_fill with the given loops. */
stow_status csv_block_fill_by(csv_block *b, csv *c, const csv_loops *by);
/* Runs csv_last_row with the given loops. */
const char *csv_last_row_by(const csv *c, const char *at, const char *end, const csv_loops *by);

stow_status csv_rows_portable(csv_block *b, csv *c, csv_batch *f, bool *odd);
size_t csv_line_ends_portable(const char *at, size_t count);
const char *csv_last_row_portable(const char *at, const char *end, char delimiter, bool *odd);
#if defined(__x86_64__)
stow_status csv_rows_avx2(csv_block *b, csv *c, csv_batch *f, bool *odd);
size_t csv_line_ends_avx2(const char *at, size_t count);
const char *csv_last_row_avx2(const char *at, const char *end, char delimiter, bool *odd);
stow_status csv_rows_avx512(csv_block *b, csv *c, csv_batch *f, bool *odd);
size_t csv_line_ends_avx512(const char *at, size_t count);
const char *csv_last_row_avx512(const char *at, const char *end, char delimiter, bool *odd);
#endif

#endif
