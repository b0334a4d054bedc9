/* The loop of formats/csv_block.inc for x86-64 with AVX-512 VBMI2. */
#if defined(__x86_64__)
#define CSV_ROWS      csv_rows_avx512
#define CSV_LINE_ENDS csv_line_ends_avx512
#include "formats/csv_block.inc"
#endif
