/* Host tier: pages in host memory in the place of device pages.
 *
 * What the run may spill, whether this driver can put pages on the host and by which path, and the
 * making of such pages. The path is probed once per process, in child processes, with path_lock
 * held: a thread that needs the answer meanwhile waits for it. */
#ifndef SHIM_HOST_TIER_H
#define SHIM_HOST_TIER_H

#include "device/physical.h"
#include "shim/account.h"

/* Returns whether the run was started with a spill, whether or not the driver can. */
bool host_tier_on(void);
/* What may be spilled; 0 if this driver cannot. Probes at the first call. */
uint64_t host_tier_budget(cu_device ordinal);
/* The path on this device. Probes at the first call. */
stow_host_backing host_tier_path(cu_device ordinal);

/* The part of the limit that pages leave to other requests while there is a spill: those of
 * libraries that ask once and give up. 0: none. */
uint64_t host_tier_reserve(unsigned device);

/* Returns whether the host keeps enough for itself if `bytes` are taken. Asked each time: others
 * take of it too. */
bool host_tier_has(uint64_t bytes);

/* What vram has room for, within the limit, on the device of the calling thread's context; `*whole`
 * is its size. 0 during a capture. A request that is in both tiers leaves one part in so many of
 * vram to requests that can be nowhere else (code, cuBLAS): JAX leaves a quarter of the device to
 * them. */
#define HOST_TIER_LEAVES_PART 8
uint64_t host_tier_vram_room(unsigned device, uint64_t *whole);

/* A page on the host, counted as LEDGER_SPILLED. CU_ERROR_OUT_OF_MEMORY if the budget, the host or
 * the driver has no room; the caller notes the refusal. */
cu_result host_tier_page_create(cu_handle *page, uint64_t bytes, unsigned device,
                                cu_device ordinal);
cu_result host_tier_page_release(cu_handle page, uint64_t bytes, unsigned device);

/* Pinned memory, counted in the same way, for drivers that put no pages on the host. */
cu_result host_tier_pinned_alloc(cu_addr *addr, void **host, uint64_t bytes, unsigned device);
cu_result host_tier_pinned_free(void *host, uint64_t bytes, unsigned device);

#endif
