/* Layers: what adapters change in the tensors of the base, and the matrices they do it with.
 *
 * merge.c lists them, experts.c those of stacked experts. The matrices of a tensor's layers are in
 * memory only while the tensor is processed. */
#ifndef DATA_WEIGHTS_LAYERS_H
#define DATA_WEIGHTS_LAYERS_H

#include "data/weights/adapter.h"
#include "data/weights/parts.h"

typedef enum layer_kind {
  LAYER_LORA,
  LAYER_BIAS,   /* the item is the module's bias, one row: B's bias is added to it */
  LAYER_OLORA,  /* what the initialization OLoRA subtracted from the base */
  LAYER_PISSA,  /* what PiSSA subtracted */
  LAYER_TOKENS, /* rows of the item are replaced */
} layer_kind;

/* B of stacked experts, which has the columns of all of them side by side. It stays in memory until
 * every tensor that needs a part of it was processed, if the budget allows: the base may have a
 * tensor for each expert. */
typedef struct shared_matrix {
  uint8_t *bytes;   /* as stored; NULL: not in memory */
  uint64_t length;  /* of bytes */
  size_t uses;      /* layers that still need it; the last one frees it */
  uint64_t *in_use; /* bytes of all such matrices in memory */
} shared_matrix;

/* One adapter's part in one tensor of the base. */
typedef struct layer {
  size_t item;
  layer_kind kind;
  const adapter *of;
  const adapter_module *module;
  uint32_t file_base; /* what to add to the file numbers of the adapter */
  bool transposed;    /* the base is in x out, or an embedding: A and B change places */
  double scale;
  size_t rank;           /* of one expert */
  size_t row, row_count; /* of the item, if transformers splits it while loading; 0: all of them */

  /* The item is a stack of `block_count` matrices of block_rows rows, each with its own part of A
   * and B: those of the experts from `expert` on. The rows of a block begin at first_row of the
   * expert's matrix. An ordinary layer has one block. */
  size_t experts, expert, block_count, block_rows, first_row;
  shared_matrix *shared; /* NULL: no other layer has the same B */

  /* In memory while the item is processed. `right` has one matrix for each block. DoRA: what to
   * scale each row to; of a transposed layer, what to multiply each column with. */
  double *left, *right, *magnitude;
  bool allow_zero; /* DoRA: a row without length becomes NaN instead of an error */

  size_t next; /* 1 + the next layer of the same item; 0: none */
} layer;

typedef struct layer_list {
  layer *list;
  size_t count, capacity;
  size_t *first;         /* for each item, 1 + its first layer; 0: none */
  uint64_t shared_bytes; /* of shared matrices in memory */
} layer_list;

/* Adds a layer whose item has rows of `row` values. */
stow_status layers_add(layer_list *l, weights_result *r, const layer *added, uint64_t row);
/* Return the layers of an item in the order in which they were added; NULL: no more. */
layer *layers_of(const layer_list *l, size_t item);
layer *layers_next(const layer_list *l, const layer *before);
/* Takes the layers off an item that was replaced. */
void layers_forget(layer_list *l, size_t item);
void layers_free(layer_list *l);
/* Reads the matrices of a layer of any kind but LAYER_OLORA and LAYER_PISSA. */
stow_status layer_load(weights_job *j, layer *l);
void layer_drop(layer *l);
/* Returns the bytes that layer_load needs at its peak. */
uint64_t layer_bytes(const layer *l);

/* Reads rows of an item as float64; `bytes` has space for their stored form. */
stow_status layers_read_rows(weights_job *j, const weights_item *item, size_t row, size_t rows,
                             uint8_t *bytes, double *values);

/* experts.c: Adds the layers of an adapter's modules that change parameters (target_parameters).
 * Afterwards a module with parameters has been added; the others are ordinary layers. */
stow_status layers_add_parameters(layer_list *l, weights_result *r, adapter *a, uint32_t file_base);

/* olora.c: Computes what OLoRA subtracted: the part of W in the space of its first `rank` columns,
 * as left (rows x rank) times right (rank x columns). */
stow_status layer_load_olora(weights_job *j, layer *l);
/* pissa.c: Computes what PiSSA subtracted, in the same form: the part of W that belongs to its
 * `rank` largest singular values. Uses at most `max_bytes` of memory. */
stow_status layer_load_pissa(weights_job *j, layer *l, uint64_t max_bytes);

#endif
