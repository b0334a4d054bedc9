/* Fuzzes the reader of RMM logs. */
#include "reader_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  return fuzz_reader(data, size, KIND_RMM);
}
