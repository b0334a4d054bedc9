/* XLA settings: the flags that JAX gets with a spill, and when its launches are recorded.
 *
 *   RUN_XLA_FLAG  no CUDA graphs ("command buffers"): pages cannot be exchanged between the kernels
 *                 of one, nor is each of them recorded, so JAX runs its kernels one by one.
 *   RUN_XLA_PART  how much of the device XLA may plan with. The device is reported to it as vram
 *                 and spill together. With this flag it recomputes results that it cannot keep in
 *                 vram, as on a device of that size.
 *
 * XLA reads XLA_FLAGS once and ends the process if it does not know a flag. So the flags are added
 * when a jaxlib that knows them is loaded, and never for one whose version is not known. */
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

/* The first jaxlib that gets each flag: 0.4.26 for command buffers, 0.4.36 for the part. Each had
 * known its flag for some months by then. */
enum { MINOR_LEAST = 4, PATCH_OLDER = 1, PATCH_GRAPHS = 26, PATCH_PART = 36, PATCH_NEWER = 1000 };

static _Atomic bool off;
static _Atomic unsigned given;

/* Returns N of the jaxlib 0.4.N whose metadata `folder` holds; PATCH_NEWER: of a later one,
 * PATCH_OLDER: of an earlier one, 0: of none. The oldest counts if an update left others there. */
static unsigned patch_in(const char *folder) {
  ASSERT(folder[0] != '\0');
  DIR *listing = opendir(folder);
  const struct dirent *entry;
  unsigned found = 0;
  while (listing != NULL && (entry = readdir(listing)) != NULL) {
    unsigned major, minor, patch;
    /* NOLINTNEXTLINE(cert-err34-c): anything but a number counts as unknown */
    if (sscanf(entry->d_name, "jaxlib-%u.%u.%u", &major, &minor, &patch) != 3) continue;
    bool newer = major > 0 || minor > MINOR_LEAST, older = !newer && minor < MINOR_LEAST;
    unsigned now = newer ? PATCH_NEWER : older || patch == 0 ? PATCH_OLDER : patch;
    if (found == 0 || now < found) found = now;
  }
  if (listing != NULL) closedir(listing);
  return found;
}

static unsigned (*_Atomic part_of_vram)(void);

void xla_settings_ask(unsigned (*part)(void)) {
  atomic_store(&part_of_vram, part);
}

/* Adds a flag to those in `flags`. Returns false, and adds nothing, if it does not fit. */
static bool add(char *flags, size_t capacity, const char *flag) {
  size_t used = strlen(flags);
  int bytes = snprintf(flags + used, capacity - used, "%s%s", used > 0 ? " " : "", flag);
  if (bytes >= 0 && (size_t)bytes < capacity - used) return true;
  flags[used] = '\0';
  return false;
}

void xla_settings_put(const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash + 1;
  if (strcmp(name, "xla_extension.so") != 0 && strcmp(name, "libjax_common.so") != 0 &&
      strcmp(name, "xla_cuda_plugin.so") != 0)
    return;
  const char *set = secure_getenv(ENV_XLA_SET), *flags = secure_getenv(ENV_XLA_FLAGS);
  /* `stowage run` made the variable, so that setenv changes one pointer of the environment. Adding
   * a variable could move the whole list, which other threads may be reading. */
  if (set == NULL || set[0] != '1' || flags == NULL) return;
  /* What the user has set stays. */
  bool graphs = strstr(flags, "command_buffer") != NULL;
  bool limited = strstr(flags, "memory_limit_slop_factor") != NULL;
  if (graphs && limited) return;
  /* …/site-packages/jaxlib/xla_extension.so, …/jax_plugins/xla_cuda12/xla_cuda_plugin.so */
  char folder[PATH_MAX], value[4096], flag[80];
  unsigned patch = 0;
  size_t length = (size_t)(slash - path);
  for (int up = 0; up < 2 && patch == 0 && length > 1 && length < sizeof folder; up++) {
    while (length > 1 && path[length - 1] != '/') length--;
    snprintf(folder, sizeof folder, "%.*s", (int)length, path);
    patch = patch_in(folder);
    length--;
  }
  if (patch < PATCH_GRAPHS || strlen(flags) >= sizeof value) return;
  snprintf(value, sizeof value, "%s", flags);
  unsigned (*ask)(void) = atomic_load(&part_of_vram);
  unsigned part = limited || patch < PATCH_PART || ask == NULL ? 0 : ask();
  snprintf(flag, sizeof flag, RUN_XLA_PART "%u", part);
  if (part > 0 && !add(value, sizeof value, flag)) part = 0;
  bool switched = !graphs && add(value, sizeof value, RUN_XLA_FLAG);
  if ((part == 0 && !switched) || setenv(ENV_XLA_FLAGS, value, 1) != 0) return;
  atomic_store(&off, switched);
  atomic_store(&given, part);
  shim_log("XLA's flags: %s", value);
}

bool xla_settings_off(void) {
  return atomic_load(&off);
}

unsigned xla_settings_part(void) {
  return atomic_load(&given);
}
