/* Turned: which layers store their matrix as inputs x outputs, as the Conv1D of GPT-2 does.
 *
 * Called by plan.c, because compressed-tensors reads only layers of outputs x inputs, and by
 * merge.c. The bias decides: it has one value for each output. Layers with the same last name
 * (c_proj) are stored alike, so a square matrix is judged by the others. */
#ifndef DATA_WEIGHTS_TURNED_H
#define DATA_WEIGHTS_TURNED_H

#include "arrays/model.h"

typedef enum turned_kind {
  TURNED_UNKNOWN, /* no layer of that name has a bias and a matrix that is not square */
  TURNED_NO,
  TURNED_YES
} turned_kind;

typedef struct turned_leaf {
  const char *name; /* in the model's names; not terminated */
  size_t length;
  unsigned tries;
  turned_kind kind;
} turned_leaf;

typedef struct turned {
  turned_leaf *list;
  size_t count, capacity;
} turned;

/* Collects what the biases of a model show. The model must outlive the list. */
stow_status turned_find(turned *t, const model *m);
/* Returns how the tensor "….c_attn.weight" is stored. */
turned_kind turned_of(const turned *t, const char *name);
void turned_free(turned *t);

#endif
