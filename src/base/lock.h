/* Lock: four bytes; one atomic exchange without contention, a futex with it.
 *
 * Every lock has a rank, and a thread takes locks only in increasing rank (the order is below).
 * Debug builds (STOWAGE_CHECKS) check this at every take and stop the program with both ranks: that
 * is our own mistake, never the caller's. Release builds do not check. */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The lock order. A thread that holds one takes only locks of a higher rank; equal ranks never
 * nest. */
typedef enum lock_rank {
  LOCK_REGISTRY = 10, /* lists of open heaps and sinks */
  LOCK_HEAP = 20,     /* a heap's shape: opening arenas, limits */
  LOCK_ARENA = 30,    /* one arena of a heap */
  LOCK_ORDER = 35,    /* spare events of a heap */
  LOCK_CELLS = 36,    /* spare cells of latches */
  LOCK_POOL = 40,     /* pages by tier */
  LOCK_PAGES = 45,    /* the shim's pages, held across the driver's page calls */
  LOCK_MARKS = 48,    /* the shim's marks of host copies */
  LOCK_TRACE = 50,    /* a recording being written */
  LOCK_DEVICE = 60,   /* inside a backend */
  LOCK_LOG = 70,      /* last: anything may log */
} lock_rank;

typedef struct lock {
  _Atomic uint32_t state; /* 0 free, 1 taken, 2 taken with waiters */
  uint32_t rank;          /* lock_rank */
} lock;

#define LOCK_INIT(r)                                                                               \
  { 0, (r) }

void lock_init(lock *l, lock_rank rank);
void lock_wait_slow(lock *l);
void lock_wake_slow(lock *l);
void lock_check_acquire(const lock *l);
void lock_check_release(const lock *l);
/* Returns whether the calling thread holds a lock of that rank and this one is held. For assertions
 * in debug builds only (base/assert.h): other builds do not know who holds a lock. */
bool lock_held(const lock *l);

static inline void lock_acquire(lock *l) {
#ifdef STOWAGE_CHECKS
  lock_check_acquire(l);
#endif
  uint32_t free_state = 0;
  if (!atomic_compare_exchange_strong_explicit(&l->state, &free_state, 1, memory_order_acquire,
                                               memory_order_relaxed))
    lock_wait_slow(l);
}

static inline bool lock_try(lock *l) {
  uint32_t free_state = 0;
  bool got = atomic_compare_exchange_strong_explicit(&l->state, &free_state, 1,
                                                     memory_order_acquire, memory_order_relaxed);
#ifdef STOWAGE_CHECKS
  if (got) lock_check_acquire(l);
#endif
  return got;
}

static inline void lock_release(lock *l) {
#ifdef STOWAGE_CHECKS
  lock_check_release(l);
#endif
  if (atomic_exchange_explicit(&l->state, 0, memory_order_release) == 2) lock_wake_slow(l);
}

#endif
