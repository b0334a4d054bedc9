/* Headers of model files to be written. The callers write the tensors' bytes at the offsets that
 * these functions choose. */
#ifndef ARRAYS_TENSORS_WRITE_H
#define ARRAYS_TENSORS_WRITE_H

#include "arrays/tensors.h"

/* Sorts the tensors as the safetensors package does (widest type first, then by name), sets their
 * offsets in the file and appends the header. `metadata` is a JSON object of strings, or NULL.
 * *file_bytes is the length of the whole file. */
stow_status safetensors_header(buffer *out, tensor **list, size_t count, const char *metadata,
                               uint64_t *file_bytes);

/* What changes in the keys of a GGUF file when its tensors do. Every other key is copied byte for
 * byte. */
typedef struct gguf_change {
  bool file_type_known;
  uint32_t file_type;        /* replaces the value of general.file_type if the file has that key */
  bool quantization_version; /* adds general.quantization_version = 2 if the file lacks it */
} gguf_change;

/* Sets the offsets of the tensors, in the order given, and appends the header with the keys of the
 * file `from`, whose header is `t`. */
stow_status gguf_header(buffer *out, tensor **list, size_t count, const tensors *t, source *from,
                        const gguf_change *change, uint64_t *file_bytes);

#endif
