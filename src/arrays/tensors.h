/* Tensors: what the header of a model file lists: names, types, shapes and where the bytes stand.
 *
 * Filled by safetensors.c and gguf.c, which check it whole: every tensor within the file, none over
 * another, no name twice, memory within the caller's bound. */
#ifndef ARRAYS_TENSORS_H
#define ARRAYS_TENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/dtype.h"
#include "files/source.h"

#define TENSOR_DIMS_MAX 16

typedef struct tensor {
  const char *name;   /* ended with '\0' */
  char type_name[16]; /* "float32" where NumPy has it, the format's own word otherwise ("Q4_K") */
  dtype type;         /* DTYPE_NONE for what NumPy has not */
  uint32_t dims;
  uint64_t shape[TENSOR_DIMS_MAX]; /* slowest first */
  uint64_t count, bytes;
  uint64_t offset; /* in the file */
} tensor;

typedef struct tensors {
  tensor *list;
  size_t count, capacity;
  char **blocks; /* the names' memory */
  size_t block_count;
  uint64_t used_bytes, max_bytes;
} tensors;

/* Reads the header of the file; at most `max_bytes` of memory. STOW_ERR_FORMAT with the byte. */
stow_status safetensors_read(tensors *t, source *from, uint64_t max_bytes);
stow_status gguf_read(tensors *t, source *from, uint64_t max_bytes);
void tensors_free(tensors *t);

/* For the readers: another tensor named by `length` bytes; and the checks over all of them. */
stow_status tensors_add(tensors *t, const source *from, const char *name, size_t length,
                        tensor **added);
stow_status tensors_check(tensors *t, const source *from);
/* shape -> count, checked. */
stow_status tensors_count(tensor *one, const source *from);

#endif
