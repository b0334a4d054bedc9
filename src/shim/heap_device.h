/* Heap device: the device under the shim's heap (stowage/sys/device.h), over the real driver's page
 * calls.
 *
 * The run's ledger counts every page before it is created, so the heap obeys the run's limit; a
 * reached limit looks like a full device. It has no streams: callers free to the heap only after
 * the device has passed the free (plain.h), so its events are always complete. */
#ifndef SHIM_HEAP_DEVICE_H
#define SHIM_HEAP_DEVICE_H

#include <stowage/sys/device.h>

#include "shim/account.h"

/* Opens it. `ordinal` is the driver's number of the device, `device` the run's. Needs no context.
 * STOW_ERR_UNSUPPORTED if this driver has no page calls. */
stow_status heap_device_open(stow_device **out, cu_device ordinal, unsigned device);

/* Returns true if it reserved the address. Cheap. */
bool heap_device_owns(const stow_device *device, cu_addr addr);
/* Returns the bytes of its pages on a tier. */
uint64_t heap_device_held(const stow_device *device, stow_tier tier);

/* Returns the vram available for a block that is too large for vram alone. */
uint64_t heap_device_room(const stow_device *device);
/* Returns true if some of the heap's host pages are in vram. */
bool heap_device_lent(const stow_device *device);

/* Sets the tier for pages that this thread creates: vram (the default), or the host except for the
 * part of a block that fits in vram. */
void heap_device_use_host(bool host);
/* Returns true if this thread is inside one of the device's calls. */
bool heap_device_inside(void);

#endif
