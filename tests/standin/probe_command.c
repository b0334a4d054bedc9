/* The smallest command that can probe: it does only what `stowage probe-host-tier …` does. */
#include <string.h>

#include "device/cuda_probe.h"

int main(int argc, char **argv) {
  return argc > 1 && strcmp(argv[1], CUDA_PROBE_WORD) == 0 ? cuda_probe_main(argc - 1, argv + 1)
                                                           : 2;
}
