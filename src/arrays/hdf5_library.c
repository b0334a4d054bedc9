/* Finding libhdf5. */
#include "arrays/hdf5_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/variables.h"

static hdf5_library loaded;
static bool usable;
static char missing[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void *find(const char **name) {
  static const char *const names[] = {"libhdf5.so.310",        "libhdf5_serial.so.310",
                                      "libhdf5.so.200",        "libhdf5_serial.so.200",
                                      "libhdf5.so.103",        "libhdf5_serial.so.103",
                                      "libhdf5_serial.so.100", "libhdf5.so.100",
                                      "libhdf5_serial.so",     "libhdf5.so"};
  /* secure_getenv: a setuid program must not load what its caller names. */
  *name = secure_getenv(ENV_HDF5_LIBRARY);
  if (*name != NULL) return dlopen(*name, RTLD_NOW | RTLD_LOCAL);
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    *name = names[i];
    void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (library != NULL) return library;
  }
  return NULL;
}

static bool take(void *library, const char *name, void *to) {
  void *symbol = dlsym(library, name);
  if (symbol == NULL) snprintf(missing, sizeof missing, "it has no %s", name);
  memcpy(to, &symbol, sizeof symbol);
  return symbol != NULL;
}

static bool take_all(void *library) {
#define HDF5_TAKE(name, result, parameters)                                                        \
  if (!take(library, #name, &loaded.name)) return false;
  HDF5_FUNCTIONS(HDF5_TAKE)
#undef HDF5_TAKE
  return take(library, "H5Lvisit1", &loaded.visit) || take(library, "H5Lvisit", &loaded.visit);
}

static void load(void) {
  const char *name;
  unsigned major = 0, minor = 0, release = 0;
  void *library = find(&name);
  if (library == NULL) {
    snprintf(missing, sizeof missing, "it is not here");
    return;
  }
  if (!take_all(library)) return;
  loaded.H5get_libversion(&major, &minor, &release);
  /* Before 1.10 its identifiers have 32 bits. */
  if (major != 1 && major != 2) return;
  if (major == 1 && minor < 10) {
    snprintf(missing, sizeof missing, "%.100s is version %u.%u, 1.10 is the least", name, major,
             minor);
    return;
  }
  usable = loaded.H5open() >= 0;
  loaded.H5Eset_auto2(0, NULL, NULL); /* errors are ours to tell */
}

stow_status hdf5_library_get(const hdf5_library **library, const char *path) {
  pthread_once(&once, load);
  if (usable) return *library = &loaded, STOW_OK;
  return stow_fail(STOW_ERR_UNSUPPORTED,
                   "%s: an HDF5 file, which needs libhdf5: %s; install it (Debian, Ubuntu: apt-get "
                   "install libhdf5-103-1, or libhdf5-310), or save the dataset with numpy.save",
                   path, missing[0] != '\0' ? missing : "it does not start");
}
