/* Model: lists the tensors of a model file, reads them in pieces, and writes a safetensors file
 * tensor by tensor.
 *
 *   stow_model *model;
 *   stow_model_open(&model, "Llama-3-8B/", NULL);
 *   stow_model_tensor t = STOW_MODEL_TENSOR_INIT;
 *   stow_model_get_tensor(model, 0, &t);
 *   stow_model_piece piece = STOW_MODEL_PIECE_INIT;
 *   piece.count = t.count, piece.dtype = "float32", piece.to = values;
 *   stow_model_read(model, 0, &piece);
 *   stow_model_close(model);
 *
 * Reads safetensors, GGUF, PyTorch's .pt and .bin, an index of several files, and folders as
 * Hugging Face lays them out. A pickle is never executed. Values go straight to the caller's
 * memory: a read with a conversion uses at most 1 MiB more.
 *
 * Threads: any number may read one model at a time. Any number may use one writer, each for its own
 * values. Fork: a child may read its parent's model. Link with -lstowage-data. */
#ifndef STOWAGE_MODEL_H
#define STOWAGE_MODEL_H

#include <stdint.h>

#include <stowage/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stow_model stow_model;

typedef struct stow_model_options {
  uint32_t struct_bytes; /* sizeof(stow_model_options) */
  uint32_t reserved;     /* 0 */
  uint64_t memory_bytes; /* the most memory for the list of tensors; 0: 64 MiB */
} stow_model_options;
#define STOW_MODEL_OPTIONS_INIT                                                                    \
  { sizeof(stow_model_options), 0, 0 }

/* Opens a file, an index or a folder, and reads the headers only; NULL options are the defaults.
 * STOW_ERR_FORMAT names the file that is wrong. `*model` is NULL on failure. */
STOW_API stow_status stow_model_open(stow_model **model, const char *path,
                                     const stow_model_options *options);
/* Closes a model; NULL is allowed. */
STOW_API void stow_model_close(stow_model *model);

typedef struct stow_model_info {
  uint32_t struct_bytes; /* sizeof(stow_model_info), set by the caller */
  uint32_t file_count;
  const char *format; /* "safetensors", "gguf", "pytorch" */
  uint64_t tensor_count;
  uint64_t bytes;       /* size of all tensors as stored */
  const char *metadata; /* the __metadata__ of a single safetensors file as JSON; NULL: none */
} stow_model_info;
#define STOW_MODEL_INFO_INIT                                                                       \
  { sizeof(stow_model_info), 0, NULL, 0, 0, NULL }
STOW_API stow_status stow_model_get_info(const stow_model *model, stow_model_info *info);

typedef struct stow_model_tensor {
  uint32_t struct_bytes; /* sizeof(stow_model_tensor), set by the caller */
  uint32_t dims;
  const char *name;
  const char *dtype;     /* "float32", "bfloat16"; "Q4_K", "F8_E4M3" where NumPy has no name */
  const uint64_t *shape; /* slowest dimension first */
  uint64_t count, bytes;
  uint32_t block_values; /* values stored in one block: 1, or 32 or 256 if quantized */
  uint32_t block_bytes;
  uint32_t convertible; /* 1: stow_model_read can convert it to another type */
  uint32_t file;        /* number of its file, from 0 */
  uint64_t offset;      /* in that file */
  const char *path;     /* of that file */
  /* 1: packed values, or scales, of layers that are quantized with scales beside them. Converted,
   * neither is the layer's weights. */
  uint32_t quantized;
  uint32_t reserved; /* 0 */
} stow_model_tensor;
#define STOW_MODEL_TENSOR_INIT                                                                     \
  { sizeof(stow_model_tensor), 0, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0 }
/* Returns one tensor. Tensors are ordered by file and by their order in its header.
 * STOW_ERR_NOT_FOUND: there is no such tensor. */
STOW_API stow_status stow_model_get_tensor(const stow_model *model, uint64_t index,
                                           stow_model_tensor *tensor);

typedef struct stow_model_piece {
  uint32_t struct_bytes; /* sizeof(stow_model_piece) */
  uint32_t allow_nan;    /* 1: values too large for dtype become infinite; 0: they are refused */
  uint64_t first, count; /* first value and number of values, in C order */
  /* Reads `runs` such pieces, `step` values apart; 0 runs: one piece. */
  uint64_t runs, step;
  const char *dtype; /* convert to this type; NULL: the bytes as stored, whole blocks */
  void *to;          /* holds all pieces, one after another */
} stow_model_piece;
#define STOW_MODEL_PIECE_INIT                                                                      \
  { sizeof(stow_model_piece), 0, 0, 0, 0, 0, NULL, NULL }
/* Reads values of a tensor. STOW_ERR_INVALID: the piece reaches outside the tensor, or not whole
 * blocks, or values are too large for dtype; STOW_ERR_UNSUPPORTED: the type cannot be converted. */
STOW_API stow_status stow_model_read(stow_model *model, uint64_t index,
                                     const stow_model_piece *piece);
/* Returns STOW_ERR_IO if a file changed since it was opened. Call it after the last read. */
STOW_API stow_status stow_model_check(const stow_model *model);

/* ---- writing ---- */

typedef struct stow_model_writer stow_model_writer;

typedef struct stow_model_entry {
  uint32_t struct_bytes; /* sizeof(stow_model_entry) */
  uint32_t dims;         /* at most 16 */
  const char *name;
  const char *dtype; /* a number type, or a safetensors type: "F8_E4M3" */
  const uint64_t *shape;
  uint32_t allow_nan; /* 1: converted values may be NaN or infinite; 0: they are refused */
  uint32_t reserved;  /* 0 */
} stow_model_entry;
#define STOW_MODEL_ENTRY_INIT                                                                      \
  { sizeof(stow_model_entry), 0, NULL, NULL, NULL, 0, 0 }

/* Starts a safetensors file. Writes to PATH.partial; commit renames it. `entries` points to `count`
 * pointers. `metadata` is a JSON object of strings, or NULL. */
STOW_API stow_status stow_model_writer_open(stow_model_writer **writer, const char *path,
                                            const stow_model_entry *const *entries, uint64_t count,
                                            const char *metadata);
/* Writes `count` values of entry `index`, starting at value `first`, and converts them from `dtype`
 * (NULL: they have the entry's type). STOW_ERR_INVALID: converted values are NaN or infinite, or
 * too large for the entry's type, and the entry does not allow it. */
STOW_API stow_status stow_model_writer_put(stow_model_writer *writer, uint64_t index,
                                           uint64_t first, uint64_t count, const char *dtype,
                                           const void *from);
/* Waits until the file is on disk and renames it to its final name. STOW_ERR_STATE: values of an
 * entry are missing. Close the writer in both cases. */
STOW_API stow_status stow_model_writer_commit(stow_model_writer *writer);
/* Closes a writer. Without a commit, removes the partial file. NULL is allowed. */
STOW_API void stow_model_writer_close(stow_model_writer *writer);

#ifdef __cplusplus
}
#endif
#endif
