/* Cuda cache: the probe's results, kept between processes in one small text file.
 *
 *   stowage host-tier 1
 *   KEY SECONDS BACKING NODE REASON…     one line per machine, device, driver and container
 *
 * $XDG_CACHE_HOME/stowage/host-tier, or ~/.cache/stowage/host-tier. A file that is corrupt, too
 * long, not ours or missing counts as empty. Writing creates a new file and renames it, so a reader
 * sees the old one or the new one. A failed write is not an error. */
#ifndef DEVICE_CUDA_CACHE_H
#define DEVICE_CUDA_CACHE_H

#include "device/cuda_driver.h"
#include "device/cuda_probe_answer.h"

#define CUDA_CACHE_KEY_MAX 33 /* 32 hexadecimal digits */

/* Computes the key of a device here and now: driver, device and container. */
void cuda_cache_key(char key[CUDA_CACHE_KEY_MAX], const cuda_driver *driver, cu_device device);

/* Returns whether a result is cached. A result without pages on the host is valid for one day
 * only. */
bool cuda_cache_read(cuda_probe *probe, const char *key);
void cuda_cache_write(const cuda_probe *probe, const char *key);

#endif
