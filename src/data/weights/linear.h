/* Linear: which matrices are linear layers for sure.
 *
 * compressed-tensors reads only torch.nn.Linear. A matrix of another module (an embedding, a
 * parameter, a layer of the model's own class) would be loaded without its scale, and nothing would
 * say so. */
#ifndef DATA_WEIGHTS_LINEAR_H
#define DATA_WEIGHTS_LINEAR_H

#include <stdbool.h>
#include <stddef.h>

typedef enum linear_answer {
  LINEAR_UNKNOWN,
  LINEAR_YES,
  LINEAR_OR_TURNED /* if it is not stored as inputs x outputs (transposed.h) */
} linear_answer;

/* Returns whether a tensor with this name is the weight of a torch.nn.Linear in every architecture
 * that is known, and in this one. `model_type` is that of config.json; empty: unknown. */
linear_answer linear_is_known(const char *model_type, const char *name);

/* Returns whether a linear layer may have this last word. */
bool linear_has_word(const char *word, size_t length);

#endif
