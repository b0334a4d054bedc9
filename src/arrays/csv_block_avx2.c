/* The loop of arrays/csv_block.inc for x86-64 with AVX2 and BMI2 (Haswell, Zen and later). */
#if defined(__x86_64__)
#define CSV_ROWS      csv_rows_avx2
#define CSV_LINE_ENDS csv_line_ends_avx2
#define CSV_LAST_ROW  csv_last_row_avx2
#include "arrays/csv_block.inc"
#endif
