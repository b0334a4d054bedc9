/* Host kind: one function for each kind. */
#include "advise/host_kind.h"

#include <string.h>

#define OBJECT_SMALL    ((uint64_t)1 << 10) /* bytes of a Python object on average, at most */
#define STRUCTURE_LEAST 10000               /* objects */

bool host_is_text_table(const host_object *o) {
  return o->text_bytes > o->bytes / 2;
}

bool host_is_whole_structure(const host_object *o) {
  return host_is_structure(o) && o->objects >= STRUCTURE_LEAST;
}

bool host_is_of_trees(const host_object *o) {
  return strcmp(o->mark, "tree") == 0 || strcmp(o->mark, "error") == 0;
}

bool host_is_of_errors(const host_object *o) {
  return strcmp(o->mark, "error") == 0;
}

bool host_is_tee(const host_object *o) {
  return strcmp(o->type, "itertools._tee") == 0;
}

bool host_is_of_objects(const host_object *o) {
  if (strcmp(o->mark, "uncollected") == 0 || strcmp(o->mark, "linked") == 0)
    return false; /* host_cycles.c */
  bool small = o->objects > 0 ? o->objects >= 1000 && o->bytes / o->objects < OBJECT_SMALL
                              : o->count >= 1000 && o->element_bytes < SMALL_ELEMENT;
  return ((host_is_container(o) || host_is_whole_structure(o)) && small) ||
         (host_is_array(o) && strcmp(o->of, "object") == 0);
}

bool host_is_made_of(const host_object *o, const char *types) {
  const char *found = o->of[0] != '\0' ? strstr(types, o->of) : NULL;
  return found != NULL && strchr(" ", found[strlen(o->of)]) != NULL;
}

bool host_is_collection(const host_object *o) {
  uint64_t least = host_is_made_of(o, "str bytes ") ? OBJECT_SMALL : SMALL_ELEMENT;
  return host_is_container(o) && (o->count >= 4 || (host_is_grouped(o) && o->objects >= 8)) &&
         o->element_bytes >= least && !host_is_of_objects(o);
}

bool host_is_dict(const host_object *o) {
  return strstr(o->type, "dict") != NULL || strcmp(o->type, "collections.Counter") == 0;
}

bool host_is_queue(const host_object *o) {
  return strstr(o->type, "Queue") != NULL;
}

bool host_is_of_views(const host_object *o) {
  return strcmp(o->mark, "view") == 0;
}

bool host_is_memory_file(const host_object *o) {
  return strncmp(o->type, "_io.", 4) == 0;
}

bool host_is_text(const host_object *o) {
  return strcmp(o->type, "str") == 0 || strcmp(o->type, "bytes") == 0 ||
         strcmp(o->type, "bytearray") == 0 || host_is_memory_file(o);
}

bool host_is_read(const host_object *o) {
  return strstr(o->source, "read_csv(") != NULL || strstr(o->source, "read_table(") != NULL;
}

bool host_is_of_cells(const host_object *o) {
  return strcmp(o->mark, "cells") == 0;
}
