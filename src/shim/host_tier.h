/* Host tier: pages in host memory instead of device pages.
 *
 * Knows how much the run may spill and how this driver can put pages on the host, and creates such
 * pages. The path is probed once per process, in child processes, with path_lock held; other
 * threads that need the result wait for it. */
#ifndef SHIM_HOST_TIER_H
#define SHIM_HOST_TIER_H

#include "device/physical.h"
#include "shim/account.h"

/* Returns whether the run was started with spilling, even if the driver does not support it. */
bool host_tier_on(void);
/* Returns how much may be spilled; 0 if this driver cannot. Probes at the first call. */
uint64_t host_tier_budget(cu_device ordinal);
/* Returns the path on this device. Probes at the first call. */
stow_host_backing host_tier_path(cu_device ordinal);

/* Returns the part of the limit that pages leave to other requests while spilling is on: to
 * libraries that request once and give up. `moves`: pages that can move leave room for those that
 * cannot, too. 0: none. */
uint64_t host_tier_reserve(unsigned device, bool moves);

/* Returns whether the host keeps enough memory for itself if `bytes` are taken. Checked each time,
 * because others use it too. */
bool host_tier_has(uint64_t bytes);

/* Returns how much vram is available within the limit on the device of the calling thread's
 * context; `*whole` is its size. 0 during a capture. A request that is in both tiers leaves 1/8 of
 * vram to requests that can be nowhere else (code, cuBLAS): JAX leaves them a quarter of the
 * device. */
#define HOST_TIER_LEAVES_PART 8
uint64_t host_tier_vram_room(unsigned device, uint64_t *whole);

/* Creates a page on the host, counted as LEDGER_SPILLED. CU_ERROR_OUT_OF_MEMORY if the budget, the
 * host or the driver is full; the caller notes the refusal. */
cu_result host_tier_page_create(cu_handle *page, uint64_t bytes, unsigned device,
                                cu_device ordinal);
cu_result host_tier_page_release(cu_handle page, uint64_t bytes, unsigned device);

/* Allocates pinned memory, counted in the same way, for drivers that cannot put pages on the
 * host. */
cu_result host_tier_pinned_alloc(cu_addr *addr, void **host, uint64_t bytes, unsigned device);
cu_result host_tier_pinned_free(void *host, uint64_t bytes, unsigned device);

#endif
