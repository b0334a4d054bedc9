/* Tied: tensors that an adapter has a second time, because its model's output layer is tied to the
 * embedding.
 *
 * PEFT saves the embedding and the output layer whenever the vocabulary was resized or a user asks
 * for it, and with bias="all" both biases of a tied output layer. The base has each of them once.
 */
#ifndef DATA_WEIGHTS_TIED_H
#define DATA_WEIGHTS_TIED_H

#include "data/weights/adapter.h"
#include "data/weights/weights.h"

/* Marks the adapter's tensors that the base does not have and whose values are those of the tensor
 * that they are tied to: in the adapter or, if it does not replace that one, in the base. */
stow_status tied_mark(weights_result *r, adapter *a);

/* Returns whether `name` is the end of the other name, or all of it. */
bool tied_is_last(const char *name, const char *end);
/* Returns whether `name` is the output layer, or its weight. */
bool tied_is_layer(const char *name, const char *layer);
/* Returns whether the base has the weight of the output layer. */
bool tied_has_layer(const weights_result *r, const char *layer);

#endif
