/* Record: an open trace. record.c records events, drain.c is the thread that writes the file,
 * record_heap.c records the events of a heap.
 *
 * Guarded by: `lock` guards the ring's texts and `texts` (except its lock-free lookup); control
 * words and chunks follow the rules in ring.h; everything else is set before other threads see the
 * trace. */
#ifndef RECORD_RECORD_H
#define RECORD_RECORD_H

#include <stowage/trace.h>

#include "base/lock.h"
#include "record/stackset.h"
#include "trace/ring.h"

typedef struct drain drain;

struct stow_trace {
  /* The serial of the open trace; 0 when closed. The kernel clears its page in a child of fork, so
   * a child records nothing even if pthread_atfork handlers did not run. */
  _Atomic uint64_t *alive;
  _Atomic bool recording; /* a file is written: sealed chunks wait for it */
  _Atomic uint32_t threads;
  _Atomic uint64_t sealed; /* approximate number of chunks that wait for the file */
  _Atomic bool stalled;    /* an event waited for the file without success, and the file has not
                            * advanced since */
  ring ring;
  lock lock; /* LOCK_TRACE */
  stackset texts;
  _Atomic bool has_file;     /* a file was requested */
  drain *drain;              /* created by the first trace of this slot that has a file, then
                              * kept */
  bool used;                 /* guarded by the registry lock: open, or closing */
  void (*mute_thread)(void); /* called first on the drain thread, so that it records nothing */
  uint64_t closed_at; /* guarded by the registry lock: serial of the last close. The slot closed
                       * longest ago is reused next, so a stale handle stays recognizable for a long
                       * time */
};

/* ---- drain.c ---- */

/* Creates the file and starts the thread. */
stow_status drain_start(stow_trace *t, const char *path);
/* Wakes the thread. Any thread may call it. */
void drain_wake(stow_trace *t);
/* Returns when everything recorded before the call is in the file. */
stow_status drain_flush(stow_trace *t);
/* Writes the remaining events and ends the thread and the file. Returns the error that stopped the
 * file, if any. */
stow_status drain_stop(stow_trace *t);
uint64_t drain_written(stow_trace *t);

#endif
