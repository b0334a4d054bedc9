/* Shared by the two halves of prefetch: prefetch_take.c is the caller's side, prefetch_read.c the
 * readers'. One lock guards everything except the contents of slots and windows that are being
 * filled, which belong to the reader that claimed them. */
#ifndef DATA_PREFETCH_READ_H
#define DATA_PREFETCH_READ_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/uio.h>

#include "base/status.h"
#include "data/prefetch.h"
#include "data/shuffle.h"

typedef enum slot_state { SLOT_EMPTY, SLOT_FILLING, SLOT_READY } slot_state;

typedef struct slot {
  slot_state state;
  uint64_t filled;                    /* rows; of one that is being filled */
  void *data[STOW_BATCHES_FILES_MAX]; /* NULL: no buffer yet */
} slot;

typedef struct window {
  char *memory[STOW_BATCHES_FILES_MAX];
  char *rows[STOW_BATCHES_FILES_MAX]; /* in `memory`, with the same page alignment as in the file */
  uint32_t *permutation;
  uint64_t number;      /* which of the order's windows; UINT64_MAX: none */
  rank_order_window at; /* where it lies */
  uint64_t claimed;     /* positions from `at.first` up to here are read or being read */
  uint64_t loaded;      /* rows that are loaded */
  uint64_t unfilled;    /* rows still to be copied from it into batches */
  bool drawing, drawn;  /* its permutation */
} window;

/* A window that one reader reads and distributes, if the plan has them. */
typedef struct own_window {
  char *rows;           /* of one part that is not read straight into its batches */
  struct iovec *places; /* where each row goes, by position; base NULL: to no batch */
  uint32_t *permutation;
} own_window;

typedef struct reader {
  prefetch *owner;
  pthread_t thread;
  bool started, opened;
  rows parts[STOW_BATCHES_FILES_MAX];
  char *stage;  /* a group of small batches is read here in one go */
  void *bounce; /* for direct reads */
  own_window own;
} reader;

struct prefetch {
  const plan *plan;
  const rank_order *rank_order;
  disk_shuffle *disk; /* NULL: reads from the files */
  const origin *origins;
  buffer_pool *buffers;
  sequence order;
  uint64_t seed, epoch;
  pthread_mutex_t guard;
  pthread_cond_t work;  /* readers wait */
  pthread_cond_t ready; /* the caller waits */
  bool stop, paused;
  bool building, built;  /* the scratch file is being built; is built, or there is none */
  bool started;          /* all readers are started; used only by the caller */
  uint32_t busy;         /* readers running a task */
  bool waits;            /* the last read was not from the page cache */
  uint64_t taken, armed; /* batch numbers: taken <= armed */
  uint64_t claimed;      /* rows of the order: filled or being filled up to here */
  bool scarce;           /* no memory for more buffers */
  slot *slots;
  window windows[2];
  uint64_t next_window; /* the next window to read */
  stow_status failed;
  char message[STATUS_MESSAGE_MAX];
  reader *readers; /* the readers, plus one without a thread for the caller */
};

/* Returns the rows that the batches of the epoch take. */
uint64_t prefetch_rows(const prefetch *p);
/* Returns which of the order's windows holds the first row of that batch, and how many windows the
 * batches need. */
uint64_t prefetch_window_of(const prefetch *p, uint64_t batch);
uint64_t prefetch_window_count(const prefetch *p);
/* With the lock held: the rows of the window not yet claimed; and how many rows from `claimed` on
 * one task may copy into batches now. */
uint64_t prefetch_unfilled(const prefetch *p, const rank_order_window *w);
uint64_t prefetch_claimable(const prefetch *p);
/* Returns whether the caller reads everything itself: the file is cached, and there is only one
 * core. */
bool prefetch_alone(const prefetch *p);
/* Opens a reader's own files; batches opened the first reader's. */
stow_status prefetch_open_parts(prefetch *p, reader *r);
/* Runs one task; the lock is held before and after. Returns false if there is nothing to do. */
bool prefetch_run_task(prefetch *p, reader *r);
/* Runs a reader's thread; the argument is the reader. */
void *prefetch_read_ahead(void *argument);

#endif
