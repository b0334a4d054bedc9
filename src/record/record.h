/* Record: an open trace inside. record.c holds the road of an event, drain.c the thread that writes
 * the file; record_heap.c feeds a heap's events in.
 *
 * Guarded by: `lock` guards ring texts and `texts` (but for its lock-free find); the control words
 * and chunks go by the rules in ring.h; the rest is set before the trace is seen by others. */
#ifndef RECORD_RECORD_H
#define RECORD_RECORD_H

#include <stowage/trace.h>

#include "base/lock.h"
#include "record/stackset.h"
#include "trace/ring.h"

typedef struct drain drain;

struct stow_trace {
  /* The serial of the open trace, 0 when closed. It stands in a page that the kernel empties in a
   * child of fork, so that a child writes nothing even if it was made past pthread_atfork. */
  _Atomic uint64_t *alive;
  _Atomic bool recording; /* sealed chunks wait for the file */
  _Atomic uint32_t threads;
  _Atomic uint64_t sealed; /* chunks that wait for the file, about */
  _Atomic bool stalled;    /* an event waited for the file in vain, and it has not moved since */
  ring ring;
  lock lock; /* LOCK_TRACE */
  stackset texts;
  _Atomic bool has_file;     /* a file was asked for */
  drain *drain;              /* made at the first trace of this slot that has a file, kept */
  bool used;                 /* registry lock: open, or closing */
  void (*mute_thread)(void); /* called first on drain's thread: it records nothing */
  uint64_t closed_at; /* registry lock: serial of the closing; the slot closed longest ago is used
                         next, so that a stale handle is told as such for long */
};

/* ---- drain.c ---- */

/* Makes the file and starts its thread. */
stow_status drain_start(stow_trace *t, const char *path);
/* Asks the thread to look now. From any thread. */
void drain_wake(stow_trace *t);
/* Everything recorded before the call is in the file when it returns. */
stow_status drain_flush(stow_trace *t);
/* Writes the rest and ends thread and file. The reason it was switched off, if it
 * was. */
stow_status drain_stop(stow_trace *t);
uint64_t drain_written(stow_trace *t);

#endif
