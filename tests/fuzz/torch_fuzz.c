/* Fuzzes the reader of PyTorch files: every listed tensor is within the file or a view of it, and
 * the values of views are read. */
#include <stdlib.h>
#include <string.h>

#include "arrays/tensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_ends(source *from, const tensor *t) {
  uint8_t bytes[4096];
  size_t count = t->bytes < sizeof bytes ? (size_t)t->bytes : sizeof bytes;
  if (source_read(from, t->offset, bytes, count) != STOW_OK ||
      source_read(from, t->offset + t->bytes - count, bytes, count) != STOW_OK)
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  source from;
  tensors t;
  source_open_memory(&from, data, size, "fuzz");
  if (torch_file_read(&t, &from, 1 << 20) == STOW_OK) {
    uint64_t end = source_end(&from);
    for (size_t i = 0; i < t.count; i++) {
      const tensor *one = &t.list[i];
      if (one->bytes > end || one->offset > end - one->bytes) abort();
      if (one->offset < size && one->bytes > size - one->offset) abort();
      if (i < 8) read_ends(&from, one);
    }
    tensors_free(&t);
  }
  source_close(&from);
  return 0;
}
