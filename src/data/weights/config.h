/* Config: the config.json of the output, which says how its weights are stored. */
#ifndef DATA_WEIGHTS_CONFIG_H
#define DATA_WEIGHTS_CONFIG_H

#include "data/weights/parts.h"

/* Appends the text of the config.json at `in` to `to`. Replaces the values of "dtype" and
 * "torch_dtype" if --dtype changed them, and adds "quantization_config" for compressed-tensors.
 * Every other byte stays as it is. */
stow_status config_edit(buffer *to, const weights_job *j, const char *in);

#endif
