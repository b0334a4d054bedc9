/* Config: the config.json of the output, which says how its weights are stored. */
#ifndef DATA_WEIGHTS_CONFIG_H
#define DATA_WEIGHTS_CONFIG_H

#include "data/weights/parts.h"

/* Copies config.json. Replaces the values of "dtype" and "torch_dtype" if --dtype changed them, and
 * adds "quantization_config" for compressed-tensors. Every other byte stays as it is. */
stow_status config_write(weights_job *j, const char *in, const char *out);

#endif
