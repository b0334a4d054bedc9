/* Lane alloc: allocates a free block of a lane. The caller holds the lane's lock. */
#include "memory/lane_alloc.h"

uint64_t lane_adopt(lane *l, const request *r, stow_tier tier, uint32_t i) {
  room *m = &l->rooms[tier];
  arena *a = r->units < FINE_UNITS ? &m->fine : &m->main;
  if (!r->class) return adopt_span(l, a, i, r->mark, r->bytes, tier);
  if (slab_adopt(&m->slabs, a, i, r->class) != STOW_OK) {
    arena_free(a, i);
    return 0;
  }
  return count_alloc(l, r->bytes, tier,
                     slab_alloc(&m->slabs, m->slabs.room[r->class], r->class, r->mark));
}

uint64_t lane_alloc(lane *l, const request *r, stow_tier tier) {
  room *m = &l->rooms[tier];
  arena *a = r->units < FINE_UNITS ? &m->fine : &m->main;
  if (a->base == 0) return 0;
  if (r->class || r->align == 1) {
    uint64_t ptr = take_ready(l, r->units, r->mark, tier);
    if (ptr) return ptr;
  }
  lane_flush(l);
  uint32_t i = arena_alloc(a, request_units(r), request_align(r));
  return i ? lane_adopt(l, r, tier, i) : 0;
}
