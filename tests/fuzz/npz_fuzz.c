/* Fuzzes the reader of npz files: the directory, every member, and the checks of a sparse matrix.
 */
#include <stdlib.h>

#include "data/inspect.h"
#include "data/sparse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  source from;
  zip z;
  budget b = {.bytes = BUDGET_LEAST};
  uint64_t done = 0;
  source_open_memory(&from, data, size, "fuzz");
  if (zip_open(&z, &from, b.bytes / 4) != STOW_OK) return 0;
  for (size_t i = 0; i < z.count; i++) {
    array a;
    if (z.entries[i].offset + z.entries[i].stored_bytes > size) abort();
    /* A few bytes may inflate to many, which would take too long here. */
    if (z.entries[i].bytes > (16 << 20)) continue;
    if (array_open_member(&a, &from, &z.entries[i]) != STOW_OK) continue;
    array_facts facts = {0};
    (void)inspect_array(&facts, &a, &b, &done, 0);
    array_close(&a);
  }
  sparse s;
  if (sparse_is(&z) && sparse_begin(&s, &from, &z) == STOW_OK)
    (void)sparse_check(&s, &from, &b, &done, 0);
  zip_close(&z);
  return 0;
}
