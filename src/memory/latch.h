/* Latch: a lane's lock. One atomic exchange to take it and none to give it back, since it is taken
 * twice in every alloc and free.
 *
 * The giver stores, then looks for sleepers without a fence between the two, so it may miss one
 * that is just going to sleep; a sleeper therefore wakes on its own after a millisecond and looks
 * again. Ranks are checked in debug builds like every lock's (base/lock.h). */
#ifndef MEMORY_LATCH_H
#define MEMORY_LATCH_H

#include "base/lock.h"

typedef struct latch {
  _Atomic uint32_t taken, sleepers;
#ifdef STOWAGE_CHECKS
  lock shadow; /* only its rank is used */
#endif
} latch;

void latch_init(latch *l, lock_rank rank);
void latch_wait_slow(latch *l);
void latch_wake_slow(latch *l);

static inline void latch_take(latch *l) {
#ifdef STOWAGE_CHECKS
  lock_check_take(&l->shadow);
#endif
  if (atomic_exchange_explicit(&l->taken, 1, memory_order_acquire) != 0) latch_wait_slow(l);
}

static inline void latch_give(latch *l) {
#ifdef STOWAGE_CHECKS
  lock_check_give(&l->shadow);
#endif
  atomic_store_explicit(&l->taken, 0, memory_order_release);
  if (atomic_load_explicit(&l->sleepers, memory_order_relaxed) != 0) latch_wake_slow(l);
}

#endif
