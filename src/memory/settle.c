/* Settle: work across all lanes with the heap's lock held. It takes free pages from lanes, frees
 * blocks whose events have passed, and unmaps stale spans. */
#include "base/assert.h"
#include "memory/heap.h"

uint64_t lane_strip(lane *l, stow_tier tier, uint64_t bytes, bool wait_frees) {
  ASSERT(lock_held(&l->heap->lock));
  ASSERT((unsigned)tier < POOL_TIERS);
  stow_status status;
  uint64_t got = 0;
  latch_acquire(&l->lock);
  lane_flush(l);
  lane_poll(l, wait_frees, &status);
  lane_flush(l);
  room *r = &l->rooms[tier];
  if (r->fine.base) {
    slabs_trim(&r->slabs, &r->fine);
    got += arena_strip(&r->fine, bytes, NULL, &status);
  }
  if (r->main.base && got < bytes) got += arena_strip(&r->main, bytes - got, NULL, &status);
  latch_release(&l->lock);
  return got;
}

uint64_t heap_strip(heap *h, stow_tier tier, uint64_t bytes, const lane *but) {
  ASSERT(lock_held(&h->lock));
  ASSERT((unsigned)tier < POOL_TIERS);
  uint64_t got = 0;
  uint32_t n = atomic_load(&h->lane_count);
  for (uint32_t i = 0; i < n && got < bytes; i++) {
    lane *l = atomic_load(&h->lanes[i]);
    if (l != but) got += lane_strip(l, tier, bytes - got, false);
  }
  return got;
}

void heap_poll(heap *h, stow_status *status) {
  ASSERT(lock_held(&h->lock));
  uint32_t n = atomic_load(&h->lane_count);
  *status = STOW_OK;
  for (uint32_t i = 0; i < n; i++) {
    lane *l = atomic_load(&h->lanes[i]);
    stow_status s = STOW_OK;
    latch_acquire(&l->lock);
    if (l->queue_count > 0) lane_poll(l, false, &s);
    latch_release(&l->lock);
    if (s != STOW_OK) *status = s;
  }
}

bool heap_settle(heap *h, bool wait, stow_status *status) {
  ASSERT(lock_held(&h->lock));
  ASSERT(status != NULL);
  bool any = false;
  uint32_t n = atomic_load(&h->lane_count);
  *status = STOW_OK;
  for (uint32_t i = 0; i < n; i++) {
    lane *l = atomic_load(&h->lanes[i]);
    stow_status s;
    latch_acquire(&l->lock);
    if (l->queue_count > 0 && lane_poll(l, wait, &s)) any = true;
    lane_flush(l);
    for (int t = 0; t < POOL_TIERS; t++) {
      arena *both[2] = {&l->rooms[t].fine, &l->rooms[t].main};
      for (int k = 0; k < 2; k++) {
        if (!both[k]->base || both[k]->stale == 0) continue;
        uint32_t before = both[k]->stale;
        s = arena_reap(both[k], wait);
        if (s != STOW_OK) *status = s;
        if (both[k]->stale != before) any = true;
      }
    }
    latch_release(&l->lock);
  }
  return any;
}
