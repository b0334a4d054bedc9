/* Config: the config.json of the output, which says how its weights are stored. */
#ifndef DATA_WEIGHTS_CONFIG_H
#define DATA_WEIGHTS_CONFIG_H

#include "data/weights/parts.h"

/* Returns whether a member of a config is the number of layers. */
bool config_counts_layers(const char *key);

/* Reads from the config.json of the input, if there is one, what kind of model it is. */
stow_status config_look(weights_result *r);

/* Appends the text of the config.json at `in` to `to`. Replaces the values of "dtype" and
 * "torch_dtype" if --dtype changed most of the model, adds "quantization_config" for
 * compressed-tensors, and adapts the number of layers and "tie_word_embeddings" to what a merge
 * made of them. Every other byte stays as it is. */
stow_status config_edit(buffer *to, const weights_job *j, const char *in);

#endif
