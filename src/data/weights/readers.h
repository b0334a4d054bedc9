/* Readers: which kinds of models transformers loads in the layouts of compressed-tensors. */
#ifndef DATA_WEIGHTS_READERS_H
#define DATA_WEIGHTS_READERS_H

#include <stdbool.h>

typedef enum readers_answer { READERS_UNKNOWN, READERS_YES, READERS_NO } readers_answer;

/* Returns whether transformers 5.23 loads a model of this `model_type` in int8 or, without `int8`,
 * in fp8. */
readers_answer readers_load(const char *model_type, bool int8);

#endif
