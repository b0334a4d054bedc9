/* Page run: a large request made of pages of PAGE_RUN_BYTES, which can be in different tiers and
 * change tier. One that exceeds vram is in vram up to a part that is left to others, and on the
 * host behind that. */
#ifndef SHIM_PAGE_RUN_H
#define SHIM_PAGE_RUN_H

#include "shim/account.h"

/* Pages that move: larger ones cost fewer calls, smaller ones move less that is not used. */
#define PAGE_RUN_BYTES ((uint64_t)32 << 20)
/* Smaller requests are the heap's, and what runs leave in vram is for them. */
#define PAGE_RUN_LEAST ((uint64_t)160 << 20)

typedef struct page_run {
  uint64_t bytes; /* a multiple of the granule */
  unsigned device;
  cu_handle *handles; /* NULL: there is none */
} page_run;

/* Returns whether pages of this size can move on this device. */
bool page_run_wanted(unsigned device, uint64_t bytes);
/* Returns whether both tiers together have room for it. */
bool page_run_fits(unsigned device, cu_device ordinal, uint64_t bytes);

/* Makes the pages of a run, mapped nowhere. CU_ERROR_OUT_OF_MEMORY: neither tier has room.
 * CU_ERROR_NOT_SUPPORTED: there are too many sizes, or no host memory. */
cu_result page_run_create(page_run *run, uint64_t bytes, const cu_prop *prop);
/* Maps all of it, or nothing. */
cu_result page_run_map(const page_run *run, cu_addr base);
/* Unmaps all of it. */
cu_result page_run_unmap(const page_run *run, cu_addr base);
/* Gives up the handles; pages that are mapped live on. */
void page_run_release(page_run *run);

#endif
