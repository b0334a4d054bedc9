/* Table's parts, shared by table*.c alone: the pass and its windows. */
#ifndef DATA_TABLE_PARTS_H
#define DATA_TABLE_PARTS_H

#include <pthread.h>

#include "data/table.h"

/* One thread's window and what stands in it. */
typedef struct table_window {
  table_part part;
  uint8_t *bytes; /* the window's memory, INPUT_SLACK behind it */
  size_t capacity;
  const uint8_t *first; /* of its rows */
  bool large;           /* has more memory than a window of its own would be given */
  csv rows;             /* over the window */
  uint64_t ticket, lines_before, raw_bytes;
  uint64_t stream_end; /* where the next one begins in the stream */
  csv_column *columns;
  csv_form *forms; /* what the columns were when it was cut */
  uint64_t *values;
  size_t value_capacity;
  tally *tallies; /* of this window alone */
  intern *words;  /* its texts; the pass's own where there is one thread */
  bool *raw;      /* columns whose texts are not numbered but kept in `texts` */
  buffer *texts;
  uint32_t *codes; /* of its texts in the pass's, while they are merged */
  size_t code_capacity;
  struct table_pass *pass;
} table_window;

typedef struct table_pass {
  csv *from;
  file_facts *facts;
  const budget *budget;
  const table_taker *to;
  table_state *state;
  unsigned threads;
  size_t values_max;    /* values of one window: what the budget allows */
  uint64_t words_max;   /* bytes of all distinct texts and their tables */
  uint64_t stop;        /* of the stream: no row that begins there or behind it */
  csv_form *forms;      /* what each column was last */
  pthread_mutex_t lock; /* guards everything below, `from`, and `state` */
  pthread_cond_t turned;
  uint64_t tickets, turn; /* windows handed out; merged */
  bool ended;             /* nothing is left to hand out */
  bool large;             /* a large window is out: one at a time, and nothing beside it */
  stow_status failed;     /* a member failed: the others stop */
  unsigned taking;        /* windows merged, but not yet taken */
  uint64_t place, lines;  /* of the stream: behind the last window merged */
} table_pass;

/* What is merged so far, kept and brought back. (table_save.c) */
stow_status table_save(table_pass *p);
stow_status table_restore(table_pass *p, bool *restored);

/* The next window of whole rows, with the lock held; *more false at the end. (table_window.c) */
stow_status table_window_next(table_window *w, bool *more);
/* The row the stream last read, as a window of its own. */
stow_status table_window_first(table_window *w);
/* Gives a large window's memory back. */
void table_window_shed(table_window *w);
/* Its values, without the lock. */
stow_status table_window_read(table_window *w);
/* Its tallies and texts into the pass's, with the lock held, in turn. */
stow_status table_window_merge(table_window *w);
/* Stops numbering the texts of a column where all of them take more than the budget allows. With
 * the lock held, after the window was handed on: its texts are still known then. */
void table_bound_words(table_pass *p);
stow_status table_window_make(table_window *w, table_pass *p);
void table_window_free(table_window *w);

#endif
