/* Loaded: the names that transformers 5 gives to the tensors of a model while it loads them, by the
 * kind of the model (its conversion_mapping.py).
 *
 * Called by lookup.c: an adapter has these names, the base those of its file. */
#ifndef DATA_WEIGHTS_LOADED_H
#define DATA_WEIGHTS_LOADED_H

#include "arrays/model.h"

#define LOADED_NAME_MAX  512
#define LOADED_PARTS_MAX 4

/* What config.json calls the model and its parts ("model_type"), with single spaces between. */
typedef struct loaded_kinds {
  char words[512];
} loaded_kinds;

/* A tensor that is split while it is loaded has a name for each part. The parts are equal blocks of
 * rows, in this order. */
typedef struct loaded_name {
  char list[LOADED_PARTS_MAX][LOADED_NAME_MAX];
  size_t count;
} loaded_name;

/* Reads the config.json beside the model. Without one, no kind is known. */
void loaded_kinds_read(loaded_kinds *k, const model *m);

/* Writes the name of a tensor after loading: its own name if no rule changes it. A name that is too
 * long has none (count is 0). */
void loaded_name_of(loaded_name *to, const loaded_kinds *k, const char *name);

#endif
