/* Nearest: finds the known name that a mistyped one most likely meant. */
#ifndef BASE_NEAREST_H
#define BASE_NEAREST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct nearest {
  const char *word; /* what was typed */
  size_t best;      /* a larger distance is another name, not a typing error */
  bool found;
} nearest;

/* Begins a search. `word` stays the caller's and must outlive it. */
nearest nearest_begin(const char *word);
/* Returns whether `name` is close to the word and closer than every name before it. */
bool nearest_try(nearest *n, const char *name);

#endif
