/* Count: how many parameters of the original model each tensor holds.
 *
 * A quantized layer stores several weights in each value (packed 4-bit types), and tensors beside
 * them that no original has: scales, zero points, tables, codebooks. Those count 0. Called by
 * inspect.c. */
#ifndef DATA_WEIGHTS_COUNT_H
#define DATA_WEIGHTS_COUNT_H

#include "arrays/model.h"

/* Sets counts[i] for each tensor of the model. Reads the few values that state a shape, unless the
 * model is remote. */
stow_status count_parameters(uint64_t *counts, model *m);

#endif
