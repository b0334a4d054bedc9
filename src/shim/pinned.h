/* Pinned: host memory for copies of the program's tensors, made fast.
 *
 * Pages on the host that nothing uses come first: a program that was short of memory once has many,
 * they are pinned, and the device reaches them. The driver fills the pages of a new pinned request
 * with zeros on one thread: 4 GiB took 1.8 s. Here huge pages are touched by several threads and
 * then registered with the driver: 0.17 s. */
#ifndef SHIM_PINNED_H
#define SHIM_PINNED_H

#include <stdbool.h>
#include <stdint.h>

/* Returns the address of pinned memory that stays until the process ends; 0: there is none. The
 * CPU cannot use it. `*bytes` becomes the size of an idle page if that is less.
 * `most_bytes` bounds what is made in all beside such pages; it is made in larger slabs. */
uint64_t pinned_take(unsigned device, uint64_t *bytes, uint64_t most_bytes);
/* Makes memory ahead, on a thread of its own, until there are as many bytes with idle pages. */
void pinned_prepare(unsigned device, uint64_t bytes);
/* Returns whether the address is in memory that pinned_take returned. */
bool pinned_holds(uint64_t addr);

#endif
