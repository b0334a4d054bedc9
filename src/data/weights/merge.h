/* Merge: LoRA adapters added into the model they were trained for.
 *
 *   W' = W + scale * B A          and, with DoRA, each row of W' scaled to its trained magnitude
 *
 * Computed in float64 and rounded once to the type of W, so the result is the float64 merge rounded
 * to nearest. Several adapters are applied in the order given, before that rounding. Rows stream
 * through: only the thin matrices A and B of the tensor at hand are in memory (layers.h). */
#ifndef DATA_WEIGHTS_MERGE_H
#define DATA_WEIGHTS_MERGE_H

#include "data/weights/weights.h"

typedef struct merge_result {
  weights_result weights;
  uint64_t merged, replaced; /* tensors */
  size_t adapter_count;
} merge_result;

/* Merges adapters. Uses these options: shard_bytes, join, dry_run, resume, verify, allow_nan and
 * no_sync. */
stow_status weights_merge(merge_result *r, const char *base, const char *const *adapters,
                          size_t adapter_count, const char *out, const weights_options *o,
                          const budget *b);
void merge_free(merge_result *r);
stow_status merge_text(buffer *to, const merge_result *r, const char *base, const char *out,
                       const weights_options *o, bool bold);

#endif
