/* Open: opens a device by name, and the public calls that only forward. */
#include "base/growing.h"
#include "device/device.h"

#include <stdlib.h>
#include <string.h>

#include "base/variables.h"

#define DEFAULT_SIM ":16G"

stow_status stow_device_open(stow_device **device, const char *name) {
  if (device == NULL)
    return stow_fail(STOW_ERR_INVALID, "opening a device: the result pointer is NULL");
  *device = NULL;
  if (name == NULL || name[0] == '\0') name = getenv(ENV_DEVICE);
  if (name == NULL || name[0] == '\0') {
    int count = 0;
    STOW_TRY(cuda_count(&count));
    if (count == 0) return sim_open_spec(device, DEFAULT_SIM);
    name = "0";
  }
  if (strncmp(name, "sim", 3) == 0 && (name[3] == '\0' || name[3] == ':'))
    return sim_open_spec(device, name[3] == '\0' ? DEFAULT_SIM : name + 3);
  return cuda_open(device, name);
}

stow_status stow_device_close(stow_device *device) {
  return device == NULL ? STOW_OK : device->ops->close(device);
}

stow_status stow_device_count(int *count) {
  if (count == NULL)
    return stow_fail(STOW_ERR_INVALID, "counting devices: the result pointer is NULL");
  return cuda_count(count);
}

stow_status stow_device_get_props(const stow_device *device, stow_device_props *props) {
  if (device == NULL || props == NULL)
    return stow_fail(STOW_ERR_INVALID,
                     "device properties: the device or the result pointer is NULL");
  stow_device_props full;
  STOW_TRY(device_props(device, &full));
  return growing_write(props, &full, sizeof full, "stow_device_props");
}

stow_status stow_device_memory(stow_device *device, stow_tier tier, uint64_t *free_bytes,
                               uint64_t *total_bytes) {
  if (device == NULL) return stow_fail(STOW_ERR_INVALID, "device memory: the device is NULL");
  return device->ops->memory(device, tier, free_bytes, total_bytes);
}
