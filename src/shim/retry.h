/* Retry: decides whether a request that does not fit in vram is refused or served from the host.
 *
 * A framework that drops its cache and retries after "out of memory" (PyTorch) is refused once per
 * request, and served from the host only if the retry fails too. Every other caller is served
 * immediately, also in a process with such a framework. Never refused: requests during a capture,
 * when no cache is dropped, and, for a growing number of requests, those after a refusal that freed
 * nothing. The state is per thread. */
#ifndef SHIM_RETRY_H
#define SHIM_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "device/cuda_driver.h"

/* Called at the beginning of each request for vram, before anything is allocated. */
void spill_note_request(void);
/* Called when the request was served completely. */
void spill_served(void);
/* Returns whether the thread's latest request was refused and it is expected to retry. */
bool spill_refused(void);

/* Called when `bytes` do not fit in vram. Returns true to serve them from the host, false to refuse
 * them (which is recorded). */
bool spill_wanted(unsigned device, cu_device ordinal, uint64_t bytes);

/* Called when a framework starts (1) or stops (-1) to allocate from a private pool: it does not
 * retry then, on any thread. */
void spill_private_pool(int more);

#endif
