/* Shared by the two halves of prefetch: prefetch_take.c is the caller's side, prefetch_read.c the
 * readers'. One lock guards everything except the contents of slots and windows that are being
 * filled, which belong to the reader that claimed them. */
#ifndef DATA_PREFETCH_READ_H
#define DATA_PREFETCH_READ_H

#include <pthread.h>
#include <stdbool.h>

#include "base/status.h"
#include "data/prefetch.h"
#include "data/shuffle.h"

typedef enum slot_state { SLOT_EMPTY, SLOT_FILLING, SLOT_READY } slot_state;

typedef struct slot {
  slot_state state;
  void *data[STOW_BATCHES_FILES_MAX]; /* NULL: no buffer yet */
} slot;

typedef struct window {
  char *rows[STOW_BATCHES_FILES_MAX];
  uint32_t *permutation;
  uint64_t number;     /* number of the rank's window; UINT64_MAX: none */
  uint64_t first, end; /* places */
  uint64_t claimed;    /* positions from `first` up to here are read or being read */
  uint64_t loaded;     /* rows that are loaded */
  uint64_t unfilled;   /* batches still to be filled from it */
  bool drawing, drawn; /* its permutation */
} window;

typedef struct reader {
  prefetch *owner;
  pthread_t thread;
  bool started, opened;
  rows parts[STOW_BATCHES_FILES_MAX];
  char *stage;  /* a group of small batches is read here in one go */
  void *bounce; /* for direct reads */
} reader;

struct prefetch {
  const plan *plan;
  const origin *origins;
  buffer_pool *buffers;
  sequence order;
  uint64_t seed, epoch;
  pthread_mutex_t guard;
  pthread_cond_t work;  /* readers wait */
  pthread_cond_t ready; /* the caller waits */
  bool stop, paused;
  bool started;                   /* all readers are started; used only by the caller */
  uint32_t busy;                  /* readers running a task */
  bool waits;                     /* the last read was not from the page cache */
  uint64_t taken, claimed, armed; /* batch numbers: taken <= claimed <= armed */
  bool scarce;                    /* no memory for more buffers */
  slot *slots;
  window windows[2];
  uint64_t next_window; /* the next window to read */
  stow_status failed;
  char message[STATUS_MESSAGE_MAX];
  reader *readers; /* the readers, plus one without a thread for the caller */
};

/* Returns which of the rank's windows holds that batch, and how many there are. */
uint64_t prefetch_window_of(const prefetch *p, uint64_t batch);
uint64_t prefetch_window_count(const prefetch *p);
/* Return the batches of the window that are not yet claimed, and how many from `claimed` on one
 * task may fill now. The lock is held. */
uint64_t prefetch_unfilled(const prefetch *p, uint64_t number);
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
