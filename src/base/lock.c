/* Lock: the slow paths, and the rank check of debug builds. */
#include "base/lock.h"

#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

void lock_init(lock *l, lock_rank rank) {
  atomic_init(&l->state, 0);
  l->rank = (uint32_t)rank;
}

static void futex(_Atomic uint32_t *word, int op, uint32_t value) {
  syscall(SYS_futex, (uint32_t *)(void *)word, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

void lock_wait_slow(lock *l) {
  /* Locks are held for tens of nanoseconds: spin briefly before sleeping. */
  for (int i = 0; i < 64; i++) {
    uint32_t free_state = 0;
    if (atomic_compare_exchange_weak_explicit(&l->state, &free_state, 1, memory_order_acquire,
                                              memory_order_relaxed))
      return;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
  }
  while (atomic_exchange_explicit(&l->state, 2, memory_order_acquire) != 0)
    futex(&l->state, FUTEX_WAIT, 2);
}

void lock_wake_slow(lock *l) {
  futex(&l->state, FUTEX_WAKE, 1);
}

/* ---- rank check: the ranks this thread holds, in the order taken ---- */

#define HELD_MAX 16
static _Thread_local uint32_t held[HELD_MAX];
static _Thread_local int held_count;

void lock_check_acquire(const lock *l) {
  uint32_t top = held_count > 0 ? held[held_count - 1] : 0;
  if (l->rank <= top || held_count == HELD_MAX) {
    fprintf(stderr, "stowage: lock order violated: rank %u taken while rank %u is held\n", l->rank,
            top);
    abort();
  }
  held[held_count++] = l->rank;
}

bool lock_held(const lock *l) {
  bool mine = false;
  for (int i = 0; i < held_count; i++) mine = mine || held[i] == l->rank;
  return mine && atomic_load_explicit(&l->state, memory_order_relaxed) != 0;
}

void lock_check_release(const lock *l) {
  for (int i = held_count - 1; i >= 0; i--) {
    if (held[i] != l->rank) continue;
    for (; i + 1 < held_count; i++) held[i] = held[i + 1];
    held_count--;
    return;
  }
  fprintf(stderr, "stowage: lock of rank %u released but not held\n", l->rank);
  abort();
}
