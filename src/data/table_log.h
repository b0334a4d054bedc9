/* Table log: the values of a table as they were read, window after window, in a scratch, and how to
 * find each column's again.
 *
 * A record for each window: how many rows, the form of each column's values, the texts that came
 * with it for the first time, the values, column after column, and the texts of columns that have
 * too many distinct ones to number (CSV_LENGTHS). So the file says all there is to
 * know of the windows before some byte: what a job that was stopped had read is read back from it.
 * Called by shrink of tables to an npz. */
#ifndef DATA_TABLE_LOG_H
#define DATA_TABLE_LOG_H

#include "data/scratch.h"
#include "data/table.h"

/* One window's values in the scratch. */
typedef struct table_log_run {
  uint64_t place, rows;
  uint64_t *text_bytes; /* of each column's raw texts, behind the values; NULL: there are none */
} table_log_run;

/* From which window on a column's values are of which form. */
typedef struct table_log_change {
  uint64_t run;
  csv_form form;
} table_log_change;

typedef struct table_log_column {
  table_log_change *changes;
  size_t count, capacity;
  uint32_t texts; /* of its distinct texts, those in the log */
} table_log_column;

typedef struct table_log {
  scratch file;     /* -1: nothing is kept */
  const char *name; /* of the table, for messages */
  const bool *skip; /* columns whose values are not kept; NULL: none. The caller's. */
  uint64_t end;     /* of the records */
  table_log_run *runs;
  size_t run_count, run_capacity;
  size_t rows_most; /* of a window */
  table_log_column *columns;
  size_t count;
  size_t at_run, at_column, at_change; /* where it was last read: the next is near */
} table_log;

void table_log_begin(table_log *l, const char *name);
void table_log_end(table_log *l);
/* As if nothing had been read. */
void table_log_forget(table_log *l);

/* The two halves of taking a part, as table_taker has them. */
stow_status table_log_order(table_log *l, table_part *part, const table_state *state);
stow_status table_log_take(const table_log *l, const table_part *part);

/* The values of one column in one window, and what they are. */
stow_status table_log_read(table_log *l, size_t run, size_t column, uint64_t *values,
                           csv_form *form);

/* The texts of one column in one window whose values are CSV_LENGTHS: as many bytes as those say.
 */
stow_status table_log_read_texts(const table_log *l, size_t run, size_t column, char *to);
/* The numbered texts of a column whose later windows are CSV_LENGTHS. The caller frees them. */
stow_status table_log_words(table_log *l, size_t column, intern *words);

/* What stands before `end`, which was brought back: the runs, and the texts into the state. */
stow_status table_log_restore(table_log *l, table_state *state);

#endif
