/* Gate: a count of calls inside, a word that closes it, and the numbers of calls in progress. */
#include "shim/gate.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/variables.h"
#include "shim/host_tier.h"
#include "shim/shim.h"

/* A launch may wait for room in the driver's queue, and a copy for its data. */
#define CLOSE_MAX_NS ((uint64_t)200 * 1000 * 1000)

/* Read by stubs.S. */
extern _Atomic uint32_t shim_gate_on;
_Atomic uint32_t shim_gate_on;
extern void *_Atomic shim_slots[SYMBOL_COUNT];

static _Atomic uint32_t closed;
static _Atomic uint64_t inside;
static _Atomic bool used;

static void decide(void) {
  const char *said = secure_getenv(ENV_MOVE);
  const char *touches = secure_getenv(ENV_TOUCHES);
  bool moves = host_tier_on() && (said == NULL || strcmp(said, "off") != 0);
  if (moves || (touches != NULL && touches[0] == '1')) atomic_store(&shim_gate_on, 1);
}

bool gate_here(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, decide);
  return atomic_load(&shim_gate_on) != 0;
}

bool gate_used(void) {
  return atomic_load(&used);
}

/* ---- numbers of calls in progress ---- */

#define DEVICE_SHIFT 56
/* Threads that launch at one time. With more, gate_oldest answers 1: nothing is known to have
 * passed. */
#define THREADS_MAX 256

static _Atomic uint64_t numbers[THREADS_MAX]; /* device << DEVICE_SHIFT | number; 0: none */
static _Atomic uint32_t threads;
static _Thread_local uint32_t my_slot; /* index + 1; 0: none yet */

void gate_number(unsigned device, uint64_t number) {
  ASSERT(number > 0 && number >> DEVICE_SHIFT == 0);
  if (my_slot == 0) my_slot = atomic_fetch_add(&threads, 1) + 1;
  if (my_slot <= THREADS_MAX)
    atomic_store(&numbers[my_slot - 1], (uint64_t)device << DEVICE_SHIFT | number);
}

uint64_t gate_oldest(unsigned device) {
  uint64_t oldest = UINT64_MAX;
  uint32_t count = atomic_load(&threads);
  if (count > THREADS_MAX) return 1;
  for (uint32_t i = 0; i < count; i++) {
    uint64_t n = atomic_load(&numbers[i]);
    if (n == 0 || n >> DEVICE_SHIFT != device) continue;
    n &= (UINT64_C(1) << DEVICE_SHIFT) - 1;
    if (n < oldest) oldest = n;
  }
  return oldest;
}

bool gate_pending(void) {
  uint32_t count = atomic_load(&threads);
  if (count > THREADS_MAX) return true;
  for (uint32_t i = 0; i < count; i++)
    if (atomic_load(&numbers[i]) != 0) return true;
  return false;
}

/* ---- passing ---- */

static gate_visit *_Atomic visitor;

void gate_set_visitor(gate_visit *visit) {
  atomic_store(&visitor, visit);
}

static _Thread_local void (*my_after)(void);

void gate_after(void (*after)(void)) {
  my_after = after;
}

void *shim_gate_enter(unsigned symbol, const uint64_t *registers, const uint64_t *stack) {
  ASSERT(symbol < SYMBOL_COUNT);
  if (!atomic_load_explicit(&used, memory_order_relaxed)) atomic_store(&used, true);
  gate_visit *visit = atomic_load_explicit(&visitor, memory_order_acquire);
  if (visit != NULL) visit(symbol, registers, stack);
  /* Count first, then check: the closing thread reads the count after closing. */
  atomic_fetch_add(&inside, 1);
  while (atomic_load(&closed) != 0) {
    atomic_fetch_sub(&inside, 1);
    syscall(SYS_futex, &closed, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
    atomic_fetch_add(&inside, 1);
  }
  void *function = atomic_load_explicit(&shim_slots[symbol], memory_order_acquire);
  return function != NULL ? function : shim_stub_resolve(symbol);
}

void shim_gate_leave(void) {
  ASSERT(atomic_load(&inside) > 0);
  if (my_after != NULL) {
    my_after();
    my_after = NULL;
  }
  if (my_slot != 0 && my_slot <= THREADS_MAX) atomic_store(&numbers[my_slot - 1], 0);
  atomic_fetch_sub(&inside, 1);
}

bool gate_close(void) {
  ASSERT(gate_here());
  ASSERT(atomic_load(&closed) == 0);
  atomic_store(&closed, 1);
  uint64_t start = clock_ns();
  while (atomic_load(&inside) != 0) {
    if (clock_ns() - start > CLOSE_MAX_NS) {
      gate_open();
      return false;
    }
    sched_yield();
  }
  return true;
}

void gate_open(void) {
  ASSERT(atomic_load(&closed) == 1);
  atomic_store(&closed, 0);
  syscall(SYS_futex, &closed, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static void after_fork(void) {
  atomic_store(&closed, 0);
  atomic_store(&inside, 0);
  atomic_store(&visitor, NULL);
  for (int i = 0; i < THREADS_MAX; i++) atomic_store(&numbers[i], 0);
}
SHIM_AFTER_FORK(after_fork);
