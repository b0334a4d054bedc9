/* Rival: another library that intercepts the driver, as profilers and other limiters do. It counts
 * cuMemAlloc_v2 and forwards it to the next library. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

static int calls;

__attribute__((visibility("default"))) int rival_calls(void) {
  return calls;
}

__attribute__((visibility("default"))) int cuMemAlloc_v2(unsigned long long *addr, size_t bytes) {
  int (*next)(unsigned long long *, size_t) =
      (int (*)(unsigned long long *, size_t))(uintptr_t)dlsym(RTLD_NEXT, "cuMemAlloc_v2");
  calls++;
  return next != NULL ? next(addr, bytes) : 999;
}
