/* Weights: rewrites a model file in other types, quantized, pruned, or in other shards.
 *
 *   weights_result r; weights_shrink(&r, "Llama-3-8B/", "small/", &options, &budget);
 *
 * Called by `stowage shrink` and stow_shrink_file for model files. Tensors stream through in chunks
 * below tensor size, so memory stays within the budget for any model. Every output takes its name
 * only when it is complete. The order of the work:
 *
 *   names.c    which tensors are chosen, by their names; linear.c which are linear layers for sure
 *   packed.c   which layers are quantized already; count.c what their tensors count as
 *   plan.c     what each tensor becomes, and which tensors the output has
 *   prune.c    where a pruned tensor's threshold is
 *   sparse.c   how many values a tensor stored sparse keeps, and where they go
 *   output.c   the output's files: shards, headers, index, the other files of a folder
 *   stream.c   the threads: read a chunk, convert it, measure the error, write it
 *   encode.c   one chunk of values; bitmask.c one without its zeros
 *   journal.c  what is already done, for --resume
 *   merge.c    adapters; replicas.c tensors that the output has and the base has not; tied.c those
 *              that an adapter has twice
 *   text.c     the report */
#ifndef DATA_WEIGHTS_WEIGHTS_H
#define DATA_WEIGHTS_WEIGHTS_H

#include "arrays/model.h"
#include "base/hash.h"
#include "base/json.h"
#include "data/budget.h"
#include "data/weights/loaded.h"
#include "data/weights/packed.h"
#include "data/weights/transposed.h"
#include "numbers/quant.h"

typedef enum weights_quant {
  WEIGHTS_NO_QUANT,
  WEIGHTS_Q8_0,
  WEIGHTS_Q4_0,
  WEIGHTS_Q4_K,
  WEIGHTS_Q6_K,
  WEIGHTS_INT8, /* compressed-tensors: one scale per row */
  WEIGHTS_FP8
} weights_quant;

typedef struct weights_options {
  tensor_type type;       /* float tensors become this; TENSOR_NONE: keep */
  weights_quant quantize; /* the weights of the large layers become this */
  double prune;           /* the part of each chosen tensor's values that becomes 0; 0: none */
  bool prune_2_4;         /* or prune two of every four */
  bool prune_model;       /* one threshold for the whole model instead of one per tensor */
  bool sparse; /* store chosen tensors without their zeros, in the layouts of compressed-tensors */
  const char *const *include, *const *exclude; /* glob patterns of tensor names */
  size_t include_count, exclude_count;
  uint64_t shard_bytes; /* start a new file before one exceeds this; 0: keep the files */
  bool join;            /* one file */
  bool dry_run, resume, verify, allow_nan, no_sync;
} weights_options;

typedef enum weights_action {
  ACTION_COPY,   /* copy the bytes */
  ACTION_CAST,   /* cast to another plain type */
  ACTION_BLOCKS, /* GGUF's block types */
  ACTION_INT8,
  ACTION_FP8,
  ACTION_BITMASK,   /* the values that are not 0, and a bit for each value */
  ACTION_BITMASK_24 /* two of every four values, and a bit for each value */
} weights_action;

/* Why a tensor that was chosen for --quantize or --prune stays as it is. */
typedef enum weights_skip {
  SKIP_NONE,
  SKIP_ROWS,   /* rows that do not fill blocks */
  SKIP_SMALL,  /* as small already */
  SKIP_VALUES, /* not floats */
  SKIP_SHAPE,  /* not a matrix */
  SKIP_KIND,   /* an embedding or a router: nothing reads them in 8 bits */
  SKIP_TURNED, /* inputs x outputs */
  SKIP_NAME    /* not known to be a linear layer */
} weights_skip;

