/* Loading: two threads make the same first call at the same time, one of them from the constructor
 * of a library that is being loaded, which holds the loader's lock.
 *
 *   loading FILE init|resolve|alloc    the library, and the call
 *
 * The constructor waits until the other thread is in its call (and so waits for the loader's lock,
 * or for nothing), and then makes the call itself. Code that holds a lock while it waits for the
 * loader's lock would deadlock. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device/cuda_driver.h"
#include "shim/hooks.h"

static cu_result (*init)(unsigned);
static __typeof__(&cuGetProcAddress) resolve;
static __typeof__(&cuMemAlloc_v2) take;
static cu_result (*set)(cu_context);
static cu_context context;
static const char *what;
static _Atomic int answers; /* correct results */
static _Atomic int loading; /* the library is being loaded */
static _Atomic int done;    /* the first thread's call has returned */
static pid_t first;

static void *find(void *library, const char *name) {
  return dlsym(library, name);
}

static int is_called(void) {
  void *function = NULL;
  cu_addr addr = 0;
  if (strcmp(what, "init") == 0) return init(0) == CU_OK;
  if (strcmp(what, "resolve") == 0)
    return resolve("cuMemAlloc", &function, 13000, 0) == CU_OK &&
           function == (void *)(uintptr_t)take;
  return set(context) == CU_OK && take(&addr, 4096) == CU_OK && addr != 0;
}

/* Returns whether the first thread waits for something, or has finished. */
static int is_waiting(void) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)first);
  FILE *file = fopen(path, "re");
  size_t got = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;
  if (file != NULL) fclose(file);
  text[got] = '\0';
  const char *state = strrchr(text, ')');
  return state != NULL && state[1] == ' ' && state[2] == 'S';
}

static void call_as_it_loads(void) {
  atomic_store(&loading, 1);
  while (!atomic_load(&done) && !is_waiting()) {
  }
  atomic_fetch_add(&answers, is_called());
}

static void *load(void *path) {
  return dlopen(path, RTLD_NOW);
}

/* Looks up everything that the call needs, so that it reaches its one-time work. */
static void prepare(void *driver) {
  void *function;
  size_t left, total;
  cu_addr addr;
  init(0);
  resolve("cuNoSuchThing", &function, 13000, 0);
  ((cu_result(*)(cu_context *, cu_device))(uintptr_t)find(driver, "cuDevicePrimaryCtxRetain"))(
      &context, 0);
  set(context);
  ((cu_result(*)(size_t *, size_t *))(uintptr_t)find(driver, "cuMemGetInfo_v2"))(&left, &total);
  take(&addr, 0);
}

int main(int argc, char **argv) {
  char where[32];
  pthread_t thread;
  void *loaded = NULL, *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (argc != 3 || driver == NULL) return 2;
  what = argv[2];
  first = (pid_t)syscall(SYS_gettid);
  init = (cu_result(*)(unsigned))(uintptr_t)find(driver, "cuInit");
  resolve = (__typeof__(resolve))(uintptr_t)find(driver, "cuGetProcAddress");
  take = (__typeof__(take))(uintptr_t)find(driver, "cuMemAlloc_v2");
  set = (cu_result(*)(cu_context))(uintptr_t)find(driver, "cuCtxSetCurrent");
  if (strcmp(what, "init") != 0) prepare(driver);
  snprintf(where, sizeof where, "%llx", (unsigned long long)(uintptr_t)call_as_it_loads);
  setenv("LOADING_CALL", where, 1);
  pthread_create(&thread, NULL, load, argv[1]);
  while (!atomic_load(&loading)) {
  }
  atomic_fetch_add(&answers, is_called());
  atomic_store(&done, 1);
  pthread_join(thread, &loaded);
  printf("%d of 2%s\n", atomic_load(&answers), loaded == NULL ? ", not loaded" : "");
  return 0;
}
