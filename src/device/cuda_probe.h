/* Cuda probe: by which road a card reaches host memory here, found by trying.
 *
 * Drivers and containers lie about it or crash over it (docs: facts of the host tier), so each road
 * is walked once in a child process: the `stowage` command started as
 *   stowage probe-host-tier DEVICE numa NODE[,NODE…] | host | pinned
 * A child that crashes, or is not done in ten seconds, has found out that the road is not there.
 * The answer is kept in $XDG_CACHE_HOME/stowage/host-tier (~/.cache/stowage/host-tier), by driver,
 * card and container. Called by the cuda backend when the host tier is first asked about, by
 * `doctor`, and (cuda_probe_main) by the command itself. */
#ifndef DEVICE_CUDA_PROBE_H
#define DEVICE_CUDA_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include <stowage/device.h>

#include "device/cuda_driver.h"
#include "device/cuda_probe_answer.h"

#define CUDA_PROBE_WORD      "probe-host-tier"
#define CUDA_PROBE_NODES_MAX 16

/* The road for the card `name` (an index or a UUID, as for opening; NULL or "": the first). With
 * `anew` the kept answer is not believed, and replaced if the new one is certain. STOW_OK even
 * where the road is none; errors are only those of finding the card. May take seconds when it has
 * to try. */
stow_status cuda_probe_get(cuda_probe *probe, const char *name, bool anew);

/* The same for a card already found, and whether an answer is kept (then nothing is started). */
void cuda_probe_card(cuda_probe *probe, const cuda_driver *driver, cu_device card, bool anew);
bool cuda_probe_kept(cuda_probe *probe, const cuda_driver *driver, cu_device card);

/* How long one child may take: ten seconds, a context on a busy machine being made in one or two.
 * Tests shorten it. */
extern int cuda_probe_deadline_ms;

/* What the child does: argv[0] is CUDA_PROBE_WORD, argv[1] the card, then the road. Prints
 * "host-tier 1 begin" and then one line, "host-tier 1 ok NODE", "host-tier 1 no REASON" or
 * "host-tier 1 unable REASON" (the card is full or busy: nothing was found out). Returns the exit
 * code: 0 when the road is there, 1 when not, 2 for arguments it does not understand. */
int cuda_probe_main(int argc, char **argv);

#endif
