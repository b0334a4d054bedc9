/* Room: making room for a request, from everything that can give some: what the driver let go of,
 * free pages (page_table.h), the idle memory of the heap (plain.h), the driver's pools. */
#ifndef SHIM_ROOM_H
#define SHIM_ROOM_H

#include "device/physical.h"
#include "shim/account.h"

/* The account of memory that the program asked the driver for itself: all of the below. Its `who`
 * is a counted (counted.h). */
extern const physical_account ROOM_ACCOUNT;
bool room_account_take(const void *who, uint64_t bytes);
bool room_account_make(const void *who, uint64_t bytes);

/* Counts `bytes` before the driver is asked for them. False: the limit has no room, also after all
 * that could be given back was. The caller gives them back if the driver refuses. */
bool room_take(unsigned device, ledger_kind kind, uint64_t bytes);
/* After a ledger_take of the caller's found no room. True: try again. */
bool room_make(unsigned device);
/* The device itself is full: gives cached memory back to the driver. True: ask it again. */
bool room_trim(unsigned device, uint64_t bytes);
/* Counts what a pool is about to grow by, on a device with a limit. False: there is no room. */
bool room_pool_grows(unsigned device, uint64_t bytes);

#endif
