/* Fuzzes the reader and the writers of recordings with snapshots that are whole and say odd things.
 */
#include "snapshot_shape.h"

#include "reader_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  buffer snapshot = snapshot_shape(data, size);
  fuzz_reader((const uint8_t *)snapshot.data, snapshot.length, KIND_SNAPSHOT);
  buffer_free(&snapshot);
  return 0;
}
