/* Page run: a large request built from pages of PAGE_RUN_BYTES, which can be in different tiers and
 * change tier. A run that exceeds vram is in vram up to a part that is left to others, and on the
 * host after that. */
#ifndef SHIM_PAGE_RUN_H
#define SHIM_PAGE_RUN_H

#include "shim/account.h"

/* Size of the pages that move: larger ones need fewer calls, smaller ones move less unused
 * memory. */
#define PAGE_RUN_BYTES ((uint64_t)32 << 20)
/* Smaller requests go to the heap, which uses what runs leave in vram. */
#define PAGE_RUN_LEAST ((uint64_t)160 << 20)

typedef struct page_run {
  uint64_t bytes; /* a multiple of the granule */
  unsigned device;
  cu_handle *handles; /* NULL: none */
} page_run;

/* Returns whether pages of this size can move on this device. */
bool page_run_wanted(unsigned device, uint64_t bytes);
/* Returns whether it fits in both tiers together. */
bool page_run_fits(unsigned device, cu_device ordinal, uint64_t bytes);

/* Creates the pages of a run, unmapped. CU_ERROR_OUT_OF_MEMORY: it does not fit in either tier.
 * CU_ERROR_NOT_SUPPORTED: too many sizes, or no host memory. */
cu_result page_run_create(page_run *run, uint64_t bytes, const cu_prop *prop);
/* Maps all of it, or nothing. */
cu_result page_run_map(const page_run *run, cu_addr base);
/* Unmaps all of it. */
cu_result page_run_unmap(const page_run *run, cu_addr base);
/* Releases the handles; mapped pages stay. */
void page_run_release(page_run *run);

#endif
