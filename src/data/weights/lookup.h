/* Lookup: which tensor of the base a name of an adapter belongs to.
 *
 * An adapter may have been saved with more or fewer words in front of its names, and with the names
 * of transformers 4, which are those of most files, or of transformers 5, which renames modules
 * while it loads them (renames.h, loaded.h). A name is taken only if exactly one tensor fits. */
#ifndef DATA_WEIGHTS_LOOKUP_H
#define DATA_WEIGHTS_LOOKUP_H

#include "data/weights/adapter.h"
#include "data/weights/weights.h"

/* A tensor of the base, or one of the equal blocks of rows that transformers splits it into. */
typedef struct base_place {
  size_t item;
  size_t part, parts; /* `parts` is 1: all of it */
} base_place;

/* Lists the names of the tensors after loading. */
stow_status lookup_open(weights_result *r);
void lookup_close(lookup *l);

/* Finds the tensor with this name. Returns how many fit; *at is one of them. */
size_t lookup_find(const weights_result *r, const char *name, base_place *at);
/* Returns whether lookup_find found the item only under its name after loading. */
bool lookup_renamed(const weights_result *r, const char *name, size_t item);
/* The error of a tensor that was not found, or found `found` times. */
stow_status lookup_not_found(const weights_result *r, const adapter *a, const char *name,
                             size_t found);

#endif
