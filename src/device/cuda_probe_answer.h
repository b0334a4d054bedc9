/* Cuda probe answer: how the device reaches host memory on this machine. Created by cuda_probe.c,
 * cached between processes by cuda_cache.c. */
#ifndef DEVICE_CUDA_PROBE_ANSWER_H
#define DEVICE_CUDA_PROBE_ANSWER_H

#include <stdbool.h>

#include <stowage/device.h>

#define CUDA_PROBE_REASON_MAX 480

typedef struct cuda_probe {
  stow_host_backing backing;
  int numa_node;   /* for STOW_HOST_NUMA; -1 otherwise */
  bool from_cache; /* cached, not tried now */
  bool certain;    /* false: something else interfered (no command to start, a timeout, a full
                    * device), so the result was not cached */
  char reason[CUDA_PROBE_REASON_MAX]; /* what was tried and how it ended, for people */
} cuda_probe;

/* Returns "numa", "host", "pinned", "none" or "simulated". */
const char *cuda_backing_name(stow_host_backing backing);

#endif
