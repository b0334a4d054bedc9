/* Curl: see curl.h. */
#include "files/curl.h"

#include <pthread.h>
#include <stdio.h>

#include "base/library.h"

static curl loaded;
static bool usable;
static char reason[LIBRARY_REASON_BYTES];

static void load(void) {
  /* Debian's variants differ only in their TLS library. */
  static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl-nss.so.4",
                                      NULL};
  int (*global_init)(long flags);
  const library_symbol symbols[] = {{"curl_global_init", &global_init},
                                    {"curl_easy_init", &loaded.easy_init},
                                    {"curl_easy_setopt", &loaded.easy_setopt},
                                    {"curl_easy_perform", &loaded.easy_perform},
                                    {"curl_easy_getinfo", &loaded.easy_getinfo},
                                    {"curl_easy_cleanup", &loaded.easy_cleanup},
                                    {"curl_easy_strerror", &loaded.easy_strerror},
                                    {"curl_slist_append", &loaded.list_append},
                                    {"curl_slist_free_all", &loaded.list_free}};
  void *library = library_open(NULL, names, false, reason);
  usable = library != NULL &&
           library_find_all(library, symbols, sizeof symbols / sizeof symbols[0], reason);
  if (usable && global_init(3) != 0) { /* TLS and sockets */
    usable = false;
    snprintf(reason, sizeof reason, "it could not be initialized");
  }
}

stow_status curl_load(const curl **functions) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  *functions = &loaded;
  if (usable) return STOW_OK;
  return stow_fail(STOW_ERR_UNSUPPORTED,
                   "reading URLs needs libcurl, which could not be loaded (%s); install it "
                   "(Debian, Ubuntu: apt-get install libcurl4)",
                   reason);
}
