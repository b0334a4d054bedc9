/* Account: this process's slot in the run's ledger, and its devices as the run numbers them.
 *
 * Hooks take bytes from the ledger before they ask the driver, and give them back when the memory
 * is freed. Devices have the numbers of the run's command line, whatever CUDA_VISIBLE_DEVICES
 * became in this process. Any thread may call anything; no lock is held while the driver is called.
 */
#ifndef SHIM_ACCOUNT_H
#define SHIM_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "run/ledger.h"
#include "shim/shim.h"

/* The run's ledger, this process joined. Never NULL: without a run it is one of its own without
 * limits; without memory for that its header is NULL. */
ledger *account_ledger(void);

/* One line to standard error: for what the user must know at once (a limit that does not hold). */
void account_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Waits until the run's command has looked at what others hold of the devices, at most a second.
 * Called before the process makes its first context, whose share is the difference to that. */
void account_wait_devices(void);

/* The run's number of a device of this process. */
unsigned account_device(cu_device ordinal);
/* That of the calling thread's context, its device and the context itself. False if it has none. */
bool account_here(unsigned *device, cu_context *context, cu_device *ordinal);

/* Gives counted bytes back; those of vram count as released. */
void account_give(unsigned device, ledger_kind kind, uint64_t bytes);
/* Bytes of vram that the program has released so far. */
uint64_t account_released(void);
/* Adds bytes that the program released and that are kept for it. */
void account_note_released(uint64_t bytes);
/* What is left of the limit; 0 also where there is none. */
uint64_t account_room(unsigned device);

#endif
