/* Cuda probe answer: names. */
#include "device/cuda_probe_answer.h"

const char *cuda_backing_name(stow_host_backing backing) {
  switch (backing) {
  case STOW_HOST_NONE: return "none";
  case STOW_HOST_PINNED: return "pinned";
  case STOW_HOST_LOCATION: return "host";
  case STOW_HOST_NUMA: return "numa";
  case STOW_HOST_SIMULATED: return "simulated";
  }
  return "unknown";
}
