/* Renames: the names that transformers 5 gives to tensors and modules of older checkpoints while it
 * loads them (its conversion_mapping.py).
 *
 * Called by config.c, because quantization_config names modules as they are after loading, and by
 * merge.c, because adapters trained with transformers 5 have its names. */
#ifndef DATA_WEIGHTS_RENAMES_H
#define DATA_WEIGHTS_RENAMES_H

#include <stddef.h>

#define RENAMES_MAX      10
#define RENAMES_NAME_MAX 512

typedef struct renames {
  char list[RENAMES_MAX][RENAMES_NAME_MAX];
  size_t count;
} renames;

/* Lists other names that `name` may have after loading. Names that are too long have none. */
void renames_of(renames *to, const char *name);

/* Returns what a module may be called at the end after loading, if its name ends with certain
 * words; `name` has a star for each number. Call with *at = 0 first; NULL: no more. */
const char *renames_ending(const char *name, size_t *at);

#endif
