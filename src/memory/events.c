/* Events: sends events to the sinks (stowage/events.h). Called with no lock held, except heap_note.
 */
#include <sched.h>
#include <stdlib.h>

#include "base/assert.h"
#include "memory/heap.h"

uint64_t heap_emit(heap *h, const stow_heap_event *event) {
  ASSERT(!lock_held(&h->lock));
  ASSERT(event != NULL);
  uint64_t freed = 0;
  for (int i = 0; i < STOW_SINKS_MAX; i++) {
    sink *s = &h->sinks[i];
    atomic_fetch_add_explicit(&s->inside, 1, memory_order_seq_cst);
    stow_heap_sink call = atomic_load_explicit(&s->call, memory_order_seq_cst);
    if (call && (s->mask & STOW_EVENT_BIT(event->kind))) freed += call(s->user, event);
    atomic_fetch_sub_explicit(&s->inside, 1, memory_order_release);
  }
  return freed;
}

void heap_note(heap *h, stow_heap_event_kind kind, stow_addr ptr, uint64_t bytes, stow_tier tier) {
  ASSERT(lock_held(&h->lock));
  if (!heap_has_listener(h, kind)) return;
  if (h->note_count == h->note_capacity) {
    uint32_t capacity = h->note_capacity ? h->note_capacity * 2 : 32;
    note *grown = realloc(h->notes, capacity * sizeof *grown);
    if (!grown) return; /* dropping an event is better than failing an allocation */
    h->notes = grown;
    h->note_capacity = capacity;
  }
  h->notes[h->note_count++] = (note){kind, ptr, bytes, tier};
}

void heap_unlock(heap *h) {
  ASSERT(lock_held(&h->lock));
  note *notes = NULL;
  uint32_t count = h->note_count;
  if (count > 0) {
    notes = h->notes;
    h->notes = NULL;
    h->note_count = h->note_capacity = 0;
  }
  lock_release(&h->lock);
  for (uint32_t i = 0; i < count; i++) {
    stow_heap_event event = {.struct_bytes = sizeof event,
                             .kind = notes[i].kind,
                             .heap = h->shell,
                             .ptr = notes[i].ptr,
                             .bytes = notes[i].bytes,
                             .tier = notes[i].tier};
    heap_emit(h, &event);
  }
  free(notes);
}

static void mask_renew(heap *h) {
  ASSERT(lock_held(&h->lock));
  uint32_t mask = 0;
  for (int i = 0; i < STOW_SINKS_MAX; i++)
    if (atomic_load(&h->sinks[i].call)) mask |= h->sinks[i].mask;
  atomic_store(&h->sink_mask, mask);
}

stow_status stow_heap_add_sink(stow_heap *shell, stow_heap_sink call, void *user, uint32_t mask) {
  heap *h;
  STOW_TRY(heap_enter(&h, shell));
  if (!call || (mask & ~STOW_EVENT_ALL) || mask == 0)
    return stow_fail(STOW_ERR_INVALID,
                     "add_sink: the function is NULL, or the kinds 0x%x are unknown", mask);
  stow_status status =
      stow_fail(STOW_ERR_OVERFLOW, "add_sink: %d sinks are already registered; remove one first",
                STOW_SINKS_MAX);
  lock_acquire(&h->lock);
  for (int i = 0; i < STOW_SINKS_MAX; i++) {
    sink *s = &h->sinks[i];
    if (atomic_load(&s->call) || atomic_load(&s->inside)) continue;
    s->user = user;
    s->mask = mask;
    atomic_store(&s->call, call);
    mask_renew(h);
    status = STOW_OK;
    break;
  }
  lock_release(&h->lock);
  return status;
}

stow_status stow_heap_remove_sink(stow_heap *shell, stow_heap_sink call, void *user) {
  heap *h;
  STOW_TRY(heap_enter(&h, shell));
  sink *found = NULL;
  lock_acquire(&h->lock);
  for (int i = 0; i < STOW_SINKS_MAX && !found; i++)
    if (atomic_load(&h->sinks[i].call) == call && h->sinks[i].user == user) found = &h->sinks[i];
  if (found) {
    atomic_store(&found->call, NULL);
    mask_renew(h);
  }
  lock_release(&h->lock);
  if (!found) return stow_fail(STOW_ERR_NOT_FOUND, "remove_sink: the sink is not registered");
  while (atomic_load_explicit(&found->inside, memory_order_acquire) != 0) sched_yield();
  return STOW_OK;
}
