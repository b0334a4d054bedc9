/* Shrink: a data file again in the smallest types that hold every value, sparse where smaller; or a
 * model file in the types asked for.
 *
 *   stow_shrink *shrink;
 *   stow_shrink_file(&shrink, "train.npy", "small.npy", NULL);
 *   puts(stow_shrink_text(shrink));
 *   stow_shrink_close(shrink);
 *
 * The output's ending chooses its format: .npy or .npz. Every value stays exact unless a tolerance
 * allows rounding. A model (safetensors, GGUF, PyTorch's .pt and .bin, or a folder of Hugging Face)
 * is written as .safetensors, .gguf or a folder; `dtype` is then f16, bf16 or f32, and rounding is
 * what was asked for: the items tell the error. The input is never changed; the output is the old
 * file or the complete new one. Texts stay valid until the result is closed. The call works alone:
 * sharing a file among the ranks of an MPI job is what the command does.
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
#define STOW_SHRINK_ABSOLUTE                                                                       \
  UINT32_C(1)                            /* the tolerance is an amount, not a part of each value   \
                                          */
#define STOW_SHRINK_DRY_RUN UINT32_C(2)  /* decide, write nothing */
#define STOW_SHRINK_RESUME  UINT32_C(4)  /* go on where a run that was stopped had come to */
#define STOW_SHRINK_NO_SYNC UINT32_C(8)  /* do not wait until the output is on the disk */
#define STOW_SHRINK_FORCE   UINT32_C(16) /* write a table even if it takes more than the input */
/* Of a model: */
#define STOW_SHRINK_VERIFY      UINT32_C(32)  /* read the output back and compare checksums */
#define STOW_SHRINK_ALLOW_NAN   UINT32_C(64)  /* write it even if values are NaN or infinite */
#define STOW_SHRINK_JOIN        UINT32_C(128) /* one file instead of shards */
#define STOW_SHRINK_PRUNE_MODEL UINT32_C(256) /* one threshold for all tensors together */

typedef struct stow_shrink_options {
  uint32_t struct_bytes; /* sizeof(stow_shrink_options) */
  uint32_t flags;        /* STOW_SHRINK_… */
  const char *dtype;     /* this type, refused if a value would be lost; NULL: the smallest */
  double tolerance;      /* how far float16 and float32 may round; 0: not at all */
  uint64_t memory_bytes; /* as in stow_inspect_options, and so are the rest */
  uint32_t threads;
  uint32_t names;
  const char *raw_dtype;
  const uint64_t *raw_shape;
  uint32_t raw_dims;
  uint32_t purpose; /* STOW_FOR_… */
  stow_data_progress progress;
  void *progress_user;
  /* Of a table, by name, each list ended by NULL: the columns to write (NULL: all of them), and
   * those to leave out. A name may itself be a list: "a,b". */
  const char *const *columns;
  const char *const *drop;
  /* Of a model: "q8_0", "q6_k", "q4_k", "q4_0" (GGUF), "int8", "fp8" (safetensors); "50%" or "2:4";
   * patterns of tensor names to change or to leave, each list ended by NULL; the size of a file,
   * 0: as in the input. */
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
/* NULL is fine. */
STOW_API void stow_shrink_close(stow_shrink *shrink);

typedef struct stow_shrink_info {
  uint32_t struct_bytes;                 /* sizeof(stow_shrink_info), set by the caller */
  uint32_t resumed;                      /* 1: it went on with what another run had done */
  uint64_t bytes, bytes_after;           /* in memory */
  uint64_t file_bytes, file_bytes_after; /* on disk; after: 0 on a dry run */
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
  uint32_t exact; /* 1: every value is as it was */
  uint32_t reserved;
  double error; /* the largest, as the tolerance counts it; of a model: the root of the mean square
                   error over that of the values */
  uint64_t bytes, bytes_after;
} stow_shrink_item;
#define STOW_SHRINK_ITEM_INIT                                                                      \
  { sizeof(stow_shrink_item), 0, NULL, NULL, NULL, 0, 0, 0, 0, 0 }
/* STOW_ERR_NOT_FOUND: there are not that many. */
STOW_API stow_status stow_shrink_get_item(const stow_shrink *shrink, uint64_t index,
                                          stow_shrink_item *item);

/* As `stowage shrink` prints it, and its JSON. */
STOW_API const char *stow_shrink_text(const stow_shrink *shrink);
STOW_API const char *stow_shrink_json(const stow_shrink *shrink);

#ifdef __cplusplus
}
#endif
#endif
