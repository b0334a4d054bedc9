/* Stats: counts what the lanes and the pool hold. */
#include <string.h>

#include "base/assert.h"
#include "base/growing.h"
#include "memory/heap.h"

void heap_count_tier(heap *h, stow_tier tier, stow_heap_tier_stats *out) {
  ASSERT(lock_held(&h->lock));
  ASSERT((unsigned)tier < POOL_TIERS);
  uint32_t n = atomic_load(&h->lane_count);
  for (uint32_t i = 0; i < n; i++) {
    lane *l = atomic_load(&h->lanes[i]);
    latch_acquire(&l->lock);
    lane_flush(l);
    const room *r = &l->rooms[tier];
    out->live_bytes += l->live[tier];
    out->peak_live_bytes += l->peak[tier];
    if (r->fine.base) out->pinned_bytes += arena_pinned(&r->fine);
    if (r->main.base) out->pinned_bytes += arena_pinned(&r->main);
    latch_release(&l->lock);
  }
  lock_acquire(&h->pool.lock);
  const pool_tier *t = &h->pool.tier[tier];
  out->limit_bytes = t->limit;
  out->held_bytes = t->held;
  out->cached_bytes = t->cached;
  out->peak_held_bytes = t->peak_held;
  lock_release(&h->pool.lock);
}

static void count_lane(lane *l, stow_heap_stats *s) {
  latch_acquire(&l->lock);
  s->live_count += l->allocs - l->frees;
  s->pending_count += l->queue_count;
  s->pending_bytes += l->pending_bytes;
  s->alloc_total += l->allocs;
  s->free_total += l->frees;
  s->metadata_bytes += sizeof *l + l->queue_capacity * sizeof *l->queue;
  for (int t = 0; t < POOL_TIERS; t++) {
    const room *r = &l->rooms[t];
    if (r->fine.base)
      s->metadata_bytes +=
          arena_metadata_bytes(&r->fine) + slabs_metadata_bytes(&r->slabs, &r->fine);
    if (r->main.base) s->metadata_bytes += arena_metadata_bytes(&r->main);
  }
  latch_release(&l->lock);
}

stow_status stow_heap_get_stats(stow_heap *shell, stow_heap_stats *to) {
  heap *h;
  stow_heap_stats full = STOW_HEAP_STATS_INIT, *stats = &full;
  STOW_TRY(heap_enter(&h, shell));
  lock_acquire(&h->lock);
  for (int t = 0; t < POOL_TIERS; t++) heap_count_tier(h, (stow_tier)t, &stats->tier[t]);
  stats->tier[STOW_TIER_DISK].live_bytes = h->disk.live_bytes;
  stats->tier[STOW_TIER_DISK].held_bytes = h->disk.end;
  stats->streams = atomic_load(&h->lane_count);
  for (uint32_t i = 0; i < stats->streams; i++) count_lane(atomic_load(&h->lanes[i]), stats);
  lock_release(&h->lock);
  stats->fail_total = atomic_load(&h->fails);
  stats->page_creates = atomic_load(&h->pool.creates);
  stats->page_releases = atomic_load(&h->pool.releases);
  stats->maps = atomic_load(&h->pool.maps);
  stats->unmaps = atomic_load(&h->pool.unmaps);
  stats->accesses = atomic_load(&h->pool.accesses);
  stats->stitches = atomic_load(&h->stitches);
  stats->event_waits = atomic_load(&h->order.waits);
  stats->migrated_bytes = atomic_load(&h->migrated);
  stats->spilled_bytes = atomic_load(&h->spilled);
  stats->metadata_bytes += sizeof *h + pool_metadata_bytes(&h->pool);
  return growing_write(to, &full, sizeof full, "stow_heap_stats");
}

stow_status stow_heap_last_failure(stow_heap *shell, stow_heap_failure *failure) {
  heap *h;
  STOW_TRY(heap_enter(&h, shell));
  lock_acquire(&h->lock);
  stow_heap_failure full = h->failure;
  lock_release(&h->lock);
  return growing_write(failure, &full, sizeof full, "stow_heap_failure");
}

stow_status stow_heap_check(stow_heap *shell) {
  heap *h;
  STOW_TRY(heap_enter(&h, shell));
  lock_acquire(&h->lock);
  stow_status status = pool_check(&h->pool);
  uint32_t n = atomic_load(&h->lane_count);
  for (uint32_t i = 0; i < n && status == STOW_OK; i++) {
    lane *l = atomic_load(&h->lanes[i]);
    latch_acquire(&l->lock);
    status = lane_check(l);
    latch_release(&l->lock);
  }
  lock_release(&h->lock);
  return status;
}
