/* Page room: releases free pages, which are still counted, for requests of other kinds. */
#ifndef SHIM_PAGE_ROOM_H
#define SHIM_PAGE_ROOM_H

#include "shim/account.h"

/* Returns at least `bytes` of free vram to the driver. Returns false if not even one page was
 * free. */
bool page_reclaim(unsigned device, uint64_t bytes);
/* Counts `bytes` of any kind: measure_take, and once more after free pages were released. */
bool page_take(unsigned device, ledger_kind kind, uint64_t bytes);

#endif
