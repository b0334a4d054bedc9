/* Verbs: the table of verbs, generated from verbs.def, and lookups in it. */
#include "cli/verb.h"

#include <string.h>

#define VERB(name) extern const verb verb_##name;
#include "cli/verbs.def"
#undef VERB

static const verb *const verbs[] = {
#define VERB(name) &verb_##name,
#include "cli/verbs.def"
#undef VERB
    NULL,
};

const verb *const *verb_all(void) {
  return verbs;
}

const verb *verb_at(size_t i) {
  return i < sizeof verbs / sizeof verbs[0] ? verbs[i] : NULL;
}

const verb *verb_find(const char *name) {
  for (size_t i = 0; verbs[i] != NULL; i++)
    if (strcmp(verbs[i]->name, name) == 0) return verbs[i];
  return NULL;
}
