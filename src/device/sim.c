/* The simulated card. */
#include "device/device.h"

stow_status sim_open_spec(stow_device **device, const char *spec) {
  (void)device;
  return stow_fail(STOW_ERR_UNSUPPORTED, "sim%s: not there yet", spec);
}
