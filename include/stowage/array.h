/* Array: reads slices of an array in a file, at a URL, or behind a read function of the caller.
 *
 *   stow_array_options options = STOW_ARRAY_OPTIONS_INIT;
 *   options.path = "train.npz:features";
 *   stow_array *array;
 *   stow_array_open(&array, &options);
 *   stow_array_read(array, 1000, 32, 1, 0, 0, rows);       32 whole rows, from row 1000
 *   stow_array_close(array);
 *
 * Reads only the requested values, with explicit reads; never maps a file.
 *
 * Threads: an array is for one thread at a time. Fork: a child opens its own; it must not use or
 * close its parent's. Link with -lstowage-data. */
#ifndef STOWAGE_ARRAY_H
#define STOWAGE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stowage/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stow_array stow_array;

/* Reads exactly `count` bytes at `offset` into `to`. Returns 0, or a negative stow_status. Several
 * threads may call it, but only one at a time for each open array. */
typedef int (*stow_array_reader)(void *user, uint64_t offset, void *to, uint64_t count);

typedef struct stow_array_options {
  uint32_t struct_bytes; /* sizeof(stow_array_options) */
  uint32_t raw_dims;     /* of raw_shape */
  const char *path; /* a file, "file.npz:member", "file.safetensors:tensor", or an http(s) URL; a
                       pattern ("part-*.npy") or several paths with line feeds between them: their
                       rows follow one another; a
                       name for messages where `read` is given */
  const char *raw_dtype;      /* type of a file of raw values; NULL: the file's */
  const uint64_t *raw_shape;  /* raw_dims of them; NULL: one dimension, as long as the file */
  const char *as_dtype;       /* convert values to this type, which must hold them: floats may be
                                 rounded, but a value out of its range is STOW_ERR_INVALID; NULL: the
                                 file's */
  const char *const *headers; /* HTTP headers "Name: value", NULL-terminated; NULL: none */
  stow_array_reader read;     /* reads through this function instead of from a path */
  void *read_user;
  uint64_t read_bytes;  /* the number of bytes that `read` can read */
  uint64_t cache_bytes; /* disk space that keeps HTTP data for the next epoch and the next run; 0:
                         * $STOWAGE_CACHE, or no cache */
  const void *data; /* values in memory instead of a file; they must outlive the array. `path` is a
                       name for messages, and raw_dtype is needed */
  uint64_t data_bytes;
  const char *member; /* the array or tensor of the file behind `read`; NULL: the file is one */
} stow_array_options;
#define STOW_ARRAY_OPTIONS_INIT                                                                    \
  { sizeof(stow_array_options), 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, 0, NULL }

#define STOW_ARRAY_DIMS_MAX 64
typedef struct stow_array_info {
  uint32_t struct_bytes; /* sizeof(stow_array_info), set by the caller */
  uint32_t dims;
  char dtype[72];      /* the type of the values returned, in NumPy's spelling: "float32", "<U5";
                        * "bfloat16" */
  char file_dtype[72]; /* the type in the file: ">f8" */
  uint64_t item_bytes; /* size of one value as returned */
  uint64_t shape[STOW_ARRAY_DIMS_MAX];
  uint64_t rows;          /* shape[0]; 1 for a 0-d array */
  uint64_t row_items;     /* values in one row */
  uint32_t fortran_order; /* 1: the file is in Fortran order; reads still return C order */
  uint32_t reserved;
} stow_array_info;
#define STOW_ARRAY_INFO_INIT                                                                       \
  { sizeof(stow_array_info), 0, "", "", 0, {0}, 0, 0, 0, 0 }

STOW_API stow_status stow_array_open(stow_array **array, const stow_array_options *options);
/* Closes an array; NULL is allowed. */
STOW_API void stow_array_close(stow_array *array);
STOW_API stow_status stow_array_get_info(const stow_array *array, stow_array_info *info);

/* Reads `count` rows into `to`, one after another: `first`, `first + step`, … (step at least 1). Of
 * each row it reads the values `item` to `item + items`, in C order; with 0 items, the whole row.
 * `to` must hold count * items * item_bytes. Rows or columns that lie close together are read in
 * one go, distant ones separately. */
STOW_API stow_status stow_array_read(stow_array *array, uint64_t first, uint64_t count,
                                     uint64_t step, uint64_t item, uint64_t items, void *to);

#ifdef __cplusplus
}
#endif
#endif
