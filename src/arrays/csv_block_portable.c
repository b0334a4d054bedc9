/* The loop of arrays/csv_block.inc for any machine. */
#define CSV_ROWS      csv_rows_portable
#define CSV_LINE_ENDS csv_line_ends_portable
#define CSV_LAST_ROW  csv_last_row_portable
#include "arrays/csv_block.inc"
