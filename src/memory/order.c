/* Order: tickets and spare events (order.h). */
#include "memory/order.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

void order_open(ordering *o, stow_device *device) {
  memset(o, 0, sizeof *o);
  o->device = device;
  lock_init(&o->lock, LOCK_ORDER);
}

/* Ends an event. Retries once if that fails, because nothing retries later. */
static void event_end(ordering *o, stow_event event) {
  if (device_event_destroy(o->device, event) != STOW_OK) device_event_destroy(o->device, event);
}

void order_close(ordering *o) {
  for (uint32_t i = 1; i < o->ticket_count; i++)
    if (o->tickets[i].refs > 0) event_end(o, o->tickets[i].event);
  for (uint32_t i = 0; i < o->spare_count; i++) event_end(o, o->spares[i]);
  free(o->tickets);
  free(o->spares);
}

stow_status order_event(ordering *o, stow_event *event) {
  ASSERT(event != NULL);
  lock_acquire(&o->lock);
  bool have = o->spare_count > 0;
  if (have) *event = o->spares[--o->spare_count];
  lock_release(&o->lock);
  return have ? STOW_OK : device_event_create(o->device, event);
}

void order_event_back(ordering *o, stow_event event) {
  ASSERT(event != NULL);
  lock_acquire(&o->lock);
  if (o->spare_count == o->spare_capacity) {
    uint32_t capacity = o->spare_capacity ? o->spare_capacity * 2 : 16;
    stow_event *grown = realloc(o->spares, capacity * sizeof *grown);
    if (grown) {
      o->spares = grown;
      o->spare_capacity = capacity;
    }
  }
  bool kept = o->spare_count < o->spare_capacity;
  if (kept) o->spares[o->spare_count++] = event;
  lock_release(&o->lock);
  if (!kept) event_end(o, event);
}

stow_status order_ticket(ordering *o, uint32_t *out, stow_stream stream) {
  ASSERT(out != NULL);
  uint32_t i = 1;
  while (i < o->ticket_count && o->tickets[i].refs > 0) i++;
  if (i >= o->ticket_capacity) {
    uint32_t capacity = o->ticket_capacity ? o->ticket_capacity * 2 : 64;
    ticket_slot *grown = realloc(o->tickets, capacity * sizeof *grown);
    if (!grown) return stow_fail(STOW_ERR_HOST_MEMORY, "stream order: no memory for a ticket");
    o->tickets = grown;
    o->ticket_capacity = capacity;
  }
  if (i >= o->ticket_count) o->ticket_count = i + 1;
  o->tickets[i] = (ticket_slot){0};
  stow_event event;
  STOW_TRY(order_event(o, &event));
  stow_status status = device_event_record(o->device, event, stream);
  if (status != STOW_OK) {
    order_event_back(o, event);
    return status;
  }
  o->tickets[i] = (ticket_slot){.event = event, .stream = stream, .refs = 1};
  *out = i;
  return STOW_OK;
}

void order_hold(ordering *o, uint32_t t) {
  ASSERT(t == 0 || (t < o->ticket_count && o->tickets[t].refs > 0));
  if (t != 0) o->tickets[t].refs++;
}

void order_drop(ordering *o, uint32_t t) {
  ASSERT(t == 0 || (t < o->ticket_count && o->tickets[t].refs > 0));
  if (t == 0) return;
  ticket_slot *k = &o->tickets[t];
  if (--k->refs == 0) {
    order_event_back(o, k->event);
    k->event = NULL;
  }
}

stow_status order_query(ordering *o, uint32_t t) {
  ASSERT(t == 0 || (t < o->ticket_count && o->tickets[t].refs > 0));
  if (t == 0 || o->tickets[t].done) return STOW_OK;
  stow_status status = device_event_query(o->device, o->tickets[t].event);
  if (status == STOW_OK) o->tickets[t].done = true;
  return status;
}

stow_status order_wait(ordering *o, uint32_t t) {
  if (order_query(o, t) == STOW_OK) return STOW_OK;
  atomic_fetch_add_explicit(&o->waits, 1, memory_order_relaxed);
  STOW_TRY(device_event_wait(o->device, o->tickets[t].event));
  o->tickets[t].done = true;
  return STOW_OK;
}

stow_status order_after(ordering *o, uint32_t t, stow_stream stream) {
  ASSERT(t == 0 || t < o->ticket_count);
  if (t == 0 || o->tickets[t].stream == stream || order_query(o, t) == STOW_OK) return STOW_OK;
  return device_stream_wait(o->device, stream, o->tickets[t].event);
}
