/* Cuda probe answer: names. */
#include "device/cuda_probe_answer.h"

const char *cuda_road_name(stow_host_road road) {
  switch (road) {
  case STOW_HOST_NONE: return "none";
  case STOW_HOST_PINNED: return "pinned";
  case STOW_HOST_LOCATION: return "host";
  case STOW_HOST_NUMA: return "numa";
  case STOW_HOST_SIMULATED: return "simulated";
  }
  return "unknown";
}
