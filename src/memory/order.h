/* Order: when memory that one stream freed can be used by another stream, or be unmapped.
 *
 * A ticket is a point in the order of one stream, shared by everything freed at that moment. The
 * heap's lock guards tickets. Spare events have their own lock, because pending frees take them
 * under an arena's lock. */
#ifndef MEMORY_ORDER_H
#define MEMORY_ORDER_H

#include "base/lock.h"
#include "device/device.h"

typedef struct ticket_slot {
  stow_event event;
  stow_stream stream;
  uint32_t refs; /* number of references; 0: a spare entry */
  bool done;
} ticket_slot;

typedef struct ordering {
  stow_device *device;
  ticket_slot *tickets; /* [0] is never used; guarded by the heap's lock */
  uint32_t ticket_count, ticket_capacity;
  lock lock;
  stow_event *spares; /* guarded by lock */
  uint32_t spare_count, spare_capacity;
  _Atomic uint64_t waits; /* how often the host waited */
} ordering;

void order_open(ordering *o, stow_device *device);
void order_close(ordering *o);

stow_status order_event(ordering *o, stow_event *event); /* returns a spare event or a new one */
void order_event_back(ordering *o, stow_event event);

/* Creates a ticket for everything submitted to `stream` so far. The caller owns its one reference.
 */
stow_status order_ticket(ordering *o, uint32_t *ticket, stow_stream stream);
void order_hold(ordering *o, uint32_t ticket);
void order_drop(ordering *o, uint32_t ticket); /* dropping the last reference releases the event */
/* Returns STOW_OK if the ticket has passed, STOW_ERR_NOT_READY if not, else the device's error.
 * Ticket 0 has always passed. */
stow_status order_query(ordering *o, uint32_t ticket);
stow_status order_wait(ordering *o, uint32_t ticket);
/* Makes everything submitted to `stream` from now on run after the ticket. Does not wait. */
stow_status order_after(ordering *o, uint32_t ticket, stow_stream stream);

#endif
