/* The driver behind the shim: found by path, opened once, its functions looked up as they are first
 * used.
 *
 * The slots are written once each, with the same value whoever writes, so they need no lock; only
 * opening the driver has one. A function this driver lacks is answered by `absent`, a process
 * without a driver by `no_driver`. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/lock.h"
#include "device/cuda_path.h"
#include "shim/shim.h"

/* What stubs.S jumps through. */
extern void *_Atomic shim_slots[SYMBOL_COUNT];
void *_Atomic shim_slots[SYMBOL_COUNT];

static const char *const names[SYMBOL_COUNT] = {
#define SYMBOL(name) #name,
#include <shim-symbols.inc>
#undef SYMBOL
};

static lock open_lock = LOCK_INIT(LOCK_DEVICE);
static _Atomic bool opened; /* tried, whether or not there was one */
static void *driver;        /* written before `opened` */
static char driver_path[CUDA_PATH_MAX];
static _Thread_local bool inside; /* this thread is opening the driver now */

bool shim_opening(void) {
  return inside;
}

static cu_result absent(void) {
  return CU_ERROR_NOT_SUPPORTED;
}

static cu_result no_driver(void) {
  return CU_ERROR_NO_DEVICE;
}

static void *function(cu_result (*f)(void)) {
  return (void *)(uintptr_t)f;
}

/* A cuda_path_visit. */
static bool try_open(void *user, const char *path) {
  Dl_info self;
  (void)user;
  if (dladdr(function(absent), &self) == 0 || cuda_path_same(path, self.dli_fname)) return false;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    shim_log("not the driver: %s", dlerror());
    return false;
  }
  /* Another copy of the shim, or something that only has the name. */
  if (dlsym(library, "stow_shim_version") != NULL || dlsym(library, "cuInit") == NULL) {
    shim_log("not the driver: %s", path);
    dlclose(library);
    return false;
  }
  driver = library;
  strncpy(driver_path, path, sizeof driver_path - 1);
  return true;
}

/* No fork while the driver is being loaded: the loader's lists would be half changed in the child,
 * for good. (A fork from within the loading, by the driver itself, is its own affair.) */
static void before_fork(void) {
  if (!inside) lock_take(&open_lock);
}

static void after_fork(void) {
  if (!inside) lock_give(&open_lock);
}

static void watch_forks(void) {
  pthread_atfork(before_fork, after_fork, after_fork);
}

static void take_open_lock(void) {
  /* Before the lock is ever held, so that no fork passes it by. */
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_forks);
  lock_take(&open_lock);
}

static void open_driver(void) {
  take_open_lock();
  if (!opened) {
    inside = true;
    bool found = cuda_path_each(try_open, NULL);
    shim_log("driver: %s", found ? driver_path : "none found");
    torch_settings_mend();
    inside = false;
    opened = true;
  }
  lock_give(&open_lock);
}

void *shim_open_loaded(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (library == NULL || strlen(path) >= sizeof driver_path) return NULL;
  take_open_lock();
  if (!opened) {
    driver = library;
    strncpy(driver_path, path, sizeof driver_path - 1);
    opened = true;
  }
  bool ours = driver == library;
  lock_give(&open_lock);
  return ours ? library : NULL;
}

void *shim_stub_resolve(unsigned symbol) {
  if (!atomic_load_explicit(&opened, memory_order_acquire)) {
    /* The driver calls us while it is being loaded: it is not there yet. */
    if (inside) return function(no_driver);
    open_driver();
  }
  void *found = driver == NULL ? function(no_driver) : dlsym(driver, names[symbol]);
  if (found == NULL) {
    shim_log("this driver has no %s", names[symbol]);
    found = function(absent);
  }
  atomic_store_explicit(&shim_slots[symbol], found, memory_order_release);
  return found;
}

void *shim_real(shim_symbol symbol) {
  void *found = atomic_load_explicit(&shim_slots[symbol], memory_order_acquire);
  if (found == NULL) found = shim_stub_resolve(symbol);
  return found == function(absent) || found == function(no_driver) ? NULL : found;
}

const char *shim_symbol_name(shim_symbol symbol) {
  return names[symbol];
}

const char *shim_driver_path(void) {
  return atomic_load_explicit(&opened, memory_order_acquire) ? driver_path : "";
}

void *shim_resolve(void *user, const char *name) {
  (void)user;
  /* Never by dlsym what we have a name for: the driver's table may say our function (adopt.c). */
  for (int i = 0; i < SYMBOL_COUNT; i++)
    if (strcmp(names[i], name) == 0) return shim_real((shim_symbol)i);
  shim_real(SYMBOL_cuInit);
  return driver == NULL ? NULL : dlsym(driver, name);
}

bool shim_is_export(const void *pointer) {
  for (int i = 0; i < SYMBOL_COUNT; i++)
    if (shim_real((shim_symbol)i) == pointer) return true;
  return false;
}
