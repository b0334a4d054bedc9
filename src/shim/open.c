/* Open: replaces the path of the driver in a dlopen call of the program. Called by dlopen.S for
 * every call, so it does almost nothing for other names.
 *
 * The driver's bare name already means the shim; with a path the loader would find the file that
 * the shim itself has opened. So a path that ends in the driver's name becomes the bare name. The
 * toolkit's stub of the driver and paths without a file stay unchanged. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/shim.h"

#define DRIVER "libcuda.so"
#define NVML   "libnvidia-ml.so"

/* Called and read by dlopen.S. */
const char *shim_open_name(const char *name, void *caller);
extern void *_Atomic shim_open_real;
void *_Atomic shim_open_real;

/* Returns whether `file` is a name of `library`: "libcuda.so", "libcuda.so.1",
 * "libcuda.so.580.95.05". */
static bool is_named(const char *file, const char *library) {
  size_t length = strlen(library);
  return strncmp(file, library, length) == 0 && (file[length] == '\0' || file[length] == '.');
}

static bool nvml_is_ours(void) {
  const char *list = secure_getenv("LD_PRELOAD");
  return list != NULL && strstr(list, "libstowage-shim-nvml.so") != NULL;
}

/* Returns whether the caller is the driver, which means itself. */
static bool is_driver(void *caller) {
  Dl_info info;
  return dladdr(caller, &info) != 0 && strcmp(info.dli_fname, shim_driver_path()) == 0;
}

const char *shim_open_name(const char *name, void *caller) {
  if (atomic_load_explicit(&shim_open_real, memory_order_relaxed) == NULL)
    atomic_store(&shim_open_real, dlsym(RTLD_NEXT, "dlopen"));
  const char *slash = name == NULL ? NULL : strrchr(name, '/');
  if (slash != NULL) xla_settings_put(name);
  if (slash == NULL || strncmp(slash + 1, "lib", 3) != 0) return name;
  bool driver = is_named(slash + 1, DRIVER);
  if (!driver && !(is_named(slash + 1, NVML) && nvml_is_ours())) return name;
  if (shim_opening() || is_driver(caller) || strstr(name, "/stubs/") != NULL ||
      access(name, R_OK) != 0)
    return name;
  return driver ? DRIVER ".1" : NVML ".1";
}
