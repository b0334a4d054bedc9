/* Latch: favourites, waiting and waking (latch.h). */
#include "memory/latch.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

/* How many entries in a row make a thread the favourite. Ending a favour costs a system call, so it
 * must first save some exchanges; the threshold grows each time a favour ends early. */
#define TURNS_MIN 64u
#define TURNS_MAX (1u << 16)
#define SOON_NS   1000000u

static latch_cell shared_cell; /* never a favourite, never inside */
_Thread_local latch_cell *latch_mine = &shared_cell;

static bool barrier_here;
static pthread_key_t cell_key;
static lock cells_lock = LOCK_INIT(LOCK_CELLS);
static latch_cell *spare_cells; /* guarded by cells_lock */

static void cell_back(void *cell) {
  latch_cell *c = cell;
  latch_mine = &shared_cell;
  lock_acquire(&cells_lock);
  c->next = spare_cells;
  spare_cells = c;
  lock_release(&cells_lock);
}

static void prepare(void) {
  long known = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
  if (known < 0 || !(known & MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return;
  if (pthread_key_create(&cell_key, cell_back) != 0) return;
  barrier_here = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

void latch_prepare(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, prepare);
}

/* Threads that outlive an unloaded library must not call into it. */
__attribute__((destructor)) static void unload(void) {
  if (barrier_here) pthread_key_delete(cell_key);
}

void latch_init(latch *l, lock_rank rank) {
  memset(l, 0, sizeof *l);
  l->needed = TURNS_MIN;
#ifdef STOWAGE_CHECKS
  lock_init(&l->shadow, rank);
#else
  (void)rank;
#endif
}

/* ---- taking by exchange ---- */

static void futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *most) {
  syscall(SYS_futex, (uint32_t *)(void *)word, op | FUTEX_PRIVATE_FLAG, value, most, NULL, 0);
}

static inline void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* A latch is usually held for tens of nanoseconds: spin a little before sleeping. */
#define LOOKS 128

static void wait_taken(latch *l) {
  const struct timespec most = {0, 1000000};
  for (int i = 0;; i++) {
    if (atomic_load_explicit(&l->taken, memory_order_relaxed) == 0 &&
        atomic_exchange_explicit(&l->taken, 1, memory_order_acquire) == 0)
      return;
    if (i < LOOKS) {
      relax();
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

/* ---- favour; `taken` held ---- */

static void withdraw(latch *l, latch_cell *from) {
  atomic_store_explicit(&l->favourite, NULL, memory_order_relaxed);
  syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  for (int i = 0; atomic_load_explicit(&from->inside, memory_order_acquire) == l; i++) {
    if (i < LOOKS)
      relax();
    else
      nanosleep(&(struct timespec){0, 50000}, NULL); /* the favourite inside waits for the device */
  }
  if (clock_ns() - l->since_ns >= SOON_NS)
    l->needed = TURNS_MIN;
  else if (l->needed < TURNS_MAX)
    l->needed *= 2;
  l->last = NULL;
  l->turns = 0;
}

/* Returns a cell for the calling thread; `shared_cell` if there is none. */
static latch_cell *cell_new(void) {
  lock_acquire(&cells_lock);
  latch_cell *c = spare_cells;
  if (c) spare_cells = c->next;
  lock_release(&cells_lock);
  if (!c && (c = aligned_alloc(64, sizeof *c))) memset(c, 0, sizeof *c);
  if (!c) return &shared_cell;
  if (pthread_setspecific(cell_key, c) != 0) {
    cell_back(c);
    return &shared_cell;
  }
  return latch_mine = c;
}

static void count_turn(latch *l) {
  latch_cell *mine = latch_mine;
  if (mine == &shared_cell && (mine = cell_new()) == &shared_cell) return;
  if (l->last != mine) {
    l->last = mine;
    l->turns = 0;
  }
  if (++l->turns < l->needed) return;
  l->turns = 0;
  l->since_ns = clock_ns();
  atomic_store_explicit(&l->favourite, mine, memory_order_relaxed);
}

void latch_acquire_slow(latch *l) {
  if (atomic_exchange_explicit(&l->taken, 1, memory_order_acquire) != 0) wait_taken(l);
  if (!barrier_here) return;
  latch_cell *favourite = atomic_load_explicit(&l->favourite, memory_order_relaxed);
  if (favourite == NULL)
    count_turn(l);
  else if (favourite != latch_mine)
    withdraw(l, favourite);
}
