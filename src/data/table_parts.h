/* Table's parts, shared only by table*.c: the pass and its windows. */
#ifndef DATA_TABLE_PARTS_H
#define DATA_TABLE_PARTS_H

#include <pthread.h>

#include "data/table.h"

/* With several threads, each has two windows: it reads the next one while the previous one waits
 * for its turn. */
#define TABLE_WINDOWS 2

/* Texts of a column that the pass's dictionary did not have when a window was read, in the order of
 * its rows. Some may be equal. */
typedef struct table_news {
  buffer bytes;
  uint32_t *ends; /* of each text in `bytes`; after merging, its number in the dictionary */
  size_t count, capacity;
} table_news;

/* One thread's window and its contents. */
typedef struct table_window {
  table_part part;
  uint8_t *bytes; /* the window's memory, followed by INPUT_SLACK */
  size_t capacity;
  const uint8_t *first; /* start of its rows */
  bool large;           /* has more memory than a normal window */
  csv rows;             /* over the window */
  uint64_t absent;      /* fields that its short rows lack */
  uint64_t ticket, lines_before, raw_bytes;
  uint64_t stream_end; /* start of the next window in the stream */
  csv_column *columns;
  csv_form *forms; /* forms of the columns when the window was taken */
  bool *no_times;  /* columns in which no times are looked for any more */
  uint64_t *values;
  size_t value_capacity;
  column_stats *stats; /* for this window only */
  table_news *news;    /* with several threads: texts that the pass did not have */
  bool *raw;           /* columns whose texts are not numbered, but kept in `texts` */
  bool *ignored;       /* columns whose texts are not needed */
  bool *shared;        /* columns with codes of the pass's dictionary */
  buffer *texts;
  bool *numbered;     /* columns whose `news` have numbers of the pass's dictionary */
  stow_status status; /* of reading it */
  struct table_pass *pass;
} table_window;

typedef struct table_pass {
  csv *from;
  file_facts *facts;
  const budget *budget;
  const table_taker *to;
  table_state *state;
  unsigned threads;
  unsigned windows;     /* of each thread: at most TABLE_WINDOWS */
  size_t values_max;    /* values per window that the budget allows */
  uint64_t words_max;   /* bytes of all distinct texts and their tables */
  uint64_t stop;        /* end of the range: no row at or after it is read */
  csv_form *forms;      /* the last known form of each column */
  bool *padded;         /* columns in which "007" is a number */
  pthread_mutex_t lock; /* guards everything below, `from`, and `state` */
  pthread_cond_t turned;
  uint64_t tickets, turn; /* windows taken; merged */
  bool ended;             /* nothing is left to take */
  bool large;             /* a large window is in use: one at a time, and no other window with it */
  stow_status failed;     /* a thread failed: the others stop */
  unsigned taking;        /* windows merged, but not yet taken */
  /* With several threads: also guards the memory of the texts, which windows look up while they are
   * parsed. Texts are added with `lock` alone. Taken after `lock`. */
  pthread_rwlock_t words_lock;
  uint64_t place, lines; /* of the stream: after the last merged window */
} table_pass;

/* Saves and restores what is merged so far. (table_save.c) */
stow_status table_save(table_pass *p);
stow_status table_restore(table_pass *p, bool *restored);

/* Takes the next window of whole rows, with the lock held; *more is false at the end.
 * (table_window.c) */
stow_status table_window_next(table_window *w, bool *more);
/* Makes the last row read a separate window. */
stow_status table_window_first(table_window *w);
/* Frees a large window's memory. */
void table_window_shed(table_window *w);
/* Parses its values, without the lock. */
stow_status table_window_read(table_window *w);
/* Merges its stats and texts into the pass's, with the lock held, in turn. */
stow_status table_window_merge(table_window *w);
/* Replaces its own text numbers by the pass's, after it was merged, without the lock. */
void table_window_renumber(table_window *w);
/* Stops numbering a column's texts if all texts exceed the budget. With the lock held, after the
 * window was passed on: its texts are still known then. */
void table_bound_words(table_pass *p);
stow_status table_window_make(table_window *w, table_pass *p);
void table_window_free(table_window *w);

#endif
