/* Tensors: what the header of a model file lists: names, types, shapes and where the bytes are.
 *
 * Filled by safetensors.c, gguf.c and torch_file.c, which check all of it: every tensor lies within
 * the file, no two overlap, no name appears twice, and memory stays within the caller's limit. Only
 * the tensors of a PyTorch file may share bytes (tied weights). */
#ifndef ARRAYS_TENSORS_H
#define ARRAYS_TENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arrays/tensor_type.h"
#include "base/buffer.h"
#include "base/dtype.h"
#include "files/source.h"

#define TENSOR_DIMS_MAX 16

typedef struct tensor {
  const char *name;   /* terminated with '\0' */
  char type_name[16]; /* "float32" if NumPy has the type, else the format's name ("Q4_K") */
  dtype type;         /* DTYPE_NONE if NumPy does not have it */
  tensor_type stored; /* how the values are stored */
  uint32_t dims;
  uint64_t shape[TENSOR_DIMS_MAX]; /* slowest first */
  uint64_t count, bytes;
  uint64_t offset; /* offset in the file, or of a view of it: source_view.h */
} tensor;

typedef struct tensors {
  tensor *list;
  size_t count, capacity;
  char **blocks; /* memory of the names */
  size_t block_count;
  uint64_t used_bytes, max_bytes;
  char *metadata;             /* safetensors: its __metadata__ as a JSON object; NULL: none */
  uint64_t keys_at, keys_end; /* GGUF: where the keys are in the file */
  uint64_t key_count;
  uint64_t file_type_at;   /* GGUF: where the value of general.file_type (uint32) is; 0: none */
  uint64_t split_count_at; /* GGUF: where the value of split.count (uint16) is; 0: none */
  uint16_t split_count, split_number; /* GGUF: parts of the model, and which one this is, from 0 */
  bool has_quantization_version;
  uint32_t version;
  uint64_t alignment;
} tensors;

/* Reads the header of the file with at most `max_bytes` of memory. STOW_ERR_FORMAT: the message
 * names the byte. */
stow_status safetensors_read(tensors *t, source *from, uint64_t max_bytes);
stow_status gguf_read(tensors *t, source *from, uint64_t max_bytes);
/* Reads a file of torch.save with a flat dict of tensors. A tensor with strides becomes a view of
 * `from`. The pickle inside is read with
 * a list of allowed names and never executed. */
stow_status torch_file_read(tensors *t, source *from, uint64_t max_bytes);
/* The same for data: also one tensor (named "tensor"), or a list or tuple of them ("0", "1", …). */
stow_status torch_file_read_data(tensors *t, source *from, uint64_t max_bytes);
/* Returns whether a file that begins like this was written by PyTorch before 1.6 (no zip), or as if
 * by it. Needs the first TORCH_FILE_START bytes. */
#define TORCH_FILE_START 24
bool torch_file_is_old(const uint8_t *start, size_t count);
void tensors_free(tensors *t);

/* For the readers: add a tensor with a name of `length` bytes, and check all tensors. */
stow_status tensors_add(tensors *t, const source *from, const char *name, size_t length,
                        tensor **added);
stow_status tensors_check(tensors *t, const source *from);
/* Checks all tensors except for overlaps. */
stow_status tensors_check_shared(tensors *t, const source *from);
/* Computes the count from the shape, with overflow checks. */
stow_status tensors_count(tensor *one, const source *from);
/* Sets the type and its names. */
void tensors_set_type(tensor *one, tensor_type stored);

#endif
