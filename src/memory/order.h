/* Order: when memory that one stream let go of may be used by another, or leave its address.
 *
 * A ticket is a point in one stream's order, shared by all that was let go of at that moment.
 * Tickets are guarded by the heap's lock; spare events by a lock of their own, since frees that
 * wait take them under an arena's lock. */
#ifndef MEMORY_ORDER_H
#define MEMORY_ORDER_H

#include "base/lock.h"
#include "device/device.h"

typedef struct ticket_slot {
  stow_event event;
  stow_stream stream;
  uint32_t refs; /* 0: a spare entry */
  bool done;
} ticket_slot;

typedef struct ordering {
  stow_device *device;
  ticket_slot *tickets; /* [0] is never used; guarded by the heap's lock */
  uint32_t ticket_count, ticket_capacity;
  lock lock;
  stow_event *spares; /* guarded by lock */
  uint32_t spare_count, spare_capacity;
  _Atomic uint64_t waits; /* times the host waited */
} ordering;

void order_open(ordering *o, stow_device *device);
void order_close(ordering *o);

stow_status order_event(ordering *o, stow_event *event); /* a spare one, or new */
void order_event_back(ordering *o, stow_event event);

/* A ticket for everything submitted to `stream` so far, with one reference, the caller's. */
stow_status order_ticket(ordering *o, uint32_t *ticket, stow_stream stream);
void order_hold(ordering *o, uint32_t ticket);
void order_drop(ordering *o, uint32_t ticket); /* the last reference gives its event back */
/* STOW_OK passed, STOW_ERR_NOT_READY not yet, else the device's error. Ticket 0 has passed. */
stow_status order_query(ordering *o, uint32_t ticket);
stow_status order_wait(ordering *o, uint32_t ticket);
/* What is submitted to `stream` from now on comes after the ticket. Waits for nothing. */
stow_status order_after(ordering *o, uint32_t ticket, stow_stream stream);

#endif
