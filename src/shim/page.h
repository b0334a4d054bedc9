/* Page: the virtual memory calls of a program under a limit or with a spill, answered so that a
 * framework can let go of all it caches and take it again for next to nothing.
 *
 * What a program unmaps and releases stays mapped, free, until the bytes are needed: by another
 * address, another kind of request, or another process. Only there does the driver work. Which page
 * a request gets, and whether it is in vram or on the host, is decided when its address is known.
 * page_table.h explains how.
 *
 * Called by hooks_page.c, by the account when there is no room, and by the figures a program asks
 * for. Without a limit and without a spill nothing here is used: pages pass to the driver. */
#ifndef SHIM_PAGE_H
#define SHIM_PAGE_H

#include "shim/hooks.h"

/* Is a handle one of the names given out here? */
bool page_is_token(cu_handle handle);

/* Is a request one that is answered here? */
bool page_wanted(size_t bytes, const cu_prop *prop, unsigned long long flags);
/* The calls of the program, for tokens; as the driver answers them. */
typedef enum page_request {
  PAGE_OF_PROGRAM, /* asked for by the program itself */
  PAGE_OF_BLOCK,   /* part of a block whose contents resident_block_add reports */
  PAGE_ON_HOST,    /* the same, on the host where that is possible */
} page_request;
cu_result page_create(cu_handle *handle, size_t bytes, const cu_prop *prop, page_request request);
cu_result page_release(cu_handle handle);
cu_result page_map(cu_addr addr, size_t bytes, size_t offset, cu_handle handle,
                   unsigned long long flags);
/* For ranges: true if all of it is tokens' pages, and `code` is the answer; false if the driver has
 * to be asked, for the whole range. */
bool page_unmap_range(cu_addr addr, size_t bytes, cu_result *code);
bool page_set_access(cu_addr addr, size_t bytes, const cu_access *access, size_t count,
                     cu_result *code);
/* The driver has unmapped a range that is not all tokens' pages. */
void page_unmapped(cu_addr addr, size_t bytes);
/* It has unmapped a second mapping of this token's page. */
void page_alias_gone(cu_handle handle);
/* The program ends a reservation: what is lazily mapped there goes first. */
cu_result page_leave_range(cu_addr addr, size_t bytes);
/* Another handle for what is mapped at an address. */
bool page_retain(cu_handle *handle, const void *addr);
/* The driver's handle behind a token, for calls that are the driver's; the page is never moved
 * again. 0: there is no memory for it. */
cu_handle page_real(cu_handle handle);
bool page_prop(cu_prop *prop, cu_handle handle);
/* Is a token's page behind an address that is on the host, and of which device was it asked? Cheap
 * while nothing is there. */
bool page_spilled(cu_addr addr, cu_device *ordinal);
/* Something outside was given what is behind a range: it is never moved again. */
void page_pin_range(cu_addr addr, size_t bytes);

/* A context ended, and what moves pages in it with it (NULL: one that is not known). */
void page_context_ended(unsigned device, cu_context context);

#endif
