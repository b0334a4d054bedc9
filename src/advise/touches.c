/* Touches: walks the events and resolves addresses to lifetimes. */
#include "advise/touches.h"

bool touches_known(const evidence *e) {
  const recording *r = e->source;
  if (recording_fact(r, "estimated") == NULL) return false;
  for (size_t i = 0; i < r->event_count; i++)
    if (r->events[i].kind == EVENT_LAUNCH) return true;
  return false;
}

static void add(touches *t, const map *at, uint64_t addr) {
  const uint64_t *number = map_get(at, addr);
  if (number != NULL && t->count < TOUCHES_MAX) t->list[t->count++] = (uint32_t)*number;
}

stow_status touches_walk(const evidence *e, void (*visit)(void *user, const touches *t),
                         void *user) {
  const recording *r = e->source;
  map at = {0}; /* address → the lifetime that has it */
  touches now = {0};
  uint32_t tick = 0;
  stow_status status = STOW_OK;
  for (size_t i = 0; i <= r->event_count && status == STOW_OK; i++) {
    const event *one = i < r->event_count ? &r->events[i] : NULL;
    if (now.count > 0 && (one == NULL || one->kind != EVENT_TOUCH)) {
      visit(user, &now);
      now.count = 0;
    }
    if (one == NULL) break;
    for (; tick < e->time.tick_count && e->time.events[tick] <= i && status == STOW_OK; tick++) {
      uint32_t n = e->time.lifetime[tick];
      if (n != TIMELINE_NONE && timeline_event(&e->time, tick)->kind == EVENT_ALLOC)
        status = map_put(&at, e->time.lifetimes[n].addr, n);
    }
    now.tick = tick > 0 ? tick - 1 : 0;
    if (event_is_touch(one->kind)) add(&now, &at, one->addr);
  }
  map_free(&at);
  return status;
}

uint32_t touches_youngest(const evidence *e, const touches *t) {
  uint32_t youngest = t->list[0];
  for (uint32_t i = 1; i < t->count; i++)
    if (e->time.lifetimes[t->list[i]].start > e->time.lifetimes[youngest].start)
      youngest = t->list[i];
  return youngest;
}
