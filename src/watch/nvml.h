/* Nvml: the devices and their users, from NVIDIA's management library.
 *
 * Used by `info`, `doctor` and the watch. The library is found at run time (libnvidia-ml.so.1, or
 * the file in $STOWAGE_LIBNVML). If it is missing or too old, the result is "not known" with the
 * reason; nothing else fails. Needs no CUDA context, so it uses no memory on a device. Devices are
 * numbered as in the machine, not as in CUDA_VISIBLE_DEVICES: match them to devices by UUID. */
#ifndef WATCH_NVML_H
#define WATCH_NVML_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct nvml nvml;

/* Opens the library. STOW_ERR_NOT_FOUND: it is missing or could not start; the message gives the
 * reason. */
stow_status nvml_open(nvml **n);
void nvml_close(nvml *n);

/* Return the version of the kernel driver ("580.95.05") and of the library; "" if unknown. */
const char *nvml_driver_version(const nvml *n);
const char *nvml_library_version(const nvml *n);

int nvml_count(const nvml *n);

typedef struct nvml_device {
  char uuid[96]; /* "GPU-…" */
  char name[96];
  bool memory_known;
  uint64_t total_bytes, used_bytes, free_bytes;
  uint64_t reserved_bytes; /* reserved by the driver; 0 if an old library counts it as used */
} nvml_device;

stow_status nvml_device_at(nvml *n, int index, nvml_device *device);
/* Finds the index of the device with that UUID; STOW_ERR_NOT_FOUND if there is none. */
stow_status nvml_find(nvml *n, const char *uuid, int *index);

/* Measures the bytes per second over a device's bus, both directions together. Takes two samples of
 * twenty milliseconds. STOW_ERR_UNSUPPORTED: the library or the device does not report it. */
stow_status nvml_bus_rate(nvml *n, int index, uint64_t *bytes_s);

typedef struct nvml_process {
  unsigned pid;  /* in the initial pid namespace; see name */
  char name[32]; /* from /proc; "" if unknown, as in a container, where PIDs differ */
  bool bytes_known;
  uint64_t bytes; /* held on the device */
} nvml_process;

/* Lists the programs that compute on a device now. Writes at most `max`, and their number to
 * `*count`. */
stow_status nvml_processes(nvml *n, int index, nvml_process *processes, int max, int *count);

#endif