/* What one tensor of the input becomes. */
typedef struct weights_item {
  model_tensor from;
  uint32_t home; /* the file of the input that the output's file is named after */
  weights_action action;
  weights_skip skip;
  tensor_type to;
  bool pruned;
  bool requantized;    /* was quantized before */
  uint32_t first_part; /* its tensors in the output */
  uint32_t part_count;
  uint64_t bytes_after;
  uint64_t row; /* values of one row: the last dimension */

  /* Pruning: values of smaller magnitude become 0, and this part of those equal to it. */
  float threshold;
  double tie_part;

  /* ACTION_BITMASK: starts[c] is the number of kept values before chunk c; one more at the end. */
  uint64_t *starts;
  uint64_t kept;

  quant_error error;
  uint64_t zeros;  /* values that pruning set to 0 */
  uint64_t digest; /* hash of the bytes written; independent of the order of the chunks */
  bool done;       /* all of it is in the output */
} weights_item;

/* What a tensor of the output holds of the tensor it was made from. */
typedef enum weights_role {
  ROLE_VALUES, /* every value */
  ROLE_ROWS,   /* the same number of bytes for each row: packed values, scales, bits, offsets */
  ROLE_KEPT,   /* the values that are not 0, row after row */
  ROLE_SHAPE   /* its shape */
} weights_role;

/* One tensor of the output. */
typedef struct weights_part {
  tensor facts;
  weights_role role;
  uint32_t file;
  char *name; /* NULL: the name in the input */
} weights_part;

typedef struct weights_file {
  char *name; /* file name in the output's folder */
  uint64_t bytes;
  uint64_t data_bytes;
} weights_file;

/* What the output has more than the input: replicas.h. */
typedef struct weights_replicas {
  tensor **list; /* tensors of the input under other names; model_tensors of `in` point to them */
  size_t count, capacity;
  uint32_t *layers; /* for each layer of the output, the layer of the base; NULL: as in the base */
  size_t layer_count, layers_before;
  bool untied; /* the output layer has a tensor of its own */
} weights_replicas;

/* The names that transformers gives to the tensors of the base: lookup.h. */
typedef struct lookup {
  loaded_kinds kinds;
  map renames;  /* hash of a name of renames.h to the tensor's place in `items` */
  map loaded;   /* hash of a name of loaded.h to LOADED_PARTS_MAX * its place + its part */
  char **names; /* for each item, its names by loaded.h, one after the other; NULL: its own */
  size_t count;
  bool text; /* the base has an embedding of words: it is, or has, a model of text */
} lookup;

typedef struct weights_result {
  model in;
  weights_replicas replicas;
  transposed transposed;
  lookup lookup;        /* merge: the names of the tensors after loading */
  packed_layers packed; /* which layers of the input are quantized already */
  size_t home_count; /* files of the model itself; merge adds those of the adapters behind them */
  weights_item *items;
  size_t item_count;
  weights_part *parts;
  size_t part_count, part_capacity;
  weights_file *files;
  size_t file_count, file_capacity;
  bool to_folder;
  char model_type[64];         /* of config.json; empty: unknown */
  bool has_config, diffusers;  /* the folder has a config.json; it is one of diffusers */
  bool unnamed;                /* a dry run without the name of an output */
  uint64_t bytes, bytes_after; /* size of all tensors */
  uint64_t file_bytes;         /* written */
  quant_error error;           /* error over everything that changed */
  uint64_t changed, pruned;    /* tensors */
  uint64_t renamed;            /* merge: tensors found under their names in transformers 5 */
  char unknown[256];           /* merge: settings of the adapters that are not known */
  uint64_t carried, left_out;  /* other files of the folder: copied, not copied */
  uint64_t linked_folders;     /* links to folders: not followed */
  bool written, resumed, verified;
} weights_result;

/* Bytes of OUT.resume before the first tensor is complete in the output. */
#define WEIGHTS_JOURNAL_EMPTY 24

/* `out` may be NULL on a dry run. */
stow_status weights_shrink(weights_result *r, const char *in, const char *out,
                           const weights_options *o, const budget *b);
void weights_free(weights_result *r);

/* Parse the words of --quantize, --dtype and --prune. */
stow_status weights_parse_quant(weights_quant *q, const char *text);
stow_status weights_parse_type(tensor_type *t, const char *text);
stow_status weights_parse_prune(weights_options *o, const char *text);
const char *weights_quant_name(weights_quant q);

#endif
