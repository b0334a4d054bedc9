/* Nvml library: see nvml_library.h. */
#include "device/nvml_library.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/library.h"
#include "base/variables.h"
#include "device/cuda_path.h"
#include "device/nvml_types.h"

typedef struct opening {
  const char *proxy;
  void *library; /* NULL until found */
} opening;

/* A cuda_path_visit. */
static bool try_open(void *user, const char *path) {
  opening *o = user;
  ASSERT(o->library == NULL);
  if (o->proxy != NULL && cuda_path_same(path, o->proxy)) return false;
  /* The loader's dlopen, not the shim's, for which this path means the proxy. */
  void *(*open)(const char *, int);
  if (library_find(RTLD_NEXT, "dlopen", &open)) o->library = open(path, RTLD_NOW | RTLD_LOCAL);
  return o->library != NULL;
}

void *nvml_library_open(const char *proxy) {
  opening o = {.proxy = proxy};
  const char *named = secure_getenv(ENV_LIBNVML);
  if (named != NULL && named[0] != '\0')
    try_open(&o, named);
  else
    cuda_path_beside(NVML_LIBRARY, try_open, &o);
  return o.library;
}
