/* Table texts: reads the texts of one column back from a table's log, row by row.
 *
 * Called by shrink of tables to an npz. Memory: one window of values and texts, and the numbered
 * texts of the column if it was numbered at first. */
#ifndef DATA_TABLE_TEXTS_H
#define DATA_TABLE_TEXTS_H

#include "data/table_log.h"

typedef struct table_texts {
  table_log *log;
  size_t column;
  const intern *words;   /* the column's numbered texts; NULL: read back from the log */
  const uint32_t *codes; /* maps this rank's numbers to those of `words`; NULL: equal */
} table_texts;

/* Calls `take` for each row's text, in order. Stops at the first failure and returns it. */
stow_status table_texts_each(const table_texts *t,
                             stow_status (*take)(void *context, const char *text, size_t length),
                             void *context);

#endif
