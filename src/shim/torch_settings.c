/* Torch settings: removes the expandable segments that `stowage run --spill` sets in variables.
 * PyTorch before 2.1 does not know them and fails with an unknown setting. It reads its settings
 * after its first call to the driver, so they are removed at that call. */
#include <limits.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/variables.h"
#include "run/protocol.h"
#include "shim/shim.h"

/* A dl_iterate_phdr callback: reads PyTorch's version.py, two folders above its library. */
static int find_version(struct dl_phdr_info *info, size_t size, void *user) {
  (void)size;
  char *path = user;
  const char *name = info->dlpi_name, *lib = name == NULL ? NULL : strstr(name, "/lib/libc10_cuda");
  if (lib == NULL) return 0;
  int length = snprintf(path, PATH_MAX, "%.*s/version.py", (int)(lib - name), name);
  return length < PATH_MAX;
}

/* Returns true if a PyTorch older than 2.1 is loaded; false if its version is unknown. */
static bool is_old(void) {
  char path[PATH_MAX], line[256];
  unsigned major, minor;
  bool known = false;
  if (dl_iterate_phdr(find_version, path) == 0) return false;
  FILE *file = fopen(path, "re");
  if (file == NULL) return false;
  while (!known && fgets(line, sizeof line, file) != NULL) {
    const char *at = strncmp(line, "__version__", 11) == 0 ? strpbrk(line, "'\"") : NULL;
    /* NOLINTNEXTLINE(cert-err34-c): anything but a number counts as unknown */
    known = at != NULL && sscanf(at + 1, "%u.%u", &major, &minor) == 2;
  }
  fclose(file);
  return known && (major < 2 || (major == 2 && minor < 1));
}

/* Removes what stowage run appended, in place, with one byte: the program may have threads that
 * read the environment, and setenv could free or move what they read. They see the old value or the
 * new one. A setting that was alone becomes empty, which PyTorch treats as none. */
static void take_back(const char *name) {
  char *value = secure_getenv(name), *at = value == NULL ? NULL : strstr(value, RUN_TORCH_SETTING);
  if (at == NULL) return;
  if (at > value && at[-1] == ',') at--;
  atomic_store_explicit((_Atomic char *)at, '\0', memory_order_relaxed);
}

void torch_settings_take_back(void) {
  const char *set = secure_getenv(ENV_TORCH_SET);
  if (set == NULL || set[0] != '1' || !is_old()) return;
  take_back(ENV_TORCH_CONF);
  take_back(ENV_TORCH_CONF_OLD);
  shim_log("this PyTorch has no expandable segments: setting removed");
}
