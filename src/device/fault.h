/* Fault: access to the device that a fault device wraps, for the simulated device. */
#ifndef DEVICE_FAULT_H
#define DEVICE_FAULT_H

#include "device/device.h"

/* Returns the device that a fault device wraps; NULL if `device` is not one. */
stow_device *fault_inner(stow_device *device);

#endif
