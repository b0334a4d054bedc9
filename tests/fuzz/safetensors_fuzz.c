/* Fuzzes the reader of safetensors headers: every listed tensor is within the file. */
#include <stdlib.h>

#include "arrays/tensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  source from;
  tensors t;
  source_open_memory(&from, data, size, "fuzz");
  if (safetensors_read(&t, &from, 1 << 20) != STOW_OK) return 0;
  for (size_t i = 0; i < t.count; i++)
    if (t.list[i].bytes > size || t.list[i].offset > size - t.list[i].bytes) abort();
  tensors_free(&t);
  return 0;
}
