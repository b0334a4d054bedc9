/* Fuzzes the reader of .stow traces, and the writers with what it read. */
#include "reader_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  return fuzz_reader(data, size, KIND_STOW);
}
