/* Real: the driver behind the shim, found by path and opened at the first call, when its functions
 * are looked up.
 *
 * Every thread writes the same values to the slots, so they need no lock; only storing the opened
 * driver has one. `absent` replaces functions that this driver lacks, `no_driver` all functions in
 * a process without a driver. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
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

static lock open_lock = LOCK_INIT(LOCK_DEVICE); /* guards the writing of the next four */
static _Atomic bool opened;                     /* tried, whether or not there was one */
static void *driver;                            /* written before `opened`, as the next two */
static cuda_driver functions;                   /* for our own calls */
static cuda_driver program_functions;           /* for passing a program's calls on */

static cu_result absent(void) {
  return CU_ERROR_NOT_SUPPORTED;
}

static cu_result no_driver(void) {
  return CU_ERROR_NO_DEVICE;
}

static void *function(cu_result (*f)(void)) {
  return (void *)(uintptr_t)f;
}

/* What this thread found; another thread may have stored its result first. */
typedef struct found_driver {
  void *library;
  char path[CUDA_PATH_MAX];
} found_driver;

/* A cuda_path_visit. */
static bool try_open(void *user, const char *path) {
  found_driver *found = user;
  Dl_info self;
  if (dladdr(function(absent), &self) == 0 || cuda_path_same(path, self.dli_fname)) return false;
  void *library = shim_load(path);
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
  found->library = library;
  snprintf(found->path, sizeof found->path, "%s", path);
  return true;
}

/* Prevents a fork while the lock is held, so that it is free in the child. */
static void before_fork(void) {
  lock_acquire(&open_lock);
}

static void after_fork(void) {
  lock_release(&open_lock);
}

static void watch_forks(void) {
  pthread_atfork(before_fork, after_fork, after_fork);
}

/* Looks up all functions at once, so that no later lookup happens with a lock held (load.c). */
static void fill_slots(void *library) {
  for (int i = 0; i < SYMBOL_COUNT; i++) {
    void *found = library == NULL ? function(no_driver) : dlsym(library, names[i]);
    if (found == NULL) shim_log("this driver has no %s", names[i]);
    atomic_store_explicit(&shim_slots[i], found != NULL ? found : function(absent),
                          memory_order_release);
  }
}

static void *found_or_null(void *found) {
  ASSERT(found != NULL);
  return found == function(absent) || found == function(no_driver) ? NULL : found;
}

/* Copies the slots that have a name in driver.def; the slots are filled. */
static void fill_functions(void) {
  ASSERT(lock_held(&open_lock));
#define DRIVER(name, since, need, role, parameters)                                                \
  program_functions.name = (cu_result(*) parameters)(uintptr_t)found_or_null(                      \
      atomic_load_explicit(&shim_slots[SYMBOL_##name], memory_order_acquire));                     \
  if (cuda_driver_may_use(since)) functions.name = program_functions.name;
#include "device/driver.def"
  cuda_driver_note_pages(&functions);
  cuda_driver_note_pages(&program_functions);
}

/* Stores what was found, if no other thread has; `library` NULL: there is none. Code that holds the
 * lock never waits for the loader (load.c). */
static void keep(void *library, const char *path) {
  /* Before the lock is ever held, so that no fork passes it by. */
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_forks);
  lock_acquire(&open_lock);
  if (!opened) {
    driver = library;
    fill_functions();
    if (library != NULL) shim_driver_path_set(path);
    shim_log("driver: %s", library != NULL ? path : "none found");
    torch_settings_take_back();
    opened = true;
  }
  lock_release(&open_lock);
}

static void open_driver(void) {
  found_driver found = {.library = NULL};
  shim_opening_set(true);
  cuda_path_each(try_open, &found);
  shim_opening_set(false);
  fill_slots(found.library);
  keep(found.library, found.path);
}

void *shim_open_loaded(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (library == NULL || strlen(path) >= CUDA_PATH_MAX) return NULL;
  if (!atomic_load(&opened)) fill_slots(library);
  keep(library, path);
  return driver == library ? library : NULL;
}

void *shim_stub_resolve(unsigned symbol) {
  ASSERT(symbol < SYMBOL_COUNT);
  if (!atomic_load_explicit(&opened, memory_order_acquire)) {
    /* The driver calls us while it is being loaded, so it is not available yet. */
    if (shim_opening()) return function(no_driver);
    open_driver();
  }
  return atomic_load_explicit(&shim_slots[symbol], memory_order_acquire);
}

void *shim_real(shim_symbol symbol) {
  ASSERT((unsigned)symbol < SYMBOL_COUNT);
  void *found = atomic_load_explicit(&shim_slots[symbol], memory_order_acquire);
  if (found == NULL) found = shim_stub_resolve(symbol);
  return found_or_null(found);
}

/* Opens the driver at the first call. False: it calls us while it is being loaded. */
static bool have_driver(void) {
  if (atomic_load_explicit(&opened, memory_order_acquire)) return true;
  if (shim_opening()) return false;
  open_driver();
  return true;
}

static const cuda_driver NONE;

const cuda_driver *shim_driver(void) {
  return have_driver() ? &functions : &NONE;
}

const cuda_driver *shim_program_driver(void) {
  return have_driver() ? &program_functions : &NONE;
}

const char *shim_symbol_name(shim_symbol symbol) {
  return names[symbol];
}

void *shim_resolve(void *user, const char *name) {
  ASSERT(name != NULL);
  (void)user;
  /* Never use dlsym for names of our own: the driver's table may contain our function (adopt.c). */
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
