/* Transposed: which layers store their matrix as inputs x outputs, as the Conv1D of GPT-2 does.
 *
 * Called by plan.c, because compressed-tensors reads only layers of outputs x inputs, and by
 * merge.c. The bias decides: it has one value for each output. Layers of one part of a model
 * ("decoder.transformer") with the same last name (c_proj) are stored alike, so a square matrix is
 * judged by the others. Where no bias shows it, config.json does: transformers has Conv1D in a few
 * architectures only, under four names. */
#ifndef DATA_WEIGHTS_TRANSPOSED_H
#define DATA_WEIGHTS_TRANSPOSED_H

#include "arrays/model.h"

typedef enum transposed_kind {
  TRANSPOSED_UNKNOWN, /* no bias shows it, and there is no config.json of a known architecture */
  TRANSPOSED_NO,
  TRANSPOSED_YES,
  TRANSPOSED_MIXED /* a part of the model has Conv1D: it is not known whether this one has */
} transposed_kind;

typedef struct transposed_leaf {
  const char *part; /* the first words and the last: in the model's names; not terminated */
  size_t part_length;
  const char *name;
  size_t length;
  unsigned tries;
  transposed_kind kind;
} transposed_leaf;

#define TRANSPOSED_PARTS_MAX 8

/* A part of the model with a config of its own, as "decoder" in VisionEncoderDecoder. */
typedef struct transposed_part {
  char name[32]; /* the key in config.json, without "_config" */
  bool conv1d;   /* its architecture has Conv1D */
} transposed_part;

typedef struct transposed {
  transposed_leaf *list;
  size_t count, capacity;
  bool known;  /* config.json names an architecture of transformers */
  bool conv1d; /* which has Conv1D */
  transposed_part parts[TRANSPOSED_PARTS_MAX];
  size_t part_count;
} transposed;

/* Collects what the biases and the config.json of a model show. The model must outlive the list. */
stow_status transposed_find(transposed *t, const model *m);
/* Returns how the tensor "….c_attn.weight" is stored. */
transposed_kind transposed_of(const transposed *t, const char *name);
void transposed_free(transposed *t);

#endif
