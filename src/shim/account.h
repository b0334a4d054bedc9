/* Account: this process's slot in the run's ledger, and its devices by the run's numbers.
 *
 * Hooks take bytes from the ledger before they call the driver, and return them when the memory is
 * freed. Devices have the numbers of the run's command line, whatever CUDA_VISIBLE_DEVICES became
 * in this process. Any thread may call anything; no lock is held while the driver is called.
 * */
#ifndef SHIM_ACCOUNT_H
#define SHIM_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "run/ledger.h"
#include "shim/shim.h"

/* Returns the run's ledger, joined by this process. Never NULL: without a run it is a private
 * ledger without limits; without memory for that, its header is NULL. */
ledger *account_ledger(void);

/* Prints one line to standard error, for what the user must know at once (a limit that cannot be
 * enforced). */
void account_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Waits, at most a second, until the run's command has read what others hold on the devices. Called
 * before the process creates its first context, whose size is measured relative to that. */
void account_wait_devices(void);

/* Returns the run's number of a device of this process. */
unsigned account_device(cu_device ordinal);
/* Returns the device of the calling thread's context by the run's number, the context and its
 * ordinal. False if the thread has no context. */
bool account_here(unsigned *device, cu_context *context, cu_device *ordinal);

/* Returns counted bytes to the ledger; vram also counts as released. */
void account_uncharge(unsigned device, ledger_kind kind, uint64_t bytes);
/* Returns the bytes of vram that the program has released so far. */
uint64_t account_released(void);
/* Adds bytes that the program released and that are kept for it. */
void account_note_released(uint64_t bytes);
/* Returns what is left of the limit; 0 also if there is no limit. */
uint64_t account_room(unsigned device);

#endif
