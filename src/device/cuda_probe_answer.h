/* Cuda probe answer: how the device reaches host memory on this machine. Made by cuda_probe.c, kept
 * between processes by cuda_cache.c. */
#ifndef DEVICE_CUDA_PROBE_ANSWER_H
#define DEVICE_CUDA_PROBE_ANSWER_H

#include <stdbool.h>

#include <stowage/device.h>

#define CUDA_PROBE_REASON_MAX 480

typedef struct cuda_probe {
  stow_host_road road;
  int numa_node;   /* of STOW_HOST_NUMA; -1 for the others */
  bool from_cache; /* remembered, not tried now */
  bool certain;    /* false: something other than the roads was in the way (no command to start, a
                      deadline passed, a full card), so the answer was not kept */
  char reason[CUDA_PROBE_REASON_MAX]; /* what was tried and how it ended, for people */
} cuda_probe;

/* "numa", "host", "pinned", "none", "simulated". */
const char *cuda_road_name(stow_host_road road);

#endif
