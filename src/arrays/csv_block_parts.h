/* Csv block parts: the loop over rows, compiled once per instruction set (csv_block_*.c). */
#ifndef ARRAYS_CSV_BLOCK_PARTS_H
#define ARRAYS_CSV_BLOCK_PARTS_H

#include "arrays/csv_block.h"

/* Positions of 64 bytes past those wanted, plus the eight written too many. */
#define CSV_ENDS_MORE 72

/* Positions of the fields of some rows, relative to the first. */
typedef struct csv_batch {
  uint32_t *ends;    /* end of each field, row by row */
  uint32_t *start;   /* start of each row, and of the row after the last */
  uint32_t *lines;   /* line ends up to the end of each row */
  uint32_t *lengths; /* lengths of the fields, column by column, `most` apart */
  size_t rows;
  uint32_t all_lines; /* all line ends, including those of empty lines after the last row */
  size_t size, most;  /* rows of the next batch; upper bound */
} csv_batch;

/* Parses some rows from c->in.at on. If *odd, c->in.at points at a row the loop does not handle. */
typedef stow_status (*csv_rows)(csv_block *b, csv *c, csv_batch *f, bool *odd);

/* The loops of one instruction set. */
typedef struct csv_loops {
  const char *name;
  csv_rows rows;
  size_t (*line_ends)(const char *at, size_t count);
} csv_loops;

#define CSV_LOOPS_MAX 3
/* Lists the loops this machine supports, the widest last; returns their number. */
size_t csv_loops_here(const csv_loops *list[CSV_LOOPS_MAX]);
/* Runs csv_block_fill with the given loops. */
stow_status csv_block_fill_by(csv_block *b, csv *c, const csv_loops *by);

stow_status csv_rows_portable(csv_block *b, csv *c, csv_batch *f, bool *odd);
size_t csv_line_ends_portable(const char *at, size_t count);
#if defined(__x86_64__)
stow_status csv_rows_avx2(csv_block *b, csv *c, csv_batch *f, bool *odd);
size_t csv_line_ends_avx2(const char *at, size_t count);
stow_status csv_rows_avx512(csv_block *b, csv *c, csv_batch *f, bool *odd);
size_t csv_line_ends_avx512(const char *at, size_t count);
#endif

#endif
