/* Retry: whether a request that vram has no room for is refused or served from the host.
 *
 * A framework that drops its cache and retries after "out of memory" (PyTorch) is refused once per
 * request, and served from the host only if the retry fails too. Every other caller is served at
 * once, also in a process with such a framework. Never refused: requests during a capture, where no
 * cache is dropped, and, for a growing number of requests, those after a refusal that freed
 * nothing. The state is the calling thread's. */
#ifndef SHIM_RETRY_H
#define SHIM_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "device/cuda_driver.h"

/* Called at the beginning of each request for vram, before anything is taken. */
void spill_note_request(void);
/* Called when it was served, with all its pages. */
void spill_served(void);
/* Returns whether the thread's latest request was refused and it is expected to retry. */
bool spill_refused(void);

/* Vram has no room for `bytes`. True: serve them from the host. False: refuse (which is noted). */
bool spill_wanted(unsigned device, cu_device ordinal, uint64_t bytes);

/* A framework begins (1) or ends (-1) to allocate from a private pool: it does not retry then, on
 * whatever thread. */
void spill_private_pool(int more);

#endif
