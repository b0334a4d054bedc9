/* CUDA: no driver is looked for yet. */
#include "device/device.h"

stow_status cuda_count(int *count) {
  *count = 0;
  return STOW_OK;
}

stow_status cuda_open(stow_device **device, const char *name) {
  (void)device;
  return stow_fail(STOW_ERR_NOT_FOUND, "device \"%s\": no CUDA driver here; use sim:16G", name);
}
