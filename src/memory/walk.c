/* Walk: visits the live allocations of a heap. */
#include "memory/heap.h"

static stow_tier tier_of(const arena *a, uint32_t i) {
  uint32_t p = a->slots[a->spans[i].at >> a->slot_shift];
  return p ? (stow_tier)pool_page(a->pool, p - 1)->tier : STOW_TIER_DISK;
}

static stow_heap_heat heat_of(uint32_t mark) {
  return mark & MARK_HOT ? STOW_HEAT_HOT : mark & MARK_COLD ? STOW_HEAT_COLD : STOW_HEAT_NORMAL;
}

static bool each_in(const lane *l, const room *r, const arena *a, stow_heap_visit visit,
                    void *user) {
  for (uint32_t i = a->first; i != 1; i = a->spans[i].next) {
    const span *s = &a->spans[i];
    if (span_state_of(s) != SPAN_LIVE) continue;
    stow_heap_entry e = {.struct_bytes = sizeof e,
                         .tag = s->mark >> MARK_TAG_SHIFT,
                         .ptr = span_addr(a, i),
                         .bytes = span_bytes(a, i),
                         .stream = l->stream,
                         .tier = tier_of(a, i),
                         .heat = heat_of(s->mark)};
    if (s->mark & MARK_DISK) e.tier = STOW_TIER_DISK;
    if (!(s->mark & MARK_SLAB)) {
      if (!(s->mark & MARK_PENDING) && !visit(user, &e)) return false;
      continue;
    }
    const slab *b = slab_at(&r->slabs, e.ptr);
    const slab_kind *kind = &slab_kinds[b->class];
    const uint32_t *marks = slab_mark(&r->slabs, b, 0);
    uint64_t base = e.ptr;
    e.bytes = kind->bytes;
    for (uint32_t k = 0; k < kind->slots; k++) {
      if (!slab_busy(b, k) || (marks[k] & MARK_PENDING)) continue;
      e.ptr = base + k * e.bytes;
      e.heat = heat_of(marks[k]);
      e.tag = marks[k] >> MARK_TAG_SHIFT;
      if (!visit(user, &e)) return false;
    }
  }
  return true;
}

stow_status stow_heap_each(stow_heap *shell, stow_heap_visit visit, void *user) {
  heap *h;
  STOW_TRY(heap_enter(&h, shell));
  if (!visit) return stow_fail(STOW_ERR_INVALID, "each: the function is NULL");
  uint32_t n = atomic_load(&h->lane_count);
  bool more = true;
  for (uint32_t i = 0; i < n && more; i++) {
    lane *l = atomic_load(&h->lanes[i]);
    latch_acquire(&l->lock);
    lane_flush(l);
    for (int t = 0; t < POOL_TIERS && more; t++) {
      const room *r = &l->rooms[t];
      if (r->fine.base) more = each_in(l, r, &r->fine, visit, user);
      if (r->main.base && more) more = each_in(l, r, &r->main, visit, user);
    }
    latch_release(&l->lock);
  }
  return STOW_OK;
}
