/* The loop of arrays/csv_block.inc for x86-64 with AVX-512 (F, BW, CD, DQ, VL: Skylake and later).
 */
#if defined(__x86_64__)
#define CSV_ROWS      csv_rows_avx512
#define CSV_LINE_ENDS csv_line_ends_avx512
#define CSV_LAST_ROW  csv_last_row_avx512
#include "arrays/csv_block.inc"
#endif
