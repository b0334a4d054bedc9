/* Stats: counting what the lanes and the pool hold; walking live allocations; trimming and limits.
 */
#include <string.h>

#include "base/assert.h"
#include "memory/heap.h"

void heap_count_tier(heap *h, stow_tier tier, stow_heap_tier_stats *out) {
  ASSERT(lock_held(&h->lock));
  ASSERT((unsigned)tier < POOL_TIERS);
  uint32_t n = atomic_load(&h->lane_count);
  for (uint32_t i = 0; i < n; i++) {
    lane *l = atomic_load(&h->lanes[i]);
    latch_take(&l->lock);
    lane_flush(l);
    const room *r = &l->rooms[tier];
    out->live_bytes += l->live[tier];
    out->peak_live_bytes += l->peak[tier];
    if (r->fine.base) out->pinned_bytes += arena_pinned(&r->fine);
    if (r->main.base) out->pinned_bytes += arena_pinned(&r->main);
    latch_give(&l->lock);
  }
  lock_take(&h->pool.lock);
  const pool_tier *t = &h->pool.tier[tier];
  out->limit_bytes = t->limit;
  out->held_bytes = t->held;
  out->cached_bytes = t->cached;
  out->peak_held_bytes = t->peak_held;
  lock_give(&h->pool.lock);
}

static void count_lane(lane *l, stow_heap_stats *s) {
  latch_take(&l->lock);
  s->live_count += l->allocs - l->frees;
  s->pending_count += l->queue_count;
  s->pending_bytes += l->pending_bytes;
  s->alloc_total += l->allocs;
  s->free_total += l->frees;
  s->book_bytes += sizeof *l + l->queue_capacity * sizeof *l->queue;
  for (int t = 0; t < POOL_TIERS; t++) {
    const room *r = &l->rooms[t];
    if (r->fine.base)
      s->book_bytes += arena_book_bytes(&r->fine) + slabs_book_bytes(&r->slabs, &r->fine);
    if (r->main.base) s->book_bytes += arena_book_bytes(&r->main);
  }
  latch_give(&l->lock);
}

stow_status stow_heap_get_stats(stow_heap *shell, stow_heap_stats *stats) {
  heap *h;
  STOW_TRY(heap_enter(&h, shell));
  if (!stats) return stow_fail(STOW_ERR_INVALID, "stats: nowhere to put them");
  memset(stats, 0, sizeof *stats);
  lock_take(&h->lock);
  for (int t = 0; t < POOL_TIERS; t++) heap_count_tier(h, (stow_tier)t, &stats->tier[t]);
  stats->tier[STOW_TIER_DISK].live_bytes = h->disk.live_bytes;
  stats->tier[STOW_TIER_DISK].held_bytes = h->disk.end;
  stats->streams = atomic_load(&h->lane_count);
  for (uint32_t i = 0; i < stats->streams; i++) count_lane(atomic_load(&h->lanes[i]), stats);
  lock_give(&h->lock);
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
  stats->book_bytes += sizeof *h + pool_book_bytes(&h->pool);
  return STOW_OK;
}

stow_status stow_heap_last_failure(stow_heap *shell, stow_heap_failure *failure) {
  heap *h;
  STOW_TRY(heap_enter(&h, shell));
  if (!failure) return stow_fail(STOW_ERR_INVALID, "last_failure: nowhere to put it");
  lock_take(&h->lock);
  *failure = h->failure;
  lock_give(&h->lock);
  return STOW_OK;
}

/* ---- walking ---- */

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
    stow_heap_entry e = {span_addr(a, i), span_bytes(a, i), l->stream,
                         tier_of(a, i),   heat_of(s->mark), s->mark >> MARK_TAG_SHIFT};
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
  if (!visit) return stow_fail(STOW_ERR_INVALID, "each: no function");
  uint32_t n = atomic_load(&h->lane_count);
  bool more = true;
  for (uint32_t i = 0; i < n && more; i++) {
    lane *l = atomic_load(&h->lanes[i]);
    latch_take(&l->lock);
    lane_flush(l);
    for (int t = 0; t < POOL_TIERS && more; t++) {
      const room *r = &l->rooms[t];
      if (r->fine.base) more = each_in(l, r, &r->fine, visit, user);
      if (r->main.base && more) more = each_in(l, r, &r->main, visit, user);
    }
    latch_give(&l->lock);
  }
  return STOW_OK;
}

stow_status stow_heap_check(stow_heap *shell) {
  heap *h;
  STOW_TRY(heap_enter(&h, shell));
  lock_take(&h->lock);
  stow_status status = pool_check(&h->pool);
  uint32_t n = atomic_load(&h->lane_count);
  for (uint32_t i = 0; i < n && status == STOW_OK; i++) {
    lane *l = atomic_load(&h->lanes[i]);
    latch_take(&l->lock);
    status = lane_check(l);
    latch_give(&l->lock);
  }
  lock_give(&h->lock);
  return status;
}

/* ---- trimming and limits ---- */

static stow_status let_go_all(heap *h, stow_tier tier) {
  ASSERT(lock_held(&h->lock));
  ASSERT((unsigned)tier < POOL_TIERS);
  stow_status status;
  heap_strip(h, tier, UINT64_MAX, NULL);
  heap_settle(h, true, &status);
  return status;
}

stow_status heap_trim_tier(stow_heap *shell, stow_tier tier, uint64_t keep_bytes,
                           uint64_t *released) {
  heap *h;
  *released = 0;
  STOW_TRY(heap_enter(&h, shell));
  lock_take(&h->lock);
  stow_status status = let_go_all(h, tier);
  if (status == STOW_OK) status = pool_trim(&h->pool, tier, keep_bytes, released);
  heap_unlock(h);
  return heap_lose(h, status);
}

stow_status stow_heap_trim(stow_heap *shell, uint64_t keep_bytes, uint64_t *released) {
  uint64_t went[POOL_TIERS] = {0};
  stow_status status = STOW_OK;
  for (int t = 0; t < POOL_TIERS && status == STOW_OK; t++)
    status = heap_trim_tier(shell, (stow_tier)t, keep_bytes, &went[t]);
  if (released) *released = went[STOW_TIER_VRAM] + went[STOW_TIER_HOST];
  return status;
}

stow_status stow_heap_set_limit(stow_heap *shell, stow_tier tier, uint64_t bytes) {
  heap *h;
  STOW_TRY(heap_enter(&h, shell));
  if (tier != STOW_TIER_VRAM && tier != STOW_TIER_HOST)
    return stow_fail(STOW_ERR_INVALID, "set_limit: tier %d has none", (int)tier);
  if (tier == STOW_TIER_HOST && bytes > 0 && h->props.host_road < STOW_HOST_LOCATION)
    return stow_fail(STOW_ERR_UNSUPPORTED, "set_limit: %s cannot map host pages", h->props.name);
  lock_take(&h->lock);
  lock_take(&h->pool.lock);
  bool lower = bytes < h->pool.tier[tier].held;
  lock_give(&h->pool.lock);
  stow_status status = lower ? let_go_all(h, tier) : STOW_OK;
  if (status == STOW_OK) status = pool_set_limit(&h->pool, tier, bytes);
  if (status == STOW_OK && tier == STOW_TIER_HOST) h->host_limit = bytes;
  heap_unlock(h);
  return heap_lose(h, status);
}
