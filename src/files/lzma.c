/* Lzma: see lzma.h. */
#include "files/lzma.h"

#include <pthread.h>

#include "base/library.h"
#include "base/variables.h"

static lzma loaded;
static bool usable;
static char reason[LIBRARY_REASON_BYTES];

static void load(void) {
  static const char *const names[] = {"liblzma.so.5", NULL};
  const library_symbol symbols[] = {{"lzma_stream_decoder", &loaded.stream_decoder},
                                    {"lzma_code", &loaded.code},
                                    {"lzma_end", &loaded.end}};
  void *library = library_open(ENV_LIBLZMA, names, false, reason);
  usable = library != NULL &&
           library_find_all(library, symbols, sizeof symbols / sizeof symbols[0], reason);
}

stow_status lzma_load(const lzma **functions) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  *functions = &loaded;
  if (usable) return STOW_OK;
  return stow_fail(STOW_ERR_UNSUPPORTED,
                   "reading xz needs liblzma, which could not be loaded (%s); install it (Debian, "
                   "Ubuntu: apt-get install liblzma5), or decompress the file first (unxz)",
                   reason);
}
