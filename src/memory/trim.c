/* Trim: returns cached pages to the device, and changes limits. */
#include "base/assert.h"
#include "memory/heap.h"

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
  lock_acquire(&h->lock);
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
    return stow_fail(STOW_ERR_INVALID, "set_limit: tier %d has no limit; use vram or host",
                     (int)tier);
  if (tier == STOW_TIER_HOST && bytes > 0 && h->props.host_backing < STOW_HOST_LOCATION)
    return stow_fail(STOW_ERR_UNSUPPORTED, "set_limit: %s cannot map host pages", h->props.name);
  lock_acquire(&h->lock);
  lock_acquire(&h->pool.lock);
  bool lower = bytes < h->pool.tier[tier].held;
  lock_release(&h->pool.lock);
  stow_status status = lower ? let_go_all(h, tier) : STOW_OK;
  if (status == STOW_OK) status = pool_set_limit(&h->pool, tier, bytes);
  if (status == STOW_OK && tier == STOW_TIER_HOST) h->host_limit = bytes;
  heap_unlock(h);
  return heap_lose(h, status);
}
