/* Tensors: the header of a model file: names, types, shapes and positions.
 *
 * safetensors.c and gguf.c fill it and check all of it: every tensor within the file, no overlap,
 * no duplicate name, memory within the caller's bound. */
#ifndef ARRAYS_TENSORS_H
#define ARRAYS_TENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/dtype.h"
#include "files/source.h"

#define TENSOR_DIMS_MAX 16

typedef struct tensor {
  const char *name;   /* terminated with '\0' */
  char type_name[16]; /* "float32" if NumPy has the type, else the format's name ("Q4_K") */
  dtype type;         /* DTYPE_NONE if NumPy does not have it */
  uint32_t dims;
  uint64_t shape[TENSOR_DIMS_MAX]; /* slowest first */
  uint64_t count, bytes;
  uint64_t offset; /* in the file */
} tensor;

typedef struct tensors {
  tensor *list;
  size_t count, capacity;
  char **blocks; /* memory of the names */
  size_t block_count;
  uint64_t used_bytes, max_bytes;
} tensors;

/* Reads the header of the file with at most `max_bytes` of memory. Fails with STOW_ERR_FORMAT and
 * the byte. */
stow_status safetensors_read(tensors *t, source *from, uint64_t max_bytes);
stow_status gguf_read(tensors *t, source *from, uint64_t max_bytes);
void tensors_free(tensors *t);

/* For the readers: tensors_add adds a tensor whose name has `length` bytes; the others check the
 * whole list. */
stow_status tensors_add(tensors *t, const source *from, const char *name, size_t length,
                        tensor **added);
stow_status tensors_check(tensors *t, const source *from);
/* Computes the element count from the shape, checking for overflow. */
stow_status tensors_count(tensor *one, const source *from);

#endif
