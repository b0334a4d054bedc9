/* Load: libraries that the shim itself has loaded, the driver among them.
 *
 * Whoever loads a library has the loader's lock while the library starts, and a library that starts
 * may call us (some do, with objects of C++). So no lock of ours is held by a thread that waits for
 * the loader's: several may load the same at once, the loader sees to it that they get the same,
 * and only then is it kept. What they do share keeps out forks alone: the loader's lists would be
 * half changed in the child, for good. */
#include <dlfcn.h>
#include <pthread.h>

#include "shim/shim.h"

/* Held for reading by those who load; readers never wait for a writer that waits. */
static pthread_rwlock_t forks = PTHREAD_RWLOCK_INITIALIZER;
static _Thread_local int loading; /* calls of shim_load this thread is in */

/* A fork from within the loading, by what is loaded, is its own affair. */
static void before_fork(void) {
  if (loading == 0) pthread_rwlock_wrlock(&forks);
}

static void after_fork_parent(void) {
  if (loading == 0) pthread_rwlock_unlock(&forks);
}

/* It is held by a thread of another number. */
static void after_fork_child(void) {
  pthread_rwlock_init(&forks, NULL);
}

static void watch_forks(void) {
  pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

void *shim_load(const char *path) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_forks);
  pthread_rwlock_rdlock(&forks);
  loading++;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  loading--;
  pthread_rwlock_unlock(&forks);
  return library;
}
