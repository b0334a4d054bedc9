/* Csv block's parts: the loop over rows, compiled once for each instruction set (csv_block_*.c). */
#ifndef FORMATS_CSV_BLOCK_PARTS_H
#define FORMATS_CSV_BLOCK_PARTS_H

#include "formats/csv_block.h"

/* Takes rows from c->in.at on, up to the first it does not understand: *odd then, and c->in.at on
 * it. */
typedef stow_status (*csv_rows)(csv_block *b, csv *c, bool *odd);

stow_status csv_rows_portable(csv_block *b, csv *c, bool *odd);
size_t csv_line_ends_portable(const char *at, size_t count);
#if defined(__x86_64__)
stow_status csv_rows_avx512(csv_block *b, csv *c, bool *odd);
size_t csv_line_ends_avx512(const char *at, size_t count);
#endif

#endif
