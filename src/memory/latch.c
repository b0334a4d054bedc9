/* Latch: waiting and waking (latch.h). */
#include "memory/latch.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void latch_init(latch *l, lock_rank rank) {
  atomic_init(&l->taken, 0);
  atomic_init(&l->sleepers, 0);
#ifdef STOWAGE_CHECKS
  lock_init(&l->shadow, rank);
#else
  (void)rank;
#endif
}

static void futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *most) {
  syscall(SYS_futex, (uint32_t *)(void *)word, op | FUTEX_PRIVATE_FLAG, value, most, NULL, 0);
}

void latch_wait_slow(latch *l) {
  const struct timespec most = {0, 1000000};
  for (int i = 0;; i++) {
    if (atomic_load_explicit(&l->taken, memory_order_relaxed) == 0 &&
        atomic_exchange_explicit(&l->taken, 1, memory_order_acquire) == 0)
      return;
    if (i < 128) { /* held for tens of nanoseconds as a rule: look a little before sleeping */
#if defined(__x86_64__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      __asm__ volatile("yield");
#endif
      continue;
    }
    atomic_fetch_add(&l->sleepers, 1);
    futex(&l->taken, FUTEX_WAIT, 1, &most);
    atomic_fetch_sub(&l->sleepers, 1);
  }
}

void latch_wake_slow(latch *l) {
  futex(&l->taken, FUTEX_WAKE, 1, NULL);
}
