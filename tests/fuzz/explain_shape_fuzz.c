/* Fuzzes explain with snapshots that are whole and say odd things. */
#include "explain_fuzz.h"
#include "snapshot_shape.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  buffer snapshot = snapshot_shape(data, size);
  explain_snapshot((const uint8_t *)snapshot.data, snapshot.length);
  buffer_free(&snapshot);
  return 0;
}
