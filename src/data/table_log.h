/* Table log: the values of a table as they were read, window by window, in a scratch file, and how
 * to find each column's again.
 *
 * One record per window: the number of rows, the form of each column's values, the new texts, the
 * values column by column, and the texts of columns that have too many distinct ones to number
 * (CSV_LENGTHS). So the file fully describes the windows before any byte, and an interrupted job is
 * restored from it. Called by shrink of tables to an npz. */
#ifndef DATA_TABLE_LOG_H
#define DATA_TABLE_LOG_H

#include "data/scratch.h"
#include "data/table.h"

/* One window's values in the scratch. */
typedef struct table_log_run {
  uint64_t place, rows;
  uint64_t *text_bytes; /* size of each column's raw texts, after the values; NULL: none */
} table_log_run;

/* From which window on a column's values have another form. */
typedef struct table_log_change {
  uint64_t run;
  csv_form form;
} table_log_change;

typedef struct table_log_column {
  table_log_change *changes;
  size_t count, capacity;
  uint32_t texts; /* how many of its distinct texts are in the log */
} table_log_column;

typedef struct table_log {
  scratch file;     /* -1: nothing is kept */
  const char *name; /* name of the table, for messages */
  const bool *skip; /* columns whose values are not kept; NULL: none. Owned by the caller. */
  uint64_t end;     /* end of the records */
  buffer head;      /* of the record that is being written; keeps its memory */
  table_log_run *runs;
  size_t run_count, run_capacity;
  size_t rows_most; /* most rows in a window */
  table_log_column *columns;
  size_t count;
  size_t at_run, at_column, at_change; /* the last position read: the next is near */
} table_log;

void table_log_begin(table_log *l, const char *name);
void table_log_end(table_log *l);
/* Discards everything read. */
void table_log_forget(table_log *l);

/* Both halves of taking a part, for table_taker. */
stow_status table_log_order(table_log *l, table_part *part, const table_state *state);
stow_status table_log_take(const table_log *l, const table_part *part);

/* Reads the values of one column in one window, and their form. */
stow_status table_log_read(table_log *l, size_t run, size_t column, uint64_t *values,
                           csv_form *form);

/* Reads the texts of one column in one window whose values are CSV_LENGTHS; these give the number
 * of bytes. */
stow_status table_log_read_texts(const table_log *l, size_t run, size_t column, char *to);
/* Reads the numbered texts of a column whose later windows are CSV_LENGTHS. The caller frees
 * them. */
stow_status table_log_words(table_log *l, size_t column, intern *words);

/* Restores what is before `end`: the runs, and the texts into the state. */
stow_status table_log_restore(table_log *l, table_state *state);

#endif
