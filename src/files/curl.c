/* Curl: see curl.h. */
#include "files/curl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

static curl loaded;
static bool there;
static char reason[256];

static bool take(void *library, const char *name, void *function) {
  void *found = dlsym(library, name);
  if (found == NULL) snprintf(reason, sizeof reason, "it has no %s", name);
  *(void **)function = found;
  return found != NULL;
}

static void load(void) {
  /* Debian's variants differ only in their TLS library. */
  static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl-nss.so.4"};
  void *library = NULL;
  for (size_t i = 0; i < sizeof names / sizeof names[0] && library == NULL; i++)
    library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    const char *said = dlerror();
    snprintf(reason, sizeof reason, "%s", said != NULL ? said : "libcurl.so.4 was not found");
    return;
  }
  int (*global_init)(long flags);
  there = take(library, "curl_global_init", &global_init) &&
          take(library, "curl_easy_init", &loaded.easy_init) &&
          take(library, "curl_easy_setopt", &loaded.easy_setopt) &&
          take(library, "curl_easy_perform", &loaded.easy_perform) &&
          take(library, "curl_easy_getinfo", &loaded.easy_getinfo) &&
          take(library, "curl_easy_cleanup", &loaded.easy_cleanup) &&
          take(library, "curl_easy_strerror", &loaded.easy_strerror) &&
          take(library, "curl_slist_append", &loaded.list_append) &&
          take(library, "curl_slist_free_all", &loaded.list_free);
  if (there && global_init(3) != 0) { /* TLS and sockets */
    there = false;
    snprintf(reason, sizeof reason, "it could not be initialized");
  }
}

stow_status curl_load(const curl **functions) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  *functions = &loaded;
  if (there) return STOW_OK;
  return stow_fail(STOW_ERR_UNSUPPORTED,
                   "reading URLs needs libcurl, which could not be loaded (%s); install it "
                   "(Debian, Ubuntu: apt-get install libcurl4)",
                   reason);
}
