/* Replicas: tensors that the output of a merge has and the base has not.
 *
 *   layer_replication   PEFT repeats layers of the base, and each copy has its own adapter. The
 *                       output has every copy as a layer of its own.
 *   tied output layer   The base has one tensor for the embedding and the output layer. If an
 *                       adapter changes only one of them, or each in its own way, the output has
 *                       two tensors.
 *
 * Both also change config.json (config.c), so that base and output must be folders. */
#ifndef DATA_WEIGHTS_REPLICAS_H
#define DATA_WEIGHTS_REPLICAS_H

#include "data/weights/adapter.h"
#include "data/weights/weights.h"

/* Adds the tensors that the adapters need to r->in.list, before the plan. Uses at most `max_bytes`
 * of memory for them. */
stow_status replicas_add(weights_result *r, const adapter *adapters, size_t count, const char *out,
                         uint64_t max_bytes);
void replicas_free(weights_replicas *r);

#endif
