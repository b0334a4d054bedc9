/* Host less: what to change so that an object takes less memory. Each function writes one sentence.
 */
#ifndef ADVISE_HOST_LESS_H
#define ADVISE_HOST_LESS_H

#include <stddef.h>

#include "advise/host_case.h"

/* Writes how to hold a table or an array of Python strings or lists. */
void host_less_text(char *out, size_t size, const host_object *o);
/* Writes what to do instead of keeping many small objects. */
void host_less_objects(const host_case *c, char *out, size_t size, const host_object *o);
/* Writes how to keep a container of large things small. */
void host_less_collection(const host_case *c, char *out, size_t size, const host_object *given);

/* Returns whether the change for a container is a bound on its number of entries. */
bool host_less_is_bound(const host_object *o);
/* Returns such a bound, and what the container then holds: the entries that fit a quarter of the
 * limit, at most half of them, with one digit other than 0. */
uint64_t host_less_entries(const host_case *c, const host_object *o, uint64_t *bytes);
/* Returns how many times smaller the elements are in the type that they came in, or in the smallest
 * one that holds them exactly; 1 if none is known. */
unsigned host_less_times(const host_object *o);

#endif
