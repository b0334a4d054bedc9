/* stowage probe-host-tier: tries one path to host memory and reports the result. The cuda backend
 * starts it in a separate process, because a driver may crash. Not for users. */
#include "cli/verb.h"
#include "device/cuda_probe.h"

static int run(verb_call *call) {
  /* The probe expects its own name as the first argument, like a program. */
  char *words[8] = {(char *)CUDA_PROBE_WORD};
  int count = 1;
  for (; count <= call->operand_count && count < 7; count++)
    words[count] = call->operands[count - 1];
  return cuda_probe_main(count, words);
}

const verb verb_probe_host_tier = {
    .name = CUDA_PROBE_WORD,
    .summary = "try one path to host memory; the cuda backend starts this",
    .example = "stowage " CUDA_PROBE_WORD " 0 host",
    .operands = "DEVICE PATH [NODES]",
    .operands_min = 2,
    .operands_max = 3,
    .flags = VERB_HIDDEN,
    .run = run,
};
