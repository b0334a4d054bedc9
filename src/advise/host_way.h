/* Host way: calls that allocate much at once, found by the text of the line, and what to call
 * instead. Used by the host_*.c files. */
#ifndef ADVISE_HOST_WAY_H
#define ADVISE_HOST_WAY_H

#include "advise/causes.h"
#include "run/host_record.h"

typedef struct host_way {
  const char
      *calls; /* names of functions, between spaces; one that begins with a sign is plain text */
  cause_id id;
  const char *what;   /* what the call makes, after "…, 304.0 MiB so far: " */
  const char *change; /* the fix, and its cost */
  const char *cost;
} host_way;

/* Returns the way of a line of Python, or NULL. */
const host_way *host_way_of(const char *source);

/* Returns the way of the library that the program's innermost line has called, or NULL. */
const host_way *host_way_of_library(const host_record *r);

#endif
