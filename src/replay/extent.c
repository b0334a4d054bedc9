/* Extents: see extent.h.
 *
 * The currently reserved extents are sorted by address. A segment is allocated and freed as a
 * whole. Pages of an expandable segment may be unmapped in other pieces than they were mapped, so
 * an unmap splits an extent: the pieces before and after it continue as extents of their own. */
#include "replay/extent.h"

#include <stdlib.h>
#include <string.h>

#include "base/list.h"

typedef struct reserve {
  extent_table *t;
  const recording *source;
  uint32_t *now; /* numbers of the currently reserved extents, by address */
  uint32_t count;
  size_t capacity;
  uint64_t bytes, most;
} reserve;

static stow_status extent_add(extent_table *t, const extent *e, uint32_t *number) {
  STOW_TRY(LIST_ROOM(t->list, t->count, t->capacity, 256, "segments of the timeline"));
  *number = t->count;
  t->list[t->count++] = *e;
  return STOW_OK;
}

/* Returns the first reserved extent that ends after `addr`. */
static uint32_t first_past(const reserve *r, uint64_t addr) {
  uint32_t low = 0, high = r->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    const extent *e = &r->t->list[r->now[middle]];
    if (e->addr + e->bytes > addr)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* Reserves [addr, addr+bytes), which must not overlap another reservation, at position `at`. */
static stow_status reserve_at(reserve *r, uint32_t at, const extent *e) {
  uint32_t number;
  STOW_TRY(extent_add(r->t, e, &number));
  STOW_TRY(LIST_ROOM(r->now, r->count, r->capacity, 256, "segments of the timeline"));
  memmove(r->now + at + 1, r->now + at, (r->count - at) * sizeof *r->now);
  r->now[at] = number;
  r->count++;
  r->bytes += e->bytes;
  if (r->bytes > r->most) r->most = r->bytes;
  return STOW_OK;
}

static bool sane(const reserve *r, uint64_t addr, uint64_t bytes) {
  return bytes > 0 && bytes <= EXTENT_BYTES_MAX && r->bytes <= EXTENT_BYTES_MAX - bytes &&
         addr <= UINT64_MAX - bytes && r->count < EXTENTS_MAX;
}

/* Reserves the parts of [addr, addr+bytes) that are not reserved yet: a range recorded twice counts
 * once. */
static stow_status reserve_range(reserve *r, const extent *whole) {
  if (!sane(r, whole->addr, whole->bytes)) {
    r->t->bad++;
    return STOW_OK;
  }
  uint64_t at = whole->addr, end = whole->addr + whole->bytes;
  for (uint32_t i = first_past(r, at); at < end; i++) {
    const extent *next = i < r->count ? &r->t->list[r->now[i]] : NULL;
    uint64_t stop = next != NULL && next->addr < end ? next->addr : end;
    uint64_t resume = next != NULL && next->addr < end ? next->addr + next->bytes : end;
    if (stop > at) {
      extent part = *whole;
      part.addr = at;
      part.bytes = stop - at;
      if (r->count >= EXTENTS_MAX) {
        r->t->bad++;
        return STOW_OK;
      }
      STOW_TRY(reserve_at(r, i, &part));
      i++;
    }
    at = resume;
  }
  return STOW_OK;
}

/* Ends the extents in [addr, addr+bytes) at `tick`; parts that were not reserved existed before the
 * recording. */
static stow_status release_range(reserve *r, uint64_t addr, uint64_t bytes, const event *e,
                                 uint32_t tick) {
  if (bytes == 0 || bytes > EXTENT_BYTES_MAX || addr > UINT64_MAX - bytes) {
    r->t->bad++;
    return STOW_OK;
  }
  uint64_t end = addr + bytes, covered = 0;
  uint32_t i = first_past(r, addr);
  while (i < r->count && r->t->list[r->now[i]].addr < end) {
    uint32_t number = r->now[i];
    extent old = r->t->list[number];
    uint64_t old_end = old.addr + old.bytes;
    r->t->list[number].end = tick;
    r->bytes -= old.bytes;
    memmove(r->now + i, r->now + i + 1, (r->count - i - 1) * sizeof *r->now);
    r->count--;
    covered += (old_end < end ? old_end : end) - (old.addr > addr ? old.addr : addr);
    extent rest = old;
    rest.start = tick;
    rest.before = false;
    if (old.addr < addr) {
      rest.addr = old.addr;
      rest.bytes = addr - old.addr;
      STOW_TRY(reserve_at(r, i++, &rest));
    }
    if (old_end > end) {
      rest.addr = end;
      rest.bytes = old_end - end;
      STOW_TRY(reserve_at(r, i++, &rest));
    }
  }
  if (covered > 0) return STOW_OK;
  extent early = {.addr = addr,
                  .bytes = bytes,
                  .stream = event_origin(r->source, e)->stream,
                  .end = tick,
                  .before = true,
                  .mapped = e->kind == EVENT_SEGMENT_UNMAP};
  uint32_t number;
  return extent_add(r->t, &early, &number);
}

static stow_status follow_event(reserve *r, const event *e, uint32_t tick) {
  extent whole = {.addr = e->addr,
                  .bytes = e->bytes,
                  .stream = event_origin(r->source, e)->stream,
                  .start = tick,
                  .end = EXTENT_OPEN,
                  .mapped = e->kind == EVENT_SEGMENT_MAP};
  switch (e->kind) {
  case EVENT_SEGMENT_ALLOC:
  case EVENT_SEGMENT_MAP: return reserve_range(r, &whole);
  case EVENT_SEGMENT_FREE:
  case EVENT_SEGMENT_UNMAP: return release_range(r, e->addr, e->bytes, e, tick);
  default: return STOW_OK;
  }
}

/* Segments of the final state that no event made existed from the start. */
static stow_status follow_final_state(reserve *r, uint16_t device) {
  for (size_t i = 0; i < r->source->segment_count; i++) {
    const segment *s = &r->source->segments[i];
    if (s->device != device) continue;
    extent whole = {.addr = s->addr,
                    .bytes = s->bytes,
                    .stream = s->stream,
                    .end = EXTENT_OPEN,
                    .mapped = s->expandable,
                    .before = true};
    STOW_TRY(reserve_range(r, &whole));
  }
  return STOW_OK;
}

/* Extents that existed before the recording are found late. Drops (makes empty) those that might
 * push the sum over the bound, assuming the worst: all of them on top of the maximum. */
static void bound_before(reserve *r) {
  extent_table *t = r->t;
  uint64_t room = EXTENT_BYTES_MAX - r->most;
  for (uint32_t i = 0; i < t->count; i++) {
    extent *e = &t->list[i];
    if (!e->before) continue;
    if (e->bytes > room) {
      e->bytes = 0;
      t->bad++;
    }
    room -= e->bytes;
  }
}

stow_status extents_build(extent_table *t, const recording *source, uint16_t device,
                          const uint32_t *events, uint32_t count) {
  *t = (extent_table){0};
  reserve r = {.t = t, .source = source};
  stow_status status = STOW_OK;
  for (uint32_t tick = 0; status == STOW_OK && tick < count; tick++)
    status = follow_event(&r, &source->events[events[tick]], tick);
  uint64_t most = r.most;
  if (status == STOW_OK) status = follow_final_state(&r, device);
  r.most = most; /* the final state adds only `before` extents, bounded below */
  free(r.now);
  bound_before(&r);
  return status;
}
