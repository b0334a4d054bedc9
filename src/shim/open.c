/* Open: which name a dlopen of the program is really about. Called by dlopen.S at every one, so it
 * does next to nothing for names that are not the driver's.
 *
 * By its bare name the driver is the shim already; by a path the loader would find the file, which
 * the shim itself has opened. So a path that ends in the driver's name becomes the bare name. The
 * toolkit's stub of the driver is left what it is, as is a path where there is no file. */
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

/* "libcuda.so", "libcuda.so.1", "libcuda.so.580.95.05": `file` is a name of `library`. */
static bool is_named(const char *file, const char *library) {
  size_t length = strlen(library);
  return strncmp(file, library, length) == 0 && (file[length] == '\0' || file[length] == '.');
}

static bool nvml_is_ours(void) {
  const char *list = secure_getenv("LD_PRELOAD");
  return list != NULL && strstr(list, "libstowage-shim-nvml.so") != NULL;
}

/* A driver that opens itself means itself. */
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
