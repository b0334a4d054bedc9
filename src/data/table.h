/* Table: a csv or tsv file as typed columns.
 *
 * A column is int64 (uint64 past it), float64, bool or text, by all of its values: integers with
 * missing values are float64 (NaN), anything with a word in it is text. Called by inspect and by
 * shrink, which both need the types before a second look. */
#ifndef DATA_TABLE_H
#define DATA_TABLE_H

#include "data/inspect.h"
#include "formats/csv.h"

/* One pass over the open table; fills columns, rows and has_header of `f`. `file_bytes` is for the
 * progress alone. Each column may keep a share of the budget for distinct text. */
stow_status table_scan(file_facts *f, csv *c, table_header header, const budget *b);
/* The same for a file. */
stow_status table_inspect(file_facts *f, const char *path, table_header header, const budget *b);

/* Passes over the header of a table just opened, where it has one: ready for the first row. */
stow_status table_skip_header(csv *c, const file_facts *f);

/* Bytes a row of the table may have under such a budget. */
size_t table_row_max(const budget *b);

/* The type of a column's values in NumPy's words; DTYPE_NONE for text. */
dtype table_column_type(const column_facts *c);

#endif
