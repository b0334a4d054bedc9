/* Timeline: pairs each allocation with its free, in one pass over the events. */
#include "replay/timeline.h"

#include <stdlib.h>
#include <string.h>

/* While building, lifetimes that began before the recording are kept separately: they are found
 * late (at their free, or in the final state) but come first in the finished table. */
typedef struct pairing {
  timeline *t;
  map live; /* address → lifetime number, or BEFORE | number in `before` */
  lifetime *before;
  uint32_t before_count, before_capacity, capacity;
  uint64_t live_bytes;
} pairing;

/* Set in t->lifetime[] while building, for numbers into `before`. Ticks, and so lifetimes, are
 * below 2^31. */
#define BEFORE    UINT32_C(0x80000000)
#define TICKS_MAX (BEFORE - 1)

static bool is_mark(uint8_t kind) {
  return kind == EVENT_MARK_BEGIN || kind == EVENT_MARK_END;
}

size_t timeline_devices(const recording *r, uint16_t *devices, size_t max) {
  uint8_t *seen = calloc(1, 65536);
  if (seen == NULL) {
    devices[0] = 0;
    return 1;
  }
  for (size_t i = 0; i < r->event_count; i++)
    if (!is_mark(r->events[i].kind)) seen[event_origin(r, &r->events[i])->device] = 1;
  for (size_t i = 0; i < r->segment_count; i++) seen[r->segments[i].device] = 1;
  size_t count = 0;
  for (uint32_t d = 0; d < 65536 && count < max; d++)
    if (seen[d]) devices[count++] = (uint16_t)d;
  free(seen);
  if (count == 0) devices[count++] = 0;
  return count;
}

static stow_status no_memory(const char *what, uint64_t count) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %llu %s of the timeline",
                   (unsigned long long)count, what);
}

static stow_status lifetime_add(lifetime **table, uint32_t *count, uint32_t *capacity,
                                const lifetime *l) {
  if (*count == *capacity) {
    uint32_t wanted = *capacity == 0 ? 1024 : *capacity + *capacity / 2;
    lifetime *bigger = realloc(*table, wanted * sizeof **table);
    if (bigger == NULL) return no_memory("allocations", wanted);
    *table = bigger;
    *capacity = wanted;
  }
  (*table)[(*count)++] = *l;
  return STOW_OK;
}

/* Returns whether that many more bytes may be live; otherwise counts the allocation as omitted. */
static bool admit(pairing *p, uint64_t bytes) {
  if (bytes > TIMELINE_BYTES_MAX || p->live_bytes > TIMELINE_BYTES_MAX - bytes) {
    p->t->bad_sizes++;
    return false;
  }
  p->live_bytes += bytes;
  return true;
}

/* Returns the stack id if the recording has it, else 0. */
static uint32_t known_stack(const timeline *t, uint32_t stack_id) {
  return stack_id <= t->source->stack_count ? stack_id : 0;
}

static lifetime *numbered(pairing *p, uint64_t number) {
  return number & BEFORE ? &p->before[number & ~BEFORE] : &p->t->lifetimes[number];
}

static stow_status pair_alloc(pairing *p, const event *e, uint32_t tick) {
  timeline *t = p->t;
  uint64_t *have = map_get(&p->live, e->addr);
  if (have != NULL) {
    lifetime *old = numbered(p, *have);
    old->end = tick;
    p->live_bytes -= old->bytes;
    t->doubled_allocs++;
    STOW_TRY(map_put(&t->superseded, tick, *have));
    map_remove(&p->live, e->addr, NULL);
  }
  if (!admit(p, e->bytes)) return STOW_OK;
  lifetime l = {.addr = e->addr,
                .bytes = e->bytes,
                .stream = timeline_origin(t, e)->stream,
                .start = tick,
                .end = TIMELINE_OPEN,
                .stack_id = known_stack(t, e->stack_id),
                .tag_id = timeline_origin(t, e)->tag_id};
  STOW_TRY(map_put(&p->live, e->addr, t->lifetime_count));
  t->lifetime[tick] = t->lifetime_count;
  return lifetime_add(&t->lifetimes, &t->lifetime_count, &p->capacity, &l);
}

