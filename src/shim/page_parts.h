/* Page parts: one large page that a program creates (such as JAX's whole pool), built from a run of
 * pages (page_run.h) in runs with spilling, so that its parts can be in different tiers and move.
 *
 * The program gets one handle for all of it, which cannot be exported. So a page that can be shared
 * with others (it requests a handle type) is built this way only if the program sees one device, or
 * if the page does not fit in vram. */
#ifndef SHIM_PAGE_PARTS_H
#define SHIM_PAGE_PARTS_H

#include "shim/account.h"

/* Returns whether a handle was returned here. */
bool page_parts_is(cu_handle handle);

/* Returns whether a request is built from parts. */
bool page_parts_wanted(size_t bytes, const cu_prop *prop, unsigned long long flags);
/* The program's calls, with the driver's results. CU_ERROR_NOT_SUPPORTED from the first: use
 * another way. */
cu_result page_parts_create(cu_handle *handle, size_t bytes, const cu_prop *prop);
cu_result page_parts_release(cu_handle handle);
cu_result page_parts_map(cu_addr addr, size_t bytes, size_t offset, cu_handle handle,
                         unsigned long long flags);
/* Called when the program is about to unmap a range. */
void page_parts_unmapping(cu_addr addr, size_t bytes);
/* Returns another handle for what is mapped around an address. */
bool page_parts_retain(cu_handle *handle, const void *addr);
bool page_parts_prop(cu_prop *prop, cu_handle handle);

#endif
