/* Fuzzes explain with the bytes of snapshots. */
#include "explain_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  explain_snapshot(data, size);
  return 0;
}
