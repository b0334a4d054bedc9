/* Table options: the format of a text table, from the caller's options (stowage/inspect.h) to those
 * of the reader. Called by the command and by the C API. */
#ifndef DATA_TABLE_OPTIONS_H
#define DATA_TABLE_OPTIONS_H

#include <stowage/inspect.h>

#include "arrays/csv.h"

typedef struct table_options {
  csv_options csv;
  char **words;    /* what csv.na points to */
  csv_rule *rules; /* what csv.rules points to, with their names */
} table_options;

/* Reads the caller's options, which may be NULL. STOW_ERR_INVALID names the option and its value.
 * The caller frees them, also after a failure. */
stow_status table_options_read(table_options *t, const stow_table_options *given);
void table_options_free(table_options *t);

/* Parses "1e-3" (of each value, also as "rel:1e-3") or "abs:0.01" (an amount). */
stow_status tolerance_parse(double *tolerance, bool *relative, const char *text);

#endif
