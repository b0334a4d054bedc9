/* Lane alloc: the parts of allocating a free block that the hot path inlines. The caller holds the
 * lane's lock. */
#ifndef MEMORY_LANE_ALLOC_H
#define MEMORY_LANE_ALLOC_H

#include "memory/heap.h"

#define HOT static inline __attribute__((always_inline))

#define RARE(x) __builtin_expect(!!(x), 0)

HOT uint64_t count_alloc(lane *l, uint64_t bytes, unsigned tier, uint64_t ptr) {
  uint64_t live = l->live[tier] + bytes;
  l->live[tier] = live;
  if (live > l->peak[tier]) l->peak[tier] = live;
  l->allocs++;
  return ptr;
}

/* Returns a block of `units` that is ready without a search; 0 if there is none. */
HOT uint64_t take_ready(lane *l, uint32_t units, uint32_t mark, unsigned tier) {
  room *m = &l->rooms[tier];
  if (units <= SLAB_UNITS_MAX) {
    uint32_t class = slab_class(units);
    slab *b = m->slabs.room[class];
    return RARE(!b) ? 0
                    : count_alloc(l, slab_kinds[class].bytes, tier,
                                  slab_alloc(&m->slabs, b, class, mark));
  }
  arena *a = units < FINE_UNITS ? &m->fine : &m->main;
  if (l->quick_units != units || l->quick_arena != a) return 0;
  span *s = &a->spans[l->quick];
  s->mark = SPAN_LIVE | mark;
  l->quick = l->quick_units = 0;
  return count_alloc(l, (uint64_t)units << UNIT_SHIFT, tier,
                     a->base + ((uint64_t)s->at << UNIT_SHIFT));
}

HOT uint64_t adopt_span(lane *l, arena *a, uint32_t i, uint32_t mark, uint64_t bytes,
                        unsigned tier) {
  a->spans[i].mark |= mark;
  l->found = i;
  l->found_arena = a;
  l->found_changes = a->changes;
  return count_alloc(l, bytes, tier, span_addr(a, i));
}

#endif
