/* Own memory: what the driver counts for this process on a device.
 *
 * The used figure of a device covers all programs on it. Where NVML lists this process, the share
 * of its contexts is known however much others allocate meanwhile. In a container whose PIDs
 * differ, and with drivers that do not report bytes, it is unknown. */
#ifndef SHIM_OWN_MEMORY_H
#define SHIM_OWN_MEMORY_H

#include <stdint.h>

#define OWN_UNKNOWN UINT64_MAX

/* Returns the bytes that this process holds on the device with that UUID; OWN_UNKNOWN if NVML does
 * not say. The first call opens NVML. */
uint64_t own_memory(const char *uuid);

#endif
