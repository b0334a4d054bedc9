/* Page: the virtual memory calls of a program with a limit or with spilling, handled so that a
 * framework can release its whole cache and allocate it again at almost no cost.
 *
 * Pages that a program unmaps and releases stay mapped and free until their bytes are needed: at
 * another address, for another kind of request, or by another process. Only then is the driver
 * called. Which page a request gets, and whether it is in vram or on the host, is decided when its
 * address is known. page_table.h explains how.
 *
 * Called by hooks_page.c, by the account when memory is short, and for the figures that a program
 * queries. Without a limit and without spilling nothing here is used: page calls go to the
 * driver. */
#ifndef SHIM_PAGE_H
#define SHIM_PAGE_H

#include "shim/hooks.h"

/* Returns whether a handle is a token of this table. */
bool page_is_token(cu_handle handle);

/* Returns whether a request is handled here. */
bool page_wanted(size_t bytes, const cu_prop *prop, unsigned long long flags);
/* The program's calls for tokens, with the driver's results. */
typedef enum page_request {
  PAGE_OF_PROGRAM, /* requested by the program itself */
  PAGE_OF_BLOCK,   /* part of a block whose contents resident_block_add reports */
  PAGE_ON_HOST,    /* the same, on the host if possible */
} page_request;
cu_result page_create(cu_handle *handle, size_t bytes, const cu_prop *prop, page_request request);
cu_result page_release(cu_handle handle);
cu_result page_map(cu_addr addr, size_t bytes, size_t offset, cu_handle handle,
                   unsigned long long flags);
/* Handle a range. Return true if all of it is tokens' pages, with the result in `code`; false if
 * the driver must be called for the whole range. */
bool page_unmap_range(cu_addr addr, size_t bytes, cu_result *code);
bool page_set_access(cu_addr addr, size_t bytes, const cu_access *access, size_t count,
                     cu_result *code);
/* Called after the driver unmapped a range that is not only tokens' pages. */
void page_unmapped(cu_addr addr, size_t bytes);
/* Called after the driver unmapped a second mapping of this token's page. */
void page_alias_gone(cu_handle handle);
/* Called when the program frees a reservation: first unmaps what is lazily mapped there. */
cu_result page_leave_range(cu_addr addr, size_t bytes);
/* Returns another handle for what is mapped at an address. */
bool page_retain(cu_handle *handle, const void *addr);
/* Returns the driver's handle behind a token, for calls that go to the driver; the page is never
 * moved again. 0: there is no memory for it. */
cu_handle page_real(cu_handle handle);
bool page_prop(cu_prop *prop, cu_handle handle);
/* Returns whether a token's page at an address is on the host, and the device it was requested on.
 * Cheap while nothing is on the host. */
bool page_spilled(cu_addr addr, cu_device *ordinal);
/* Called when something outside gets access to a range: it is never moved again. */
void page_pin_range(cu_addr addr, size_t bytes);

/* Called when a context ended, and with it what moves pages in it (NULL: an unknown one). */
void page_context_ended(unsigned device, cu_context context);

#endif
