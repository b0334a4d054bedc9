/* Finding libhdf5. */
#include "arrays/hdf5_library.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/variables.h"

static hdf5_library loaded;
static bool usable;
static char missing[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- where it may be ---- */

/* Opens the first library that `pattern` matches, and writes its path into `name`. */
static void *open_match(const char *pattern, char name[PATH_MAX]) {
  glob_t all;
  void *library = NULL;
  if (glob(pattern, 0, NULL, &all) != 0) return NULL;
  for (size_t i = 0; i < all.gl_pathc && library == NULL; i++) {
    snprintf(name, PATH_MAX, "%s", all.gl_pathv[i]);
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  globfree(&all);
  return library;
}

/* Opens a library of the Python environment with the folder `bin`: h5py's (its wheels include one)
 * or conda's. */
static void *open_beside(const char *bin, char name[PATH_MAX]) {
  static const char *const places[] = {
      "../lib/python3*/site-packages/h5py.libs/libhdf5-*.so*",
      "../lib/python3*/dist-packages/h5py.libs/libhdf5-*.so*",
      "../lib64/python3*/site-packages/h5py.libs/libhdf5-*.so*",
      "../local/lib/python3*/dist-packages/h5py.libs/libhdf5-*.so*",
      "../lib/libhdf5.so.[0-9]*",
  };
  char pattern[PATH_MAX];
  void *library = NULL;
  for (size_t i = 0; i < sizeof places / sizeof places[0] && library == NULL; i++)
    if (snprintf(pattern, sizeof pattern, "%s/%s", bin, places[i]) < PATH_MAX)
      library = open_match(pattern, name);
  return library;
}

/* Looks beside every python3 on PATH, and in the user's own packages. */
static void *open_of_python(char name[PATH_MAX]) {
  const char *path = secure_getenv("PATH"), *home = secure_getenv("HOME");
  char place[PATH_MAX], python[PATH_MAX];
  void *library = NULL;
  while (path != NULL && *path != '\0' && library == NULL) {
    size_t length = strcspn(path, ":");
    snprintf(place, sizeof place, "%.*s", (int)(length < 3000 ? length : 3000), path);
    snprintf(python, sizeof python, "%.3000s/python3", place);
    if (place[0] == '/' && access(python, X_OK) == 0) library = open_beside(place, name);
    path += length + (path[length] == ':');
  }
  if (library == NULL && home != NULL && home[0] == '/') {
    snprintf(place, sizeof place, "%.3000s/.local/bin", home);
    library = open_beside(place, name);
  }
  return library;
}

static void *find(char name[PATH_MAX]) {
  static const char *const names[] = {"libhdf5.so.310",        "libhdf5_serial.so.310",
                                      "libhdf5.so.200",        "libhdf5_serial.so.200",
                                      "libhdf5.so.103",        "libhdf5_serial.so.103",
                                      "libhdf5_serial.so.100", "libhdf5.so.100",
                                      "libhdf5_serial.so",     "libhdf5.so"};
  /* secure_getenv: a setuid program must not load what its caller names. */
  const char *named = secure_getenv(ENV_HDF5_LIBRARY);
  if (named != NULL && named[0] != '\0') {
    snprintf(name, PATH_MAX, "%s", named);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    const char *why = library == NULL ? dlerror() : NULL;
    if (why != NULL) snprintf(missing, sizeof missing, ENV_HDF5_LIBRARY " names %.200s", why);
    return library;
  }
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    snprintf(name, PATH_MAX, "%s", names[i]);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library != NULL) return library;
  }
  return open_of_python(name);
}

/* ---- its functions ---- */

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
  take(library, "H5Dget_chunk_storage_size", &loaded.H5Dget_chunk_storage_size);
  take(library, "H5Dget_num_chunks", &loaded.H5Dget_num_chunks);
  take(library, "H5Dget_chunk_info", &loaded.H5Dget_chunk_info);
  take(library, "H5Dchunk_iter", &loaded.H5Dchunk_iter);
  take(library, "H5Dget_offset", &loaded.H5Dget_offset);
  take(library, "H5Tget_order", &loaded.H5Tget_order);
  missing[0] = '\0'; /* these are optional */
  return take(library, "H5Lvisit1", &loaded.visit) || take(library, "H5Lvisit", &loaded.visit);
}

static void load(void) {
  char name[PATH_MAX];
  unsigned major = 0, minor = 0, release = 0;
  void *library = find(name);
  if (library == NULL) {
    if (missing[0] == '\0') snprintf(missing, sizeof missing, "none is installed");
    return;
  }
  if (!take_all(library)) return;
  loaded.H5get_libversion(&major, &minor, &release);
  /* Before 1.10 its identifiers have 32 bits. */
  if (major != 1 && major != 2) return;
  if (major == 1 && minor < 10) {
    snprintf(missing, sizeof missing, "%.100s is version %u.%u, older than 1.10", name, major,
             minor);
    return;
  }
  usable = loaded.H5open() >= 0;
  loaded.H5Eset_auto2(0, NULL, NULL); /* print nothing */
}

stow_status hdf5_library_get(const hdf5_library **library, const char *path) {
  pthread_once(&once, load);
  if (usable) return *library = &loaded, STOW_OK;
  return stow_fail(STOW_ERR_UNSUPPORTED,
                   "%s: an HDF5 file, which needs libhdf5: %s; install it (pip install h5py brings "
                   "one; Debian, Ubuntu: apt-get install libhdf5-103-1, or libhdf5-310), or save "
                   "the dataset with numpy.save",
                   path, missing[0] != '\0' ? missing : "it does not start");
}
