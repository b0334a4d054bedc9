/* Room: frees memory for a request from everything that can provide some: memory that the driver
 * released, free pages (page_table.h), idle memory of the heap (plain.h), and the driver's
 * pools. */
#ifndef SHIM_ROOM_H
#define SHIM_ROOM_H

#include "device/physical.h"
#include "shim/account.h"

/* The account for memory that the program requested from the driver itself: uses everything below.
 * Its `who` is a counted (counted.h). */
extern const physical_account ROOM_ACCOUNT;
bool room_account_charge(const void *who, uint64_t bytes);
bool room_account_make(const void *who, uint64_t bytes);

/* Counts `bytes` before the driver is called. Returns false if the limit is reached even after
 * everything possible was released. The caller returns the bytes if the driver refuses. */
bool room_charge(unsigned device, ledger_kind kind, uint64_t bytes);
/* Called after the caller's ledger_charge failed. Returns true to try again. */
bool room_make(unsigned device);
/* Called when the device itself is full: returns cached memory to the driver. Returns true to try
 * again. */
bool room_trim(unsigned device, uint64_t bytes);
/* Counts what a pool is about to grow by, on a device with a limit. Returns false if there is no
 * space. */
bool room_pool_grows(unsigned device, uint64_t bytes);

#endif
