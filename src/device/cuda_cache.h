/* Cuda cache: the probe's answers, kept between processes in one small text file.
 *
 *   stowage host-tier 1
 *   KEY SECONDS ROAD NODE REASON…        one line per machine, card, driver and container seen
 *
 * $XDG_CACHE_HOME/stowage/host-tier, or ~/.cache/stowage/host-tier. Guarantees: a file that is
 * broken, too long, not ours or not there is as good as empty; writing makes a whole new file and
 * renames it, so a reader sees the old one or the new one. Failing to write is no failure. */
#ifndef DEVICE_CUDA_CACHE_H
#define DEVICE_CUDA_CACHE_H

#include "device/cuda_driver.h"
#include "device/cuda_probe_answer.h"

#define CUDA_CACHE_KEY_MAX 33 /* 32 hexadecimal digits */

/* The key of a card here and now: driver, card and container. */
void cuda_cache_key(char key[CUDA_CACHE_KEY_MAX], const cuda_driver *driver, cu_device card);

/* True if an answer is kept. One that found no pages on the host is believed for a day only. */
bool cuda_cache_read(cuda_probe *probe, const char *key);
void cuda_cache_write(const cuda_probe *probe, const char *key);

#endif
