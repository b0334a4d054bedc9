/* Stand-in libcuda: cuGetProcAddress over every exported name, by version and flags, like the
 * driver. */
#include <dlfcn.h>
#include <string.h>

#include "device/cuda_driver.h"

#define CALL cu_result __attribute__((visibility("default")))
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

static const char *const names[] = {
#define SYMBOL(name) #name,
#include <standin-symbols.inc>
#undef SYMBOL
};
enum { NAME_COUNT = sizeof names / sizeof names[0] };

static const struct {
  const char *name;
  int since;
} LATER[] = {
#define SINCE(name, version) {#name, version},
#include <standin-since.inc>
#undef SINCE
};

/* Returns the CUDA version that introduced a form of a function: exact after 11.8, approximate
 * before. */
static int since(const char *name) {
  size_t length = strlen(name);
  if (length > 5 && strcmp(name + length - 5, "_ptsz") == 0) length -= 5;
  for (size_t i = 0; i < sizeof LATER / sizeof LATER[0]; i++)
    if (strlen(LATER[i].name) == length && strncmp(name, LATER[i].name, length) == 0)
      return LATER[i].since;
  if (strncmp(name, "cuGetProcAddress", 16) == 0) return 11030;
  if (strstr(name, "_v4") != NULL) return 12050;
  if (strstr(name, "_v3") != NULL) return 11030;
  if (strstr(name, "_v2") != NULL) return 3020;
  return 2000;
}

/* Returns whether `name` without its version and stream form is `base`. */
static int is_form_of(const char *name, const char *base) {
  size_t length = strlen(base);
  return strncmp(name, base, length) == 0 && (name[length] == '\0' || name[length] == '_');
}

static cu_result find(const char *base, void **function, int version, unsigned long long flags,
                      int *found) {
  const char *best = NULL;
  int known = 0, per_thread = (flags & 2) != 0, best_fits = 0;
  for (int i = 0; i < NAME_COUNT; i++) {
    if (!is_form_of(names[i], base)) continue;
    known = 1;
    int fits = strstr(names[i], "_pt") != NULL;
    if (fits && !per_thread) continue;
    if (since(names[i]) > version) continue;
    if (best == NULL || (fits && !best_fits) ||
        (fits == best_fits && since(names[i]) > since(best))) {
      best = names[i];
      best_fits = fits;
    }
  }
  if (found != NULL) *found = best != NULL ? 0 : known ? 2 : 1;
  /* Searches this library only: global names of the program may belong to other code. */
  static void *self;
  Dl_info here;
  if (self == NULL && dladdr((void *)(uintptr_t)find, &here) != 0)
    self = dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  *function = best != NULL && self != NULL ? dlsym(self, best) : NULL;
  return *function != NULL ? CU_OK : 500; /* CUDA_ERROR_NOT_FOUND */
}

CALL cuGetProcAddress(const char *symbol, void **function, int version, unsigned long long flags) {
  return find(symbol, function, version, flags, NULL);
}
#if STANDIN_CUDA >= 12000
CALL cuGetProcAddress_v2(const char *symbol, void **function, int version, unsigned long long flags,
                         int *found) {
  cu_result code = find(symbol, function, version, flags, found);
  /* The second form reports "not found" only through `found`. */
  return found != NULL ? CU_OK : code;
}
#endif
