/* Pinned: host memory for copies of the program's tensors, made fast.
 *
 * The driver fills the pages of a pinned request with zeros on one thread: 4 GiB took 1.8 s. Here
 * huge pages are touched by several threads and then registered with the driver: 0.17 s. */
#ifndef SHIM_PINNED_H
#define SHIM_PINNED_H

#include <stdbool.h>
#include <stdint.h>

/* Returns `bytes` of pinned memory that stay until the process ends; NULL: there is none, or the
 * driver cannot register it. `most_bytes` bounds what may be made at once: memory is made in larger
 * slabs. */
void *pinned_take(uint64_t bytes, uint64_t most_bytes);
/* Makes memory ahead, on a thread of its own, until as many bytes were made in all. */
void pinned_prepare(uint64_t bytes);
/* Returns whether the address is in memory that pinned_take returned. */
bool pinned_holds(uint64_t addr);

#endif
