/* Table: a csv or tsv file as typed columns.
 *
 * A column is int64 (uint64 past it), float64, bool or text, by all of its values: integers with
 * missing values are float64 (NaN), anything with a word in it is text. Called by inspect, which
 * wants the types, and by shrink, which takes the values in the same pass.
 *
 * The file is cut into windows of whole rows, which the threads of the budget read side by side;
 * they are taken in order, so that the result does not depend on how many threads there were. */
#ifndef DATA_TABLE_H
#define DATA_TABLE_H

#include "arrays/csv_block.h"
#include "base/buffer.h"
#include "base/hash.h"
#include "data/inspect.h"
#include "data/tally.h"

/* The rows of one window. */
typedef struct table_part {
  uint64_t first_row;
  csv_block block; /* block.columns[i].values */
  /* Columns whose texts are not numbered, because there are too many distinct ones: their values
   * are the lengths of the texts, which stand one behind the other in texts[i]. */
  const bool *raw;
  const buffer *texts;
  uint64_t place; /* the taker's own */
} table_part;

/* A part of the stream: the rows that begin at bytes [first, stop) of it. */
typedef struct table_range {
  uint64_t first;   /* 0: the table's first row; otherwise a row begins there */
  uint64_t stop;    /* UINT64_MAX: its end */
  uint64_t reached; /* set: where the first row behind them begins */
} table_range;

/* The columns as far as they are known. */
typedef struct table_state {
  size_t count;
  tally *tallies;
  intern *words;  /* distinct texts; in shrink the code of a text is its number here */
  bool *too_many; /* not kept: more than the budget holds, or nobody wants them */
  uint64_t rows;
} table_state;

/* Who wants the values too. Either may be NULL. */
typedef struct table_taker {
  /* Called for the parts in the order of their rows, one at a time… */
  stow_status (*order)(void *context, table_part *part);
  /* …and then, perhaps beside others. */
  stow_status (*take)(void *context, table_part *part);
  void *context;
  const bool *text; /* columns that are text whatever they look like; NULL: none */
  void *state;      /* plain bytes of its own that a checkpoint keeps; NULL: none is kept */
  size_t state_bytes;
  /* Brings the texts back that it kept, and what else it needs, when the state is. NULL: it keeps
   * no texts, and a table with some is not resumed. */
  stow_status (*restore)(void *context, table_state *state);
  const bool *skip; /* columns nobody wants the values of; NULL: none */
  bool keeps_texts; /* takes texts of which there are more than the budget holds: table_part.raw */
  table_range *range; /* NULL: all rows */
} table_taker;

void table_state_free(table_state *s);

/* One pass over the open table; fills columns, rows and has_header of `f`. `file_bytes` is for the
 * progress alone. */
stow_status table_scan(file_facts *f, csv *c, table_header header, const budget *b);
/* The same, handing the values to `to`; what the columns were is left in *state for its words (the
 * caller frees it, after a failure too). */
stow_status table_read(file_facts *f, csv *c, table_header header, const budget *b,
                       const table_taker *to, table_state *state);
/* What the columns are, once all is read: table_read's last step where it read all rows. */
void table_conclude(file_facts *f, const table_state *s);
/* Names the columns from the open table's first rows; fills columns and has_header of `f`. */
stow_status table_look(file_facts *f, csv *c, table_header header);
/* table_scan for a file. A column with numbers before its first text is read a second time, as
 * text, so that the size after is the one shrink writes. */
stow_status table_inspect(file_facts *f, const char *path, table_header header, const budget *b);

/* Bytes that distinct texts and their tables take, twice while they move to a larger place; and how
 * many they may take. */
uint64_t table_words_bytes(const table_state *s);
uint64_t table_words_max(const budget *b);
/* Bytes a row of the table may have under such a budget. */
size_t table_row_max(const budget *b);

/* The type of a column's values in NumPy's words; DTYPE_NONE for text. */
dtype table_column_type(const column_facts *c);

#endif
