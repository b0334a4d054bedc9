/* Page parts: one large page that a program asks for (JAX takes its whole pool so), made of a run
 * of pages (page_run.h) in runs with a spill, so that its parts can be in different tiers and move.
 *
 * The program gets one handle for all of it. A page that others may be given (it asks for a handle
 * type) is only made this way if vram has no room for it: one handle cannot name the parts. */
#ifndef SHIM_PAGE_PARTS_H
#define SHIM_PAGE_PARTS_H

#include "shim/account.h"

/* Is a handle one that was given out here? */
bool page_parts_is(cu_handle handle);

/* Is a request one that is made of parts? */
bool page_parts_wanted(size_t bytes, const cu_prop *prop, unsigned long long flags);
/* The calls of the program, as the driver answers them. CU_ERROR_NOT_SUPPORTED of the first:
 * another way is needed. */
cu_result page_parts_create(cu_handle *handle, size_t bytes, const cu_prop *prop);
cu_result page_parts_release(cu_handle handle);
cu_result page_parts_map(cu_addr addr, size_t bytes, size_t offset, cu_handle handle,
                         unsigned long long flags);
/* The program is about to unmap a range. */
void page_parts_unmapping(cu_addr addr, size_t bytes);
/* Another handle for what is mapped around an address. */
bool page_parts_retain(cu_handle *handle, const void *addr);
bool page_parts_prop(cu_prop *prop, cu_handle handle);

#endif
