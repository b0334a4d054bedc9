/* Packed: which tensors belong to layers that are quantized already, by any method.
 *
 *   packed_layers p = {0}; packed_find(&p, &model); … packed_holds(&p, t) … packed_free(&p);
 *
 * A layer whose weights are packed (integers, float8, float4) has scales, zero points, tables or
 * codebooks beside them. None of its tensors means anything without the others, so a type for the
 * whole model leaves them all as they are. Known from the names and types that the methods write
 * and, if config.json has a quantization_config, from integers alone. */
#ifndef DATA_WEIGHTS_PACKED_H
#define DATA_WEIGHTS_PACKED_H

#include "arrays/model.h"
#include "base/hash.h"

typedef struct packed_layers {
  map layers;      /* hashes of the names of layers */
  bool any;        /* the model has such layers */
  bool sparse;     /* or layers without their zeros */
  char method[64]; /* of quantization_config; empty: unknown */
} packed_layers;

stow_status packed_find(packed_layers *p, const model *m);
/* Returns whether the tensor is a part of such a layer, other than its bias. */
bool packed_holds(const packed_layers *p, const tensor *t);
/* Returns whether the layer of a tensor's name is one; the model need not have the tensor. */
bool packed_has_layer(const packed_layers *p, const char *name);
/* Returns the name of the method, or "an unknown method". */
const char *packed_method(const packed_layers *p);
void packed_free(packed_layers *p);

#endif
