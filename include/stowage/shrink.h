/* Shrink: rewrites a data file in the smallest types that hold every value, sparse if that is
 * smaller; or a model file in the requested types.
 *
 *   stow_shrink *shrink;
 *   stow_shrink_file(&shrink, "train.npy", "small.npy", NULL);
 *   puts(stow_shrink_text(shrink));
 *   stow_shrink_close(shrink);
 *
 * The output's ending chooses its format: .npy or .npz. Every value stays exact unless a tolerance
 * allows rounding. A model (safetensors, GGUF, PyTorch's .pt and .bin, or a folder of Hugging Face)
 * is written as .safetensors, .gguf or a folder; `dtype` is then f16, bf16 or f32; values are
 * rounded, and the items report the error. The input is never changed; the output is the old file
 * or the complete new one. Texts stay valid until the result is closed. The call uses one process;
 * only the command shares a file among the ranks of an MPI job.
 *
 * Threads: a result does not change; any number may read it. Fork: a child may use its copy; a
 * child of a process that is shrinking must not touch the output. Link with -lstowage-data. */
#ifndef STOWAGE_SHRINK_H
#define STOWAGE_SHRINK_H

#include <stdint.h>

#include <stowage/inspect.h>
#include <stowage/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stow_shrink stow_shrink;

/* Flags of stow_shrink_options. */
/* The tolerance is absolute, not relative to each value. */
#define STOW_SHRINK_ABSOLUTE UINT32_C(1)
#define STOW_SHRINK_DRY_RUN  UINT32_C(2)  /* decide, but write nothing */
#define STOW_SHRINK_RESUME   UINT32_C(4)  /* continue an interrupted run */
#define STOW_SHRINK_NO_SYNC  UINT32_C(8)  /* do not wait until the output is on the disk */
#define STOW_SHRINK_FORCE    UINT32_C(16) /* write a table even if it becomes larger */
/* For models: */
#define STOW_SHRINK_VERIFY      UINT32_C(32)  /* read the output back and compare checksums */
#define STOW_SHRINK_ALLOW_NAN   UINT32_C(64)  /* write NaN and infinities too */
#define STOW_SHRINK_JOIN        UINT32_C(128) /* write one file instead of shards */
#define STOW_SHRINK_PRUNE_MODEL UINT32_C(256) /* prune with one threshold for the whole model */
/* Store the layers of a model without their zeros, in the layouts of compressed-tensors. Arrays
 * ignore it: they become sparse where that is smaller. */
#define STOW_SHRINK_SPARSE UINT32_C(512)

typedef struct stow_shrink_options {
  uint32_t struct_bytes; /* sizeof(stow_shrink_options) */
  uint32_t flags;        /* STOW_SHRINK_… */
  const char *dtype;     /* write this type, and fail if a value would be lost; NULL: the smallest
                          * type */
  double tolerance;      /* the largest rounding error allowed for float16 and float32; 0: none */
  uint64_t memory_bytes; /* as in stow_inspect_options, like the members below */
  uint32_t threads;
  uint32_t names;
  const char *raw_dtype;
  const uint64_t *raw_shape;
  uint32_t raw_dims;
  uint32_t purpose; /* STOW_FOR_… */
  stow_data_progress progress;
  void *progress_user;
  /* For tables: the names of columns to write (NULL: all), and of columns to leave out. Each list
   * ends with NULL. A name may itself be a list: "a,b". */
  const char *const *columns;
  const char *const *drop;
  /* For models. quantize: "q8_0", "q6_k", "q4_k", "q4_0" (GGUF), "int8" or "fp8" (safetensors).
   * prune: "50%" or "2:4". The lists of patterns name tensors to change or to leave as they are;
   * each ends with NULL. shard_bytes: the size of one file; 0: as in the input. */
  const char *quantize;
  const char *prune;
  const char *const *include;
  const char *const *exclude;
  uint64_t shard_bytes;
  const stow_table_options *table; /* as in stow_inspect_options */
} stow_shrink_options;
#define STOW_SHRINK_OPTIONS_INIT                                                                   \
  {                                                                                                \
    sizeof(stow_shrink_options), 0, NULL, 0, 0, 0, 0, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL,    \
        NULL, NULL, NULL, NULL, 0, NULL                                                            \
  }

/* Shrinks `in` to `out`; NULL options are the defaults. STOW_ERR_INVALID: the type or the tolerance
 * cannot hold the values, or the ending of `out` is unknown. `*shrink` is NULL on failure. */
STOW_API stow_status stow_shrink_file(stow_shrink **shrink, const char *in, const char *out,
                                      const stow_shrink_options *options);
/* Closes a result; NULL is allowed. */
STOW_API void stow_shrink_close(stow_shrink *shrink);

typedef struct stow_shrink_info {
  uint32_t struct_bytes;                 /* sizeof(stow_shrink_info), set by the caller */
  uint32_t resumed;                      /* 1: continued an interrupted run */
  uint64_t bytes, bytes_after;           /* in memory */
  uint64_t file_bytes, file_bytes_after; /* size of the files; file_bytes_after is 0 on a dry run */
  uint64_t item_count;                   /* arrays or columns */
} stow_shrink_info;
#define STOW_SHRINK_INFO_INIT                                                                      \
  { sizeof(stow_shrink_info), 0, 0, 0, 0, 0, 0 }
STOW_API stow_status stow_shrink_get_info(const stow_shrink *shrink, stow_shrink_info *info);

typedef struct stow_shrink_item {
  uint32_t struct_bytes;  /* sizeof(stow_shrink_item), set by the caller */
  uint32_t sparse;        /* 1: written as a sparse matrix */
  const char *name;       /* "-": the file is one array */
  const char *from_dtype; /* in NumPy's spelling */
  const char *to_dtype;
  uint32_t exact; /* 1: no value changed */
  uint32_t reserved;
  double error; /* the largest error, measured as the tolerance is; for a model, the root mean
                 * square of the error divided by that of the values */
  uint64_t bytes, bytes_after;
} stow_shrink_item;
#define STOW_SHRINK_ITEM_INIT                                                                      \
  { sizeof(stow_shrink_item), 0, NULL, NULL, NULL, 0, 0, 0, 0, 0 }
/* Returns one item. STOW_ERR_NOT_FOUND: there is no such item. */
STOW_API stow_status stow_shrink_get_item(const stow_shrink *shrink, uint64_t index,
                                          stow_shrink_item *item);

/* Return the result as `stowage shrink` prints it, and as JSON. */
STOW_API const char *stow_shrink_text(const stow_shrink *shrink);
STOW_API const char *stow_shrink_json(const stow_shrink *shrink);

#ifdef __cplusplus
}
#endif
#endif
