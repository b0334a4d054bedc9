/* Lzma: see lzma.h. */
#include "files/lzma.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/variables.h"

static lzma loaded;
static bool there;
static char reason[256];

static bool take(void *library, const char *name, void *function) {
  void *found = dlsym(library, name);
  if (found == NULL) snprintf(reason, sizeof reason, "it has no %s", name);
  *(void **)function = found;
  return found != NULL;
}

static void load(void) {
  const char *given = getenv(ENV_LIBLZMA);
  void *library = dlopen(given != NULL ? given : "liblzma.so.5", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    const char *said = dlerror();
    snprintf(reason, sizeof reason, "%s", said != NULL ? said : "liblzma.so.5 was not found");
    return;
  }
  there = take(library, "lzma_stream_decoder", &loaded.stream_decoder) &&
          take(library, "lzma_code", &loaded.code) && take(library, "lzma_end", &loaded.end);
}

stow_status lzma_load(const lzma **functions) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  *functions = &loaded;
  if (there) return STOW_OK;
  return stow_fail(STOW_ERR_UNSUPPORTED,
                   "reading xz needs liblzma, which could not be loaded (%s); install it (Debian, "
                   "Ubuntu: apt-get install liblzma5), or decompress the file first (unxz)",
                   reason);
}
