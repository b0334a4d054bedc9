/* Table: a csv or tsv file as typed columns.
 *
 * A column is int64 (uint64 above it), float64, bool or text, depending on all of its values:
 * integers with missing values are float64 (NaN), anything with a word in it is text. Called by
 * inspect, which needs the types, and by shrink, which takes the values in the same pass.
 *
 * The file is split into windows of whole rows, which the budget's threads read in parallel. They
 * are merged in order, so that the result does not depend on the number of threads. */
#ifndef DATA_TABLE_H
#define DATA_TABLE_H

#include "arrays/csv_block.h"
#include "base/buffer.h"
#include "base/hash.h"
#include "data/column_stats.h"
#include "data/inspect.h"

/* The rows of one window. */
typedef struct table_part {
  uint64_t first_row;
  csv_block block; /* block.columns[i].values */
  /* Columns whose texts are not numbered, because there are too many distinct ones: their values
   * are the lengths of the texts, which are concatenated in texts[i]. */
  const bool *raw;
  const buffer *texts;
  uint64_t place; /* for the taker's use */
} table_part;

/* A part of the stream: the rows that begin at bytes [first, stop). */
typedef struct table_range {
  uint64_t first;   /* 0: the table's first row; otherwise the start of a row */
  uint64_t stop;    /* UINT64_MAX: to the end */
  uint64_t reached; /* set: the start of the first row after them */
} table_range;

/* The columns, as far as they are known. */
typedef struct table_state {
  size_t count;
  column_stats *stats;
  intern *words;  /* distinct texts; in shrink the code of a text is its number here */
  bool *too_many; /* texts are not kept: more than the budget holds, or not needed */
  uint64_t rows;
} table_state;

/* Receives the values too. Either function may be NULL. */
typedef struct table_taker {
  /* Called for the parts in row order, one at a time. */
  stow_status (*order)(void *context, table_part *part);
  /* Called after `order`, possibly in parallel. */
  stow_status (*take)(void *context, table_part *part);
  void *context;
  const bool *text; /* columns that are always text; NULL: none */
  void *state;      /* plain bytes that are saved in checkpoints; NULL: nothing is saved */
  size_t state_bytes;
  /* Restores the kept texts, and anything else that is needed, after the state is restored. NULL:
   * no texts are kept, and a table with texts is not resumed. */
  stow_status (*restore)(void *context, table_state *state);
  const bool *skip;   /* columns whose values are not needed; NULL: none */
  bool keeps_texts;   /* accepts texts that exceed the budget: table_part.raw */
  table_range *range; /* NULL: all rows */
} table_taker;

void table_state_free(table_state *s);

/* Reads the open table once; fills columns, rows and has_header of `f`. `file_bytes` is only for
 * the progress. */
stow_status table_scan(file_facts *f, csv *c, table_header header, const budget *b);
/* Reads the table and passes the values to `to`. Leaves the columns in *state for its words (the
 * caller frees it, also after a failure). */
stow_status table_read(file_facts *f, csv *c, table_header header, const budget *b,
                       const table_taker *to, table_state *state);
/* Determines the columns' types after everything was read: table_read's last step if it read all
 * rows. */
void table_conclude(file_facts *f, const table_state *s);
/* Names the columns from the open table's first rows; fills columns and has_header of `f`. */
stow_status table_look(file_facts *f, csv *c, table_header header);
/* Does table_scan for a file. Reads a column with numbers before its first text a second time, as
 * text, so that the reported size is the one that shrink writes. */
stow_status table_inspect(file_facts *f, const char *path, table_header header, const budget *b);

/* Returns the bytes that distinct texts and their tables use, twice that while they grow; and how
 * many they may use. */
uint64_t table_words_bytes(const table_state *s);
uint64_t table_words_max(const budget *b);
/* Returns the maximum size of a table row under such a budget. */
size_t table_row_max(const budget *b);

/* Returns the type of a column's values; DTYPE_NONE for text. */
dtype table_column_type(const column_facts *c);

#endif
