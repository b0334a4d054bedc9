/* XLA settings: with a spill, JAX runs its kernels one by one instead of in CUDA graphs ("command
 * buffers"), between whose kernels no page can be exchanged.
 *
 * XLA reads XLA_FLAGS once and ends the process if it does not know a flag. So the flag is
 * added when a jaxlib that knows it is loaded, and never for one whose version is not known. */
#include <dirent.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/variables.h"
#include "run/protocol.h"
#include "shim/shim.h"

/* The first jaxlib for which the flag is set; it has known the flag for some months by then. */
enum { MINOR_LEAST = 4, PATCH_LEAST = 26 };

static _Atomic bool off;

/* Returns true if `folder` holds the metadata of a jaxlib that knows the flag. */
static bool knows_flag(const char *folder) {
  ASSERT(folder[0] != '\0');
  DIR *listing = opendir(folder);
  const struct dirent *entry;
  bool knows = false;
  while (listing != NULL && (entry = readdir(listing)) != NULL) {
    unsigned major, minor, patch;
    /* NOLINTNEXTLINE(cert-err34-c): anything but a number counts as unknown */
    if (sscanf(entry->d_name, "jaxlib-%u.%u.%u", &major, &minor, &patch) != 3) continue;
    knows = major > 0 || minor > MINOR_LEAST || (minor == MINOR_LEAST && patch >= PATCH_LEAST);
  }
  if (listing != NULL) closedir(listing);
  return knows;
}

void xla_settings_put(const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash + 1;
  if (strcmp(name, "xla_extension.so") != 0 && strcmp(name, "libjax_common.so") != 0 &&
      strcmp(name, "xla_cuda_plugin.so") != 0)
    return;
  const char *set = secure_getenv(ENV_XLA_SET), *flags = secure_getenv(ENV_XLA_FLAGS);
  /* `stowage run` made the variable, so that setenv changes one pointer of the environment. Adding
   * a variable could move the whole list, which other threads may be reading. */
  if (set == NULL || set[0] != '1' || flags == NULL || strstr(flags, "command_buffer") != NULL)
    return;
  /* …/site-packages/jaxlib/xla_extension.so, …/jax_plugins/xla_cuda12/xla_cuda_plugin.so */
  char folder[PATH_MAX], value[4096];
  bool known = false;
  size_t length = (size_t)(slash - path);
  for (int up = 0; up < 2 && !known && length > 1 && length < sizeof folder; up++) {
    while (length > 1 && path[length - 1] != '/') length--;
    snprintf(folder, sizeof folder, "%.*s", (int)length, path);
    known = knows_flag(folder);
    length--;
  }
  int bytes = snprintf(value, sizeof value, "%s%s" RUN_XLA_FLAG, flags, flags[0] ? " " : "");
  if (!known || bytes >= (int)sizeof value || setenv(ENV_XLA_FLAGS, value, 1) != 0) return;
  atomic_store(&off, true);
  shim_log("XLA command buffers are off");
}

bool xla_settings_off(void) {
  return atomic_load(&off);
}
