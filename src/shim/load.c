/* Load: libraries that the shim itself has loaded, the driver among them.
 *
 * Whoever loads a library holds the loader's lock while the library starts, and a library that
 * starts may call us (some do, with C++ objects). So no thread waits for the loader with a lock of
 * ours held: several may load the same library at once, the loader gives them the same one, and
 * only then is it kept. What they do share keeps out forks only: in a child the loader's lists
 * would stay half changed.
 *
 * That is a count, not a pthread_rwlock: a child could not unlock what its parent's thread locked,
 * because the thread's number differs there. A fork that waits does not keep loading threads out:
 * one that loads may wait for another that is about to. */
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

/* A fork by a library that is being loaded, on the thread that loads it, does not wait for itself.
 */
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

/* Of those who load only this thread is left. */
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
