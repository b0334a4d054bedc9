/* Route: makes cuGetProcAddress return our hooks.
 *
 * The driver's own resolver is called first, with the program's name, version and flags. It returns
 * one of its functions, and the program gets our hook of exactly that function. So versions (_v2,
 * _v3) and the forms for per-thread streams (_ptsz, _ptds) are right whatever rule the driver
 * uses. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "shim/gate.h"
#include "shim/hooks.h"
#include "shim/shim.h"

/* CUdriverProcAddressQueryResult */
enum { ADDRESS_FOUND = 0, ADDRESS_NO_SYMBOL = 1, ADDRESS_VERSION_TOO_LOW = 2 };
#define FLAG_PER_THREAD 2u /* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */

typedef struct shim_hook {
  shim_symbol symbol;
  void *hook;
  void *real; /* NULL: this driver has none */
} shim_hook;

/* The stubs that pass the gate: in stubs.S, called through cuGetProcAddress only. */
#define GATED_HOOK(name)
#define GATED_GATE(name) GATED(name)
#define GATED_PASS(name)
#define GATED(name)                                 void name(void);
#define DRIVER(name, since, need, role, parameters) GATED_##role(name)
#include "device/driver.def"

static shim_hook hooks[] = {
#define HOOKED_HOOK(name) {SYMBOL_##name, (void *)(uintptr_t)name, NULL},
#define HOOKED_GATE(name)
#define HOOKED_PASS(name)
#define DRIVER(name, since, need, role, parameters) HOOKED_##role(name)
#include "device/driver.def"
/* After all hooks: without a gate these are left out. */
#define GATED(name)                                 {SYMBOL_##name, (void *)(uintptr_t)name, NULL},
#define DRIVER(name, since, need, role, parameters) GATED_##role(name)
#include "device/driver.def"
};
static const char *const hook_names[] = {
#define NAME_HOOK(name) #name,
#define NAME_GATE(name)
#define NAME_PASS(name)
#define DRIVER(name, since, need, role, parameters) NAME_##role(name)
#include "device/driver.def"
};
enum {
  HOOK_COUNT = sizeof hook_names / sizeof hook_names[0],
  ROUTE_COUNT = sizeof hooks / sizeof hooks[0]
};

/* The bounds of the shim's own functions. */
extern char __ehdr_start[], etext[] __attribute__((visibility("hidden")));

static pthread_once_t sort_once = PTHREAD_ONCE_INIT;

static int by_real(const void *a, const void *b) {
  uintptr_t one = (uintptr_t)((const shim_hook *)a)->real;
  uintptr_t other = (uintptr_t)((const shim_hook *)b)->real;
  return one < other ? -1 : one > other;
}

/* Sorts the hooks by the driver's addresses, once. */
static void sort_hooks(void) {
  /* Without a gate its stubs are unused, and programs get the driver's own functions. */
  size_t count = gate_here() ? ROUTE_COUNT : HOOK_COUNT;
  for (size_t i = 0; i < count; i++) hooks[i].real = shim_real(hooks[i].symbol);
  qsort(hooks, ROUTE_COUNT, sizeof hooks[0], by_real);
}

/* Returns the length of "cuMemAlloc" in "cuMemAlloc_v2_ptsz". */
static size_t base_length(const char *name) {
  const char *mark = strchr(name, '_');
  return mark == NULL ? strlen(name) : (size_t)(mark - name);
}

/* Returns the hook for a name if the driver returned an address that it does not export: the newest
 * version, in the form that the flags select. */
static shim_hook *hook_by_name(const char *asked, unsigned long long flags) {
  ASSERT(asked != NULL);
  shim_hook *best = NULL;
  bool per_thread = (flags & FLAG_PER_THREAD) != 0, best_fits = false;
  for (size_t i = 0; i < ROUTE_COUNT; i++) {
    const char *name = shim_symbol_name(hooks[i].symbol);
    size_t length = base_length(name);
    if (strlen(asked) != length || memcmp(asked, name, length) != 0 || hooks[i].real == NULL)
      continue;
    bool fits = (strstr(name, "_pts") != NULL || strstr(name, "_ptd") != NULL) == per_thread;
    const char *best_name = best == NULL ? "" : shim_symbol_name(best->symbol);
    if (best == NULL || (fits && !best_fits) ||
        (fits == best_fits && strcmp(name, best_name) > 0)) {
      best = &hooks[i];
      best_fits = fits;
    }
  }
  return best;
}

/* Returns whether the driver exports the function. A driver newer than our list may have newer
 * forms with other parameters, which stay its own. (After adoption its symbol table no longer shows
 * those we know.) */
static bool is_export(void *real) {
  Dl_info info;
  return shim_is_export(real) || (dladdr(real, &info) != 0 && info.dli_saddr == real);
}

/* Returns what the program gets instead of the driver's function `real`, requested as `asked`: the
 * hook of exactly that function, or `real` itself. */
static void *route(void *real, const char *asked, unsigned long long flags) {
  ASSERT(asked != NULL);
  if (real == NULL) return NULL;
  pthread_once(&sort_once, sort_hooks);
  shim_hook key = {.real = real};
  shim_hook *found = bsearch(&key, hooks, ROUTE_COUNT, sizeof hooks[0], by_real);
  if (found != NULL) return found->hook;
  /* After adoption, a driver that looks up a name in its own table finds ours there. */
  if ((char *)real >= __ehdr_start && (char *)real < etext) return real;
  shim_hook *named = hook_by_name(asked, flags);
  if (named == NULL || is_export(real)) return real;
  shim_log("%s is not an export of the driver: treated as %s", asked,
           shim_symbol_name(named->symbol));
  return named->hook;
}

cu_result cuGetProcAddress(const char *symbol, void **function, int version,
                           unsigned long long flags) {
  __typeof__(&cuGetProcAddress) real = REAL(cuGetProcAddress);
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  cu_result code = real(symbol, function, version, flags);
  if (code == CU_OK && symbol != NULL && function != NULL)
    *function = route(*function, symbol, flags);
  return code;
}

cu_result cuGetProcAddress_v2(const char *symbol, void **function, int version,
                              unsigned long long flags, int *found) {
  __typeof__(&cuGetProcAddress_v2) real = REAL(cuGetProcAddress_v2);
  if (real == NULL) {
    /* Drivers before CUDA 12 have the first form only; ours is here, so it has to answer. */
    cu_result code = cuGetProcAddress(symbol, function, version, flags);
    if (found != NULL) *found = code == CU_OK ? ADDRESS_FOUND : ADDRESS_NO_SYMBOL;
    return code;
  }
  cu_result code = real(symbol, function, version, flags, found);
  if (code == CU_OK && symbol != NULL && function != NULL)
    *function = route(*function, symbol, flags);
  return code;
}

const char *stow_shim_hook(size_t i) {
  return i < HOOK_COUNT ? hook_names[i] : NULL;
}
