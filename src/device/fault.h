/* The fault device, for its neighbours. */
#ifndef DEVICE_FAULT_H
#define DEVICE_FAULT_H

#include "device/device.h"

/* The device a fault device wraps; NULL if `device` is not one. */
stow_device *fault_inner(stow_device *device);

#endif
