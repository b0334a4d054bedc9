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

#include "base/library.h"
#include "base/variables.h"

static hdf5_library loaded;
static bool usable;
static char missing[LIBRARY_REASON_BYTES];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- where it may be ---- */

/* Opens the first library that `pattern` matches. */
static void *open_match(const char *pattern) {
  glob_t all;
  void *library = NULL;
  if (glob(pattern, 0, NULL, &all) != 0) return NULL;
  char reason[LIBRARY_REASON_BYTES];
  for (size_t i = 0; i < all.gl_pathc && library == NULL; i++)
    library = library_open(NULL, (const char *const[]){all.gl_pathv[i], NULL}, false, reason);
  globfree(&all);
  return library;
}

/* Opens a library of the Python environment with the folder `bin`: h5py's (its wheels include one)
 * or conda's. */
static void *open_beside(const char *bin) {
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
      library = open_match(pattern);
  return library;
}

/* Looks beside every python3 on PATH, and in the user's own packages. */
static void *open_of_python(void) {
  const char *path = secure_getenv("PATH"), *home = secure_getenv("HOME");
  char place[PATH_MAX], python[PATH_MAX];
  void *library = NULL;
  while (path != NULL && *path != '\0' && library == NULL) {
    size_t length = strcspn(path, ":");
    snprintf(place, sizeof place, "%.*s", (int)(length < 3000 ? length : 3000), path);
    snprintf(python, sizeof python, "%.3000s/python3", place);
    if (place[0] == '/' && access(python, X_OK) == 0) library = open_beside(place);
    path += length + (path[length] == ':');
  }
  if (library == NULL && home != NULL && home[0] == '/') {
    snprintf(place, sizeof place, "%.3000s/.local/bin", home);
    library = open_beside(place);
  }
  return library;
}

static void *find(void) {
  static const char *const names[] = {"libhdf5.so.310",
                                      "libhdf5_serial.so.310",
                                      "libhdf5.so.200",
                                      "libhdf5_serial.so.200",
                                      "libhdf5.so.103",
                                      "libhdf5_serial.so.103",
                                      "libhdf5_serial.so.100",
                                      "libhdf5.so.100",
                                      "libhdf5_serial.so",
                                      "libhdf5.so",
                                      NULL};
  char reason[LIBRARY_REASON_BYTES];
  void *library = library_open(ENV_HDF5_LIBRARY, names, false, reason);
  if (library != NULL) return library;
  const char *named = secure_getenv(ENV_HDF5_LIBRARY);
  if (named == NULL || named[0] == '\0') return open_of_python();
  snprintf(missing, sizeof missing, ENV_HDF5_LIBRARY " names %.200s", reason);
  return NULL;
}

/* ---- its functions ---- */

static bool find_functions(void *library) {
#define HDF5_TAKE(name, result, parameters) {#name, &loaded.name},
  const library_symbol symbols[] = {HDF5_FUNCTIONS(HDF5_TAKE)};
#undef HDF5_TAKE
  if (!library_find_all(library, symbols, sizeof symbols / sizeof symbols[0], missing))
    return false;
  /* These are optional. */
  library_find(library, "H5Dget_chunk_storage_size", &loaded.H5Dget_chunk_storage_size);
  library_find(library, "H5Pget_chunk_opts", &loaded.H5Pget_chunk_opts);
  if (!library_find(library, "H5Dread_chunk", &loaded.read_chunk)) /* 2.0 has two versions of it */
    library_find(library, "H5Dread_chunk1", &loaded.read_chunk);
  library_find(library, "H5Dget_num_chunks", &loaded.H5Dget_num_chunks);
  library_find(library, "H5Dget_chunk_info", &loaded.H5Dget_chunk_info);
  library_find(library, "H5Dchunk_iter", &loaded.H5Dchunk_iter);
  library_find(library, "H5Dget_offset", &loaded.H5Dget_offset);
  library_find(library, "H5Tget_order", &loaded.H5Tget_order);
  if ((library_find(library, "H5Lvisit1", &loaded.visit) ||
       library_find(library, "H5Lvisit", &loaded.visit)) &&
      (library_find(library, "H5Lget_info1", &loaded.link_info) ||
       library_find(library, "H5Lget_info", &loaded.link_info)))
    return true;
  snprintf(missing, sizeof missing, "it has no H5Lvisit or no H5Lget_info");
  return false;
}

static void load(void) {
  unsigned major = 0, minor = 0, release = 0;
  void *library = find();
  if (library == NULL) {
    if (missing[0] == '\0') snprintf(missing, sizeof missing, "none is installed");
    return;
  }
  if (!find_functions(library)) return;
  loaded.H5get_libversion(&major, &minor, &release);
  /* Before 1.10 its identifiers have 32 bits. */
  if (major != 1 && major != 2) return;
  if (major == 1 && minor < 10) {
    Dl_info from = {0};
    void *function;
    memcpy(&function, &loaded.H5open, sizeof function);
    snprintf(missing, sizeof missing, "%.100s is version %u.%u, older than 1.10",
             dladdr(function, &from) != 0 && from.dli_fname != NULL ? from.dli_fname : "libhdf5",
             major, minor);
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