static stow_status pair_free(pairing *p, const event *e, uint32_t tick) {
  timeline *t = p->t;
  uint64_t number;
  if (map_remove(&p->live, e->addr, &number)) {
    lifetime *l = numbered(p, number);
    l->end = tick;
    p->live_bytes -= l->bytes;
    t->lifetime[tick] = (uint32_t)number;
    return STOW_OK;
  }
  if (e->bytes == 0) {
    t->unknown_frees++;
    return STOW_OK;
  }
  /* Live from the start until here. `bound_before` checks the bound once all early lifetimes are
   * known. */
  lifetime l = {.addr = e->addr,
                .bytes = e->bytes,
                .stream = timeline_origin(t, e)->stream,
                .end = tick,
                .stack_id = known_stack(t, e->stack_id),
                .tag_id = timeline_origin(t, e)->tag_id,
                .before = true};
  t->lifetime[tick] = BEFORE | p->before_count;
  return lifetime_add(&p->before, &p->before_count, &p->before_capacity, &l);
}

/* Blocks live in the final state that no event made were live from the start. */
static stow_status pair_final_state(pairing *p) {
  const recording *r = p->t->source;
  for (size_t i = 0; i < r->segment_count; i++) {
    const segment *s = &r->segments[i];
    if (s->device != p->t->device) continue;
    for (uint64_t b = s->first_block; b < s->first_block + s->block_count && b < r->block_count;
         b++) {
      const block *have = &r->blocks[b];
      if (have->state == BLOCK_FREE || map_get(&p->live, have->addr) != NULL) continue;
      lifetime l = {.addr = have->addr,
                    .stream = s->stream,
                    .end = TIMELINE_OPEN,
                    .bytes = have->requested_bytes ? have->requested_bytes : have->bytes,
                    .stack_id = known_stack(p->t, have->stack_id),
                    .before = true};
      STOW_TRY(map_put(&p->live, have->addr, BEFORE | p->before_count));
      STOW_TRY(lifetime_add(&p->before, &p->before_count, &p->before_capacity, &l));
    }
  }
  return STOW_OK;
}

/* Early lifetimes are found after the sums they add to. Drops (makes empty) those that might push
 * the total over the bound, assuming the worst: all of them and everything else at once. */
static void bound_before(pairing *p) {
  uint64_t most = 0, live = 0;
  const timeline *t = p->t;
  for (uint32_t tick = 0; tick < t->tick_count; tick++) {
    uint32_t n = t->lifetime[tick];
    if (n == TIMELINE_NONE || n & BEFORE) continue;
    const lifetime *l = &t->lifetimes[n];
    if (l->start == tick)
      live += l->bytes;
    else
      live -= l->bytes < live ? l->bytes : live;
    if (live > most) most = live;
  }
  uint64_t room = TIMELINE_BYTES_MAX > most ? TIMELINE_BYTES_MAX - most : 0;
  for (uint32_t i = 0; i < p->before_count; i++) {
    if (p->before[i].bytes > room) {
      p->before[i].bytes = 0;
      p->t->bad_sizes++;
    }
    room -= p->before[i].bytes;
  }
}

/* Puts the early lifetimes first and renumbers. */
static stow_status join(pairing *p) {
  timeline *t = p->t;
  uint64_t total = (uint64_t)t->lifetime_count + p->before_count;
  if (total == 0) return STOW_OK;
  lifetime *all = malloc(total * sizeof *all);
  if (all == NULL) return no_memory("allocations", total);
  if (p->before_count > 0) memcpy(all, p->before, p->before_count * sizeof *all);
  if (t->lifetime_count > 0)
    memcpy(all + p->before_count, t->lifetimes, t->lifetime_count * sizeof *all);
  free(t->lifetimes);
  t->lifetimes = all;
  t->lifetime_count = (uint32_t)total;
  t->before_count = p->before_count;
  for (uint32_t tick = 0; tick < t->tick_count; tick++) {
    uint32_t n = t->lifetime[tick];
    if (n == TIMELINE_NONE) continue;
    t->lifetime[tick] = n & BEFORE ? n & ~BEFORE : n + p->before_count;
  }
  for (size_t i = 0; i < t->superseded.capacity; i++) {
    uint64_t *n = &t->superseded.slots[i].value;
    if (t->superseded.used[i]) *n = *n & BEFORE ? *n & ~(uint64_t)BEFORE : *n + p->before_count;
  }
  return STOW_OK;
}

