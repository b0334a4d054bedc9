/* Cuda device id: maps a name ("0", "GPU-5d3c…") to one of the driver's devices. */
#ifndef DEVICE_CUDA_DEVICE_ID_H
#define DEVICE_CUDA_DEVICE_ID_H

#include "device/cuda_driver.h"

#define CUDA_UUID_MAX 48

typedef struct cuda_device_id {
  cu_device handle;
  int index;                /* as in CUDA_VISIBLE_DEVICES */
  char uuid[CUDA_UUID_MAX]; /* "GPU-5d3c…" */
} cuda_device_id;

/* Finds a device. `name` is an index, or a UUID or a unique prefix of one; case and the prefixes
 * GPU- and MIG- do not matter. STOW_ERR_NOT_FOUND: the message lists the devices. */
stow_status cuda_device_find(cuda_device_id *id, const cuda_driver *driver, const char *name);

/* Returns the device's UUID as text; "" if the driver does not report it. */
void cuda_device_uuid(char uuid[CUDA_UUID_MAX], const cuda_driver *driver, cu_device handle);

/* Returns an attribute, or `otherwise` if this driver does not know it. */
int cuda_device_attribute(const cuda_driver *driver, cu_device handle, int which, int otherwise);

#endif
