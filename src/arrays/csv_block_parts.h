/* Csv block's parts: the loop over rows, compiled once for each instruction set (csv_block_*.c). */
#ifndef ARRAYS_CSV_BLOCK_PARTS_H
#define ARRAYS_CSV_BLOCK_PARTS_H

#include "arrays/csv_block.h"

#define CSV_ENDS_MORE 72 /* places of 64 letters behind those wanted, put eight at a time */

/* Where the fields of some rows are, from where the first begins. */
typedef struct csv_batch {
  uint32_t *ends;    /* of each field, row after row */
  uint32_t *start;   /* of each row, and of the one behind them */
  uint32_t *lines;   /* line ends up to the end of each row */
  uint32_t *lengths; /* of the fields, column after column, `most` apart */
  size_t rows;
  uint32_t
      all_lines; /* line ends of all of it, those of lines with nothing behind the last row too */
  size_t size, most; /* rows of the next batch; at most */
} csv_batch;

/* Takes some rows from c->in.at on. *odd: c->in.at stands on one it does not understand. */
typedef stow_status (*csv_rows)(csv_block *b, csv *c, csv_batch *f, bool *odd);

/* The loops of one instruction set. */
typedef struct csv_loops {
  const char *name;
  csv_rows rows;
  size_t (*line_ends)(const char *at, size_t count);
} csv_loops;

#define CSV_LOOPS_MAX 3
/* Those that this machine has, the widest last; gives how many. */
size_t csv_loops_here(const csv_loops *list[CSV_LOOPS_MAX]);
/* csv_block_fill by one of them. */
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
