/* Fuzzes the reader of what a program reports about itself: every number stays within its limit,
 * every name is terminated. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "advise/program.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  program_facts p;
  program_read(&p, (const char *)data, size);
  if (p.input_count > PROGRAM_INPUTS_MAX || p.batch > PROGRAM_BYTES_MAX) abort();
  for (uint32_t i = 0; i < p.input_count; i++)
    if (p.inputs[i].rank > PROGRAM_DIMS_MAX || memchr(p.inputs[i].dtype, 0, 16) == NULL) abort();
  if (memchr(p.optimizer, 0, sizeof p.optimizer) == NULL) abort();
  if (p.optimizer_bytes > 2 * PROGRAM_BYTES_MAX || p.narrow_bytes > 2 * PROGRAM_BYTES_MAX) abort();
  (void)program_samples(&p);
  if (program_trains(&p) && program_infers(&p)) abort();
  return 0;
}
