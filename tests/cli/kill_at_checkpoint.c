/* Preloaded by the tests of resumed jobs: kills the process at a chosen checkpoint.
 *
 * A checkpoint is complete when its file is renamed to NAME.resume. With
 * STOWAGE_DIE_AT_CHECKPOINT=N the process gets SIGKILL right after the Nth such rename. */
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

__attribute__((visibility("default"))) int rename(const char *from, const char *to);

int rename(const char *from, const char *to) {
  static _Atomic unsigned long count;
  int (*real)(const char *, const char *) =
      (int (*)(const char *, const char *))(uintptr_t)dlsym(RTLD_NEXT, "rename");
  int result = real(from, to);
  const char *at = getenv("STOWAGE_DIE_AT_CHECKPOINT");
  size_t length = strlen(to);
  if (result == 0 && at != NULL && length > 7 && strcmp(to + length - 7, ".resume") == 0 &&
      atomic_fetch_add(&count, 1) + 1 == strtoul(at, NULL, 10))
    raise(SIGKILL);
  return result;
}
