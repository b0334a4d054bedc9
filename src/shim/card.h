/* Card: the device the shim hands to its heap (stowage/sys/device.h), made of the real driver's
 * page calls.
 *
 * Every page it makes is first counted in the run's ledger, so the heap's memory keeps the same
 * limit as everybody's, and the heap learns that the limit is full as it would learn that the card
 * is. It knows no streams: whoever frees to the heap has seen the device pass the free (plain.h),
 * so its events are always passed. */
#ifndef SHIM_CARD_H
#define SHIM_CARD_H

#include <stowage/sys/device.h>

#include "shim/account.h"

/* Opens it for a card; `device` is the run's number. Needs no context. STOW_ERR_UNSUPPORTED: this
 * driver has no pages. */
stow_status card_open(stow_device **out, cu_device card, unsigned device);

/* Is this one of the addresses it reserved? Cheap. */
bool card_owns(const stow_device *device, cu_addr addr);
/* Bytes of pages there are on a tier. */
uint64_t card_held(const stow_device *device, stow_tier tier);

/* What there is in vram for the pages of a block that is too large for it. */
uint64_t card_room(const stow_device *device);
/* Has the heap pages of vram among its host pages? */
bool card_lent(const stow_device *device);

/* On which tier requests of this thread make pages: in vram, until it is said; then on the host,
 * but for the part of a block that vram has room for. */
void card_use_host(bool host);
/* Is this thread inside one of the card's calls? */
bool card_inside(void);

#endif
