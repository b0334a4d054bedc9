/* Inspect: what a model holds: parameters, bytes by type and layer, equal tensors, what fits a
 * device; and how two models differ.
 *
 * Called by `stowage inspect` for models. Values are read only to find equal tensors (a few KiB of
 * each, all of those that look equal) and to compare two models. */
#ifndef DATA_WEIGHTS_INSPECT_H
#define DATA_WEIGHTS_INSPECT_H

#include "data/weights/weights.h"

typedef struct model_facts {
  model in;
  uint64_t parameters; /* of the model as it was before it was quantized */
  uint64_t file_bytes;
  uint64_t *counts;    /* for each tensor: its parameters (count.h) */
  uint32_t *same;      /* for each tensor: the first one with the same bytes, or itself */
  uint64_t same_bytes; /* size of the copies */
} model_facts;

stow_status model_inspect(model_facts *f, const char *path, const budget *b);
void model_facts_free(model_facts *f);

/* Writes the report. With `vram_bytes`, also lists the types that fit on a device with that much
 * memory; 0: omits that. */
stow_status model_text(buffer *to, const model_facts *f, const char *path, uint64_t vram_bytes,
                       bool bold);
/* Writes one object to `j`. `peak_bytes` 0: omitted. */
void model_json(json *j, const model_facts *f, const char *path, uint64_t vram_bytes,
                uint64_t peak_bytes);

typedef enum diff_kind {
  DIFF_SAME,
  DIFF_TYPE,
  DIFF_VALUES,
  DIFF_SHAPE,
  DIFF_ONLY_A,
  DIFF_ONLY_B
} diff_kind;

typedef struct diff_item {
  const tensor *a, *b; /* NULL: only the other has it */
  diff_kind kind;
  quant_error error;   /* error of b compared with a; values 0: not compared */
  uint64_t not_finite; /* values that differ, of which one or both are NaN or infinite */
} diff_item;

typedef struct model_diff {
  model a, b;
  diff_item *items;
  size_t count, capacity;
  quant_error error; /* over the tensors that were compared */
  uint64_t not_finite;
  uint64_t
      not_compared; /* tensors that differ in values or type, and whose values were not compared */
  packed_layers packed[2]; /* which layers have scales beside them */
} model_diff;

/* Compares all values of tensors with the same name and shape. */
stow_status model_compare(model_diff *d, const char *a, const char *b, const budget *limit);
void model_diff_free(model_diff *d);
bool model_diff_equal(const model_diff *d);
stow_status model_diff_text(buffer *to, const model_diff *d, const char *a, const char *b,
                            bool bold);
void model_diff_json(json *j, const model_diff *d, const char *a, const char *b);

#endif
