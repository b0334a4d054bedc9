/* Counted: the run's ledger as a physical_account (device/physical.h).
 *
 * The functions count `bytes` of one kind on one device. They neither measure nor reclaim: callers
 * that may wait for that wrap `charge` (host_tier.c, heap_device.c, hooks_page.c). */
#ifndef SHIM_COUNTED_H
#define SHIM_COUNTED_H

#include "device/physical.h"
#include "shim/account.h"

/* The `who` of a `physical` that counts here. */
typedef struct counted {
  unsigned device;
  ledger_kind kind;
} counted;

bool counted_charge(const void *who, uint64_t bytes);
/* Does the same with another way to charge what the reserve does not cover. */
bool counted_charge_by(const counted *c, uint64_t bytes,
                       bool (*charge)(const counted *c, uint64_t bytes));

/* Announces `bytes`, which the caller has charged, for what this thread creates next: no other
 * process gets them before the last part is made. A thread has one reserve. */
void counted_reserve(const counted *c, uint64_t bytes);
/* Ends this, and withdraws what was not needed. */
void counted_unreserve(void);

void counted_made(const void *who, uint64_t bytes);
void counted_undo(const void *who, uint64_t bytes, cu_result code);
/* For pages that are cached here: the program released them earlier. */
void counted_uncharge(const void *who, uint64_t bytes);
/* For memory that the program frees now: also counts as released (account_released). */
void counted_release(const void *who, uint64_t bytes);

#endif
