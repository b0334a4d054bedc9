/* Cuda: opens a device through someone else's driver pointers.
 *
 * For the shim, which sits in front of libcuda and passes the real pointers on, and for tests.
 * Everyone else opens by name (device.h, cuda_open). */
#ifndef DEVICE_CUDA_OPEN_H
#define DEVICE_CUDA_OPEN_H

#include <stowage/device.h>

#include "device/cuda_driver.h"

/* Like cuda_open, but resolves every driver function through `resolve` by its ELF name
 * ("cuMemAlloc_v2"). */
stow_status cuda_open_with(stow_device **device, const char *name, cuda_resolve resolve,
                           void *user);

#endif
