/* Fuzzes the reader of npy files: every file that opens is read completely, in both orders. */
#include <stdlib.h>

#include "data/array.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  source from;
  array a;
  source_open_memory(&from, data, size, "fuzz");
  if (array_open_npy(&a, &from) != STOW_OK) return 0;
  if (a.bytes > size) abort(); /* declares more than there is */
  char *items = malloc(a.bytes + 1);
  if (items == NULL) abort();
  if (array_read(&a, 0, items, a.count) != STOW_OK) abort();
  if (array_rows(&a) > 0 && array_rows(&a) < 1000 && a.count < 100000)
    (void)array_read_rows(&a, 0, array_rows(&a), items);
  free(items);
  array_close(&a);
  return 0;
}
