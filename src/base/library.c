/* Library: see library.h. */
#include "base/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *open_one(const char *name, bool global, char reason[LIBRARY_REASON_BYTES]) {
  void *library = dlopen(name, RTLD_NOW | (global ? RTLD_GLOBAL : RTLD_LOCAL));
  if (library != NULL) return library;
  const char *said = dlerror();
  if (said != NULL)
    snprintf(reason, LIBRARY_REASON_BYTES, "%s", said);
  else
    snprintf(reason, LIBRARY_REASON_BYTES, "%s was not found", name);
  return NULL;
}

void *library_open(const char *variable, const char *const *names, bool global,
                   char reason[LIBRARY_REASON_BYTES]) {
  const char *named = variable != NULL ? secure_getenv(variable) : NULL;
  if (named != NULL && named[0] != '\0') return open_one(named, global, reason);
  /* The reason is that of the first name: the one that most systems have. */
  void *library = open_one(names[0], global, reason);
  char other[LIBRARY_REASON_BYTES];
  for (size_t i = 1; library == NULL && names[i] != NULL; i++)
    library = open_one(names[i], global, other);
  return library;
}

bool library_find(void *library, const char *name, void *to) {
  void *found = dlsym(library, name);
  memcpy(to, &found, sizeof found); /* C has no cast from an object pointer to a function pointer */
  return found != NULL;
}

bool library_find_all(void *library, const library_symbol *symbols, size_t count,
                      char reason[LIBRARY_REASON_BYTES]) {
  for (size_t i = 0; i < count; i++)
    if (!library_find(library, symbols[i].name, symbols[i].to)) {
      snprintf(reason, LIBRARY_REASON_BYTES, "it has no %s", symbols[i].name);
      return false;
    }
  return true;
}
