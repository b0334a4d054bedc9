/* Transposed: which layers store their matrix as inputs x outputs, as the Conv1D of GPT-2 does.
 *
 * Called by plan.c, because compressed-tensors reads only layers of outputs x inputs, and by
 * merge.c. The bias decides: it has one value for each output. Layers with the same last name
 * (c_proj) are stored alike, so a square matrix is judged by the others. */
#ifndef DATA_WEIGHTS_TRANSPOSED_H
#define DATA_WEIGHTS_TRANSPOSED_H

#include "arrays/model.h"

typedef enum transposed_kind {
  TRANSPOSED_UNKNOWN, /* no layer of that name has a bias and a matrix that is not square */
  TRANSPOSED_NO,
  TRANSPOSED_YES
} transposed_kind;

typedef struct transposed_leaf {
  const char *name; /* in the model's names; not terminated */
  size_t length;
  unsigned tries;
  transposed_kind kind;
} transposed_leaf;

typedef struct transposed {
  transposed_leaf *list;
  size_t count, capacity;
} transposed;

/* Collects what the biases of a model show. The model must outlive the list. */
stow_status transposed_find(transposed *t, const model *m);
/* Returns how the tensor "….c_attn.weight" is stored. */
transposed_kind transposed_of(const transposed *t, const char *name);
void transposed_free(transposed *t);

#endif
