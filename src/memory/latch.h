/* Latch: a lane's lock, taken in every alloc and free.
 *
 * There are two ways to enter. Any thread can enter through `taken`: one atomic exchange to take
 * it, a store to release it. A thread that entered many times in a row becomes the favourite and
 * enters by a write to its own cell, without an atomic read-modify-write, which would be two thirds
 * of the cost of a hot alloc and free pair. The next other thread takes `taken`, ends the favour,
 * makes every running thread of the process pass a barrier (membarrier(2), about a microsecond),
 * and waits until the favourite's cell no longer names this latch:
 *
 *   favourite:  cell = latch;   (compiler order only)   favourite still me?  in : draw back
 *   the other:  favourite = none;   barrier on all;     cell names latch?    wait : in
 *
 * Only its own thread writes a cell, so a favourite that was stopped between its two steps does not
 * disturb a later one. If the kernel has no such barrier, there are no favourites.
 *
 * To release `taken`, a thread stores and then checks for sleepers without a fence in between, so
 * it can miss one that is about to sleep. A sleeper therefore wakes after a millisecond and checks
 * again. Ranks are checked in debug builds like every lock's (base/lock.h). */
#ifndef MEMORY_LATCH_H
#define MEMORY_LATCH_H

#include <stddef.h>

#include "base/lock.h"

typedef struct latch latch;

/* One per thread that was ever a favourite; reused when the thread ends, never freed. */
typedef struct latch_cell {
  _Atomic(const latch *) inside; /* the latch entered as a favourite; NULL: none */
  struct latch_cell *next;       /* next in the list of spare cells */
} __attribute__((aligned(64))) latch_cell;

struct latch {
  _Atomic(latch_cell *) favourite; /* written with `taken` held */
  _Atomic uint32_t taken, sleepers;
  /* Guarded by the latch. */
  latch_cell *last; /* the thread that entered last through `taken` */
  uint32_t turns;   /* how often it entered in a row */
  uint32_t needed;  /* how often it must enter in a row to become the favourite */
  uint64_t since_ns;
#ifdef STOWAGE_CHECKS
  lock shadow; /* only its rank is used */
#endif
};

/* Registers the barrier with the kernel, once, before the first latch. Can take 15 ms if the
 * process already has other threads. */
void latch_prepare(void);
void latch_init(latch *l, lock_rank rank);
void latch_acquire_slow(latch *l);
void latch_wake_slow(latch *l);

/* This thread's cell; a shared cell, never a favourite, until the thread has its own. (Not the
 * initial-exec model: the library can be loaded late, when the loader has little static space for
 * thread-local data.) */
extern _Thread_local latch_cell *latch_mine;

/* Enters as the favourite. Returns false if the calling thread is not the favourite. */
static inline bool latch_enter(latch *l) {
  latch_cell *mine = latch_mine;
  if (__builtin_expect(atomic_load_explicit(&l->favourite, memory_order_relaxed) != mine, 0) ||
      atomic_load_explicit(&mine->inside, memory_order_relaxed) != NULL)
    return false;
  atomic_store_explicit(&mine->inside, l, memory_order_release);
  atomic_signal_fence(memory_order_seq_cst);
  if (__builtin_expect(atomic_load_explicit(&l->favourite, memory_order_relaxed) != mine, 0)) {
    atomic_store_explicit(&mine->inside, NULL, memory_order_release);
    return false;
  }
#ifdef STOWAGE_CHECKS
  lock_check_acquire(&l->shadow);
#endif
  return true;
}

/* Leaves the latch after latch_enter. */
static inline void latch_leave(latch *l) {
#ifdef STOWAGE_CHECKS
  lock_check_release(&l->shadow);
#endif
  (void)l;
  atomic_store_explicit(&latch_mine->inside, NULL, memory_order_release);
}

static inline void latch_acquire(latch *l) {
  if (latch_enter(l)) return;
#ifdef STOWAGE_CHECKS
  lock_check_acquire(&l->shadow);
#endif
  latch_acquire_slow(l);
}

static inline void latch_release(latch *l) {
  if (atomic_load_explicit(&latch_mine->inside, memory_order_relaxed) == l) {
    latch_leave(l);
    return;
  }
#ifdef STOWAGE_CHECKS
  lock_check_release(&l->shadow);
#endif
  atomic_store_explicit(&l->taken, 0, memory_order_release);
  if (atomic_load_explicit(&l->sleepers, memory_order_relaxed) != 0) latch_wake_slow(l);
}

#endif
