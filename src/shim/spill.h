/* Spill: whole allocations in host memory, for requests that do not fit in vram and that the heap
 * of plain requests (plain.h) cannot serve. */
#ifndef SHIM_SPILL_H
#define SHIM_SPILL_H

#include "shim/holdings.h"

/* Allocates `bytes` on the host for the calling thread's context, and records it. */
cu_result spill_plain(cu_addr *addr, size_t bytes, unsigned device, cu_device ordinal,
                      cu_context context);
/* Frees an allocation that was removed from holdings.c as `what`. First waits for the work of its
 * context. */
cu_result spill_plain_free(cu_addr addr, const holding *what);
/* Waits for the work of a context (NULL: the current one), as the driver's own free does. */
cu_result spill_wait_for_work(cu_context context);
/* Frees an allocation whose context has ended, so that nothing uses it. */
void spill_plain_drop(cu_addr addr, const holding *what);

#endif
