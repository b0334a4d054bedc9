/* Cuda probe: finds out by trying how a device reaches host memory on this machine.
 *
 * Drivers and containers report this incorrectly, or crash, so each backing is tried once in a
 * child process: the `stowage` command started as
 *   stowage probe-host-tier DEVICE numa NODE[,NODE…] | host | pinned
 * If the child crashes or takes more than ten seconds, the backing is not available. The result is
 * cached in $XDG_CACHE_HOME/stowage/host-tier (~/.cache/stowage/host-tier), by driver, device and
 * container. Called by the cuda backend at the first query of the host tier, by `doctor`, and
 * (cuda_probe_main) by the command itself. */
#ifndef DEVICE_CUDA_PROBE_H
#define DEVICE_CUDA_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include <stowage/device.h>

#include "device/cuda_driver.h"
#include "device/cuda_probe_answer.h"

#define CUDA_PROBE_WORD      "probe-host-tier"
#define CUDA_PROBE_NODES_MAX 16

/* Returns the backing of the device `name` (an index or a UUID, as for opening; NULL or "": the
 * first). With `anew` the cached result is ignored, and replaced if the new one is certain. Returns
 * STOW_OK even if there is no backing; errors are only those of finding the device. May take
 * seconds if it has to try. */
stow_status cuda_probe_get(cuda_probe *probe, const char *name, bool anew);

/* Do the same for a device already found, and return whether a result is cached (then no child is
 * started). */
void cuda_probe_device(cuda_probe *probe, const cuda_driver *driver, cu_device device, bool anew);
bool cuda_probe_kept(cuda_probe *probe, const cuda_driver *driver, cu_device device);

/* Time limit for one child: ten seconds. Creating a context takes one or two on a busy machine.
 * Tests shorten it. */
extern int cuda_probe_deadline_ms;

/* The child's main function: argv[0] is CUDA_PROBE_WORD, argv[1] the device, then the backing.
 * Prints "host-tier 1 begin" and then one line: "host-tier 1 ok NODE", "host-tier 1 no REASON" or
 * "host-tier 1 unable REASON" (the device is full or busy: no result). Returns the exit code: 0 if
 * the backing works, 1 if not, 2 for unknown arguments. */
int cuda_probe_main(int argc, char **argv);

#endif