/* Marks belong to every device. */
static bool is_of(const timeline *t, const event *e) {
  if (event_is_touch(e->kind)) return false; /* they neither allocate nor free */
  return is_mark(e->kind) || timeline_origin(t, e)->device == t->device;
}

static stow_status collect_events(timeline *t) {
  const recording *r = t->source;
  uint64_t count = 0;
  for (size_t i = 0; i < r->event_count; i++) count += is_of(t, &r->events[i]);
  if (r->event_count > TICKS_MAX)
    return stow_fail(
        STOW_ERR_OVERFLOW,
        "a report of %zu events is too large, the maximum is %u; convert a part of the trace",
        r->event_count, TICKS_MAX);
  t->events = malloc((count + 1) * sizeof *t->events);
  t->lifetime = malloc((count + 1) * sizeof *t->lifetime);
  if (t->events == NULL || t->lifetime == NULL) return no_memory("events", count);
  for (size_t i = 0; i < r->event_count; i++)
    if (is_of(t, &r->events[i])) t->events[t->tick_count++] = (uint32_t)i;
  memset(t->lifetime, 0xff, (count + 1) * sizeof *t->lifetime);
  return STOW_OK;
}

static stow_status find_extents(timeline *t) {
  extent_table found;
  stow_status status = extents_build(&found, t->source, t->device, t->events, t->tick_count);
  t->extents = found.list;
  t->extent_count = found.count;
  t->bad_extents = found.bad;
  t->reserved_known = found.count > 0;
  return status;
}

static stow_status pair_all(pairing *p) {
  timeline *t = p->t;
  STOW_TRY(collect_events(t));
  for (uint32_t tick = 0; tick < t->tick_count; tick++) {
    const event *e = timeline_event(t, tick);
    if (e->kind == EVENT_ALLOC) STOW_TRY(pair_alloc(p, e, tick));
    if (e->kind == EVENT_FREE) STOW_TRY(pair_free(p, e, tick));
  }
  STOW_TRY(pair_final_state(p));
  bound_before(p);
  STOW_TRY(join(p));
  return find_extents(t);
}

stow_status timeline_build(timeline *t, const recording *r, uint16_t device) {
  *t = (timeline){.source = r, .device = device};
  pairing p = {.t = t};
  stow_status status = pair_all(&p);
  map_free(&p.live);
  free(p.before);
  return status;
}

void timeline_free(timeline *t) {
  free(t->events);
  free(t->lifetime);
  free(t->lifetimes);
  free(t->extents);
  map_free(&t->superseded);
  *t = (timeline){0};
}

int64_t timeline_change(const timeline *t, uint32_t tick) {
  int64_t change = 0;
  uint32_t n = t->lifetime[tick];
  if (n != TIMELINE_NONE) {
    int64_t bytes = (int64_t)t->lifetimes[n].bytes;
    change = timeline_event(t, tick)->kind == EVENT_ALLOC ? bytes : -bytes;
  }
  const uint64_t *old = t->superseded.count > 0 ? map_get(&t->superseded, tick) : NULL;
  return old != NULL ? change - (int64_t)t->lifetimes[*old].bytes : change;
}

uint64_t timeline_time_ns(const timeline *t, uint32_t tick) {
  if (t->tick_count == 0) return 0;
  if (tick >= t->tick_count) tick = t->tick_count - 1;
  uint64_t first = timeline_event(t, 0)->time_ns, now = timeline_event(t, tick)->time_ns;
  return now > first ? now - first : 0;
}
