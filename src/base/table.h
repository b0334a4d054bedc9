/* Table: cells in aligned columns, as text for a terminal or a file.
 *
 *   table t = TABLE_INIT(3, 1u << 1 | 1u << 2);            three columns, the last two to the right
 *   table_cell(&t, "tier"); table_cell(&t, "used"); …       row by row; the first row is the header
 *   table_write(&t, &out, 2, bold);                         two spaces before each line
 *
 * Used by the verbs and by every text report. Cells are UTF-8; a column is as wide as its widest
 * cell, in characters. Errors appear only in table_write.
 *
 * After table_fit no line is wider than the screen: the widest column of text is wrapped inside its
 * column, and if that is not enough, columns of numbers are left out from the right and named below
 * the table. */
#ifndef BASE_TABLE_H
#define BASE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

#define TABLE_COLUMNS_MAX 16

typedef enum table_style { TABLE_PLAIN, TABLE_GOOD, TABLE_BAD, TABLE_STYLES } table_style;

typedef struct table {
  buffer cells;  /* each cell's text and a '\0', in the order given */
  buffer styles; /* a table_style for each cell, as far as any was set */
  size_t columns, count;
  uint32_t right; /* bit i: column i is aligned to the right (numbers) */
  size_t width[TABLE_COLUMNS_MAX];
} table;

#define TABLE_INIT(n, right_mask)                                                                  \
  ((table){.cells = BUFFER_INIT, .styles = BUFFER_INIT, .columns = (n), .right = (right_mask)})

void table_cell(table *t, const char *text);
void table_printf(table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds a cell with a size for people ("1.5 GiB"). */
void table_size(table *t, uint64_t bytes);
/* Colours the cell added last, where colours are shown: green for what fits, red for what fails. */
void table_color(table *t, table_style style);
/* Sets the width of the screen for all tables of this process; 0, the default: no limit. Called
 * once, by the command. */
void table_fit(size_t width);
/* Appends the lines to `out` and frees the table. Fills an incomplete last row with empty cells.
 * Errors are in out->status. */
void table_write(table *t, buffer *out, int indent, bool bold_header);

#endif
