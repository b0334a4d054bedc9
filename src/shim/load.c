/* Load: loads libraries for the shim itself, including the driver.
 *
 * A thread that loads a library holds the loader's lock while the library initializes, and its
 * initialization may call us (some do, with C++ objects). So no thread waits for the loader while
 * it holds one of our locks: several threads may load the same library at the same time, the loader
 * returns the same one, and only then is it stored. What they share only blocks forks: in a child
 * the loader's lists would stay half changed.
 *
 * That is a count, not a pthread_rwlock: a child could not unlock what its parent's thread locked,
 * because the thread's number differs there. A waiting fork does not block loading threads: one of
 * them may wait for another that is about to load. */
#include <dlfcn.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/assert.h"
#include "shim/shim.h"

#define FORKING UINT32_MAX
static _Atomic uint32_t loaders;       /* calls of shim_load in the process, or FORKING; a futex */
static _Thread_local uint32_t loading; /* calls of shim_load this thread is in */

static void wait_while(uint32_t value) {
  syscall(SYS_futex, &loaders, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void set_and_wake(uint32_t value) {
  atomic_store(&loaders, value);
  syscall(SYS_futex, &loaders, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void enter(void) {
  uint32_t now = atomic_load(&loaders);
  for (;;) {
    if (now == FORKING) {
      wait_while(FORKING);
      now = atomic_load(&loaders);
    } else if (atomic_compare_exchange_weak(&loaders, &now, now + 1))
      break;
  }
  loading++;
}

static void leave(void) {
  ASSERT(loading > 0);
  loading--;
  if (atomic_fetch_sub(&loaders, 1) == 1)
    syscall(SYS_futex, &loaders, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Waits for loading threads, except that a library being loaded may fork on the thread that loads
 * it. */
static void before_fork(void) {
  uint32_t none = 0;
  while (loading == 0 && !atomic_compare_exchange_weak(&loaders, &none, FORKING)) {
    if (none != 0) wait_while(none);
    none = 0;
  }
}

static void after_fork_parent(void) {
  if (loading == 0) set_and_wake(0);
}

/* Of the loading threads only this one is left. */
static void after_fork_child(void) {
  set_and_wake(loading);
}

static void watch_forks(void) {
  pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

void *shim_load(const char *path) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_forks);
  enter();
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  leave();
  return library;
}
