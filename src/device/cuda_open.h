/* Cuda: opening a card through driver pointers somebody else holds.
 *
 * For the shim, which stands in front of libcuda and hands the real pointers down, and for tests.
 * Everything else opens by name (device.h, cuda_open). */
#ifndef DEVICE_CUDA_OPEN_H
#define DEVICE_CUDA_OPEN_H

#include <stowage/device.h>

#include "device/cuda_driver.h"

/* As cuda_open, but every driver function is asked of `resolve` by its ELF name ("cuMemAlloc_v2").
 */
stow_status cuda_open_with(stow_device **device, const char *name, cuda_resolve resolve,
                           void *user);

#endif
