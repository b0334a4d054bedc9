/* Grow: serves a request for which nothing free fits (heap.h).
 *
 * It tries, in this order: pages from the pool or the device while the limit allows; completely
 * free pages from this stream's free spans, then from other streams'; waiting for the events of
 * freed memory, then all of the above again; asking the listeners to free memory; spilling to the
 * host tier. Then it fails and reports the numbers. So a request fails only if the pages missing at
 * the best place exceed the limit minus the pages of live allocations. */
#include <stdio.h>
#include <string.h>

#include <stowage/size.h>

#include "base/assert.h"
#include "memory/heap.h"

/* ---- one attempt; heap and lane are locked ---- */

typedef struct attempt {
  window w;
  uint64_t lacking; /* bytes of pages that are still missing */
  char why[200];    /* the driver's message if it refused; otherwise "" */
} attempt;

/* Takes pages from this lane's own free spans, outside the window, until the pool has `missing`. */
static uint64_t strip_own(lane *l, arena *a, stow_tier tier, const window *w) {
  ASSERT(lock_held(&l->heap->lock));
  heap *h = l->heap;
  room *r = &l->rooms[tier];
  stow_status status;
  uint64_t have = pool_room(&h->pool, tier);
  arena *order[2] = {a, a == &r->main ? &r->fine : &r->main};
  for (int k = 0; k < 2 && have < w->missing; k++) {
    uint64_t got = arena_strip(order[k], w->missing - have, order[k] == a ? w : NULL, &status);
    if (got) atomic_fetch_add_explicit(&h->stitches, 1, memory_order_relaxed);
    have = pool_room(&h->pool, tier);
  }
  return have;
}

static void note_backed(heap *h, const arena *a, const window *w) {
  if (heap_has_listener(h, STOW_EVENT_MAP) && w->missing)
    heap_note(h, STOW_EVENT_MAP, a->base + ((uint64_t)w->at << UNIT_SHIFT),
              (uint64_t)w->units << UNIT_SHIFT, (stow_tier)a->tier);
}

static stow_status try_once(uint64_t *ptr, lane *l, const request *r, stow_tier tier, attempt *at) {
  ASSERT(lock_held(&l->heap->lock));
  ASSERT((unsigned)tier < POOL_TIERS);
  heap *h = l->heap;
  stow_status status;
  at->w.units = 0;
  status = lane_room(l, tier);
  if (status == STOW_ERR_OUT_OF_MEMORY)
    snprintf(at->why, sizeof at->why, "%s", stow_status_message());
  STOW_TRY(status);
  room *m = &l->rooms[tier];
  arena *a = request_units(r) < FINE_UNITS ? &m->fine : &m->main;
  lane_poll(l, false, &status);
  lane_flush(l);
  at->lacking = 0;
  if ((*ptr = lane_alloc(l, r, tier)) != 0) return STOW_OK;
  if (!arena_plan(a, &at->w, request_units(r), request_align(r))) {
    /* No run of addresses is long enough, although arenas are several times the size of the device:
     * all pages are missing. */
    uint64_t most = h->props.page_bytes - 1;
    at->w.missing = (r->bytes + most) & ~most;
    return STOW_ERR_OUT_OF_MEMORY;
  }
  uint64_t have = pool_room(&h->pool, tier);
  if (have < at->w.missing) have = strip_own(l, a, tier, &at->w);
  if (have < at->w.missing) {
    at->lacking = at->w.missing - have;
    return STOW_ERR_OUT_OF_MEMORY;
  }
  uint32_t span_index;
  status = arena_back(a, &span_index, &at->w);
  if (status == STOW_ERR_OUT_OF_MEMORY) {
    at->lacking = h->props.page_bytes;
    snprintf(at->why, sizeof at->why, "%s", stow_status_message());
  }
  STOW_TRY(status);
  note_backed(h, a, &at->w);
  *ptr = lane_adopt(l, r, tier, span_index);
  return *ptr ? STOW_OK : STOW_ERR_HOST_MEMORY; /* slab_adopt set the message */
}

/* Limits the attempts of one request; each but the last frees or takes something. */
#define TRIES_MAX 64

static stow_status grow_on(uint64_t *ptr, heap *h, lane *l, const request *r, stow_tier tier,
                           attempt *at) {
  ASSERT(!lock_held(&h->lock));
  ASSERT((unsigned)tier < POOL_TIERS);
  stow_status status = STOW_OK, settled;
  lock_acquire(&h->lock);
  pool_retry_driver(&h->pool);
  for (int k = 0; k < TRIES_MAX; k++) {
    latch_acquire(&l->lock);
    status = try_once(ptr, l, r, tier, at);
    latch_release(&l->lock);
    if (status == STOW_ERR_OUT_OF_MEMORY && at->lacking &&
        heap_strip(h, tier, at->lacking, l) > 0) {
      atomic_fetch_add_explicit(&h->stitches, 1, memory_order_relaxed);
      continue;
    }
    if (status != STOW_ERR_OUT_OF_MEMORY && status != STOW_ERR_NOT_READY) break;
    if (k == 0)
      pool_retry_driver(&h->pool); /* other memory of the device may have been freed during
                                    * the wait */
    if (!heap_settle(h, true, &settled)) {
      /* As a last resort, release empty slabs, which may pin a page. */
      if (k > 0 && at->lacking && lane_strip(l, tier, at->lacking, false) > 0) continue;
      if (k > 0) break;
    }
  }
  heap_unlock(h);
  background_kick(h);
  return heap_lose(h, status);
}

/* ---- failing ---- */

static uint64_t largest_free(heap *h) {
  ASSERT(lock_held(&h->lock));
  uint64_t most = 0;
  uint32_t n = atomic_load(&h->lane_count);
  for (uint32_t i = 0; i < n; i++) {
    lane *l = atomic_load(&h->lanes[i]);
    latch_acquire(&l->lock);
    lane_flush(l);
    uint64_t here = l->rooms[0].main.base ? arena_largest(&l->rooms[0].main) : 0;
    latch_release(&l->lock);
    if (here > most) most = here;
  }
  return most;
}

static stow_status fail(heap *h, const request *r, const attempt *at) {
  ASSERT(!lock_held(&h->lock));
  stow_heap_failure f = {.asked_bytes = r->bytes, .needed_page_bytes = at->w.missing};
  stow_heap_tier_stats vram = {0}, host = {0};
  lock_acquire(&h->lock);
  heap_count_tier(h, STOW_TIER_VRAM, &vram);
  heap_count_tier(h, STOW_TIER_HOST, &host);
  f.largest_free_bytes = largest_free(h);
  uint32_t n = atomic_load(&h->lane_count);
  for (uint32_t i = 0; i < n; i++) {
    lane *l = atomic_load(&h->lanes[i]);
    latch_acquire(&l->lock);
    f.live_count += l->allocs - l->frees;
    latch_release(&l->lock);
  }
  f.limit_bytes = vram.limit_bytes;
  f.held_bytes = vram.held_bytes;
  f.live_bytes = vram.live_bytes;
  f.pinned_bytes = vram.pinned_bytes;
  f.cached_bytes = vram.cached_bytes;
  f.host_limit_bytes = host.limit_bytes;
  f.host_held_bytes = host.held_bytes;
  if (device_memory(h->device, STOW_TIER_VRAM, &f.device_free_bytes, NULL) != STOW_OK)
    f.device_free_bytes = 0;
  h->failure = f;
  heap_unlock(h);
  atomic_fetch_add_explicit(&h->fails, 1, memory_order_relaxed);
  if (heap_has_listener(h, STOW_EVENT_FAIL)) {
    stow_heap_event event = {
        .struct_bytes = sizeof event, .kind = STOW_EVENT_FAIL, .heap = h->shell, .bytes = r->bytes};
    heap_emit(h, &event);
  }
  char asked[STOW_SIZE_TEXT_MAX], needs[STOW_SIZE_TEXT_MAX], limit[STOW_SIZE_TEXT_MAX],
      live[STOW_SIZE_TEXT_MAX], pinned[STOW_SIZE_TEXT_MAX];
  uint64_t left = f.limit_bytes > f.pinned_bytes ? f.limit_bytes - f.pinned_bytes : 0;
  const char *next = f.host_limit_bytes
                         ? "free some, or raise the host budget"
                         : "free some, raise the limit, or set a host budget to spill to";
  if (at->why[0] && left >= f.needed_page_bytes)
    next = "the limit would allow it, but the device is full: other processes hold it";
  return stow_fail(
      STOW_ERR_OUT_OF_MEMORY,
      "alloc of %s needs %s of pages; the %s limit is %s, live allocations hold %s (%s "
      "asked for); %s%s%s%s",
      stow_size_format(asked, f.asked_bytes), stow_size_format(needs, f.needed_page_bytes),
      stow_tier_name(r->tier),
      stow_size_format(limit, r->tier == STOW_TIER_HOST ? f.host_limit_bytes : f.limit_bytes),
      stow_size_format(pinned, f.pinned_bytes), stow_size_format(live, f.live_bytes), next,
      at->why[0] ? " (the driver: " : "", at->why, at->why[0] ? ")" : "");
}

#define PRESSURE_MAX 4

stow_status heap_grow(uint64_t *ptr, heap *h, lane *l, const request *r) {
  ASSERT(!lock_held(&h->lock));
  ASSERT(r->bytes > 0);
  attempt at = {0};
  stow_status status = grow_on(ptr, h, l, r, r->tier, &at);
  for (int k = 0; k < PRESSURE_MAX && status == STOW_ERR_OUT_OF_MEMORY; k++) {
    if (!heap_has_listener(h, STOW_EVENT_PRESSURE)) break;
    stow_heap_event event = {.struct_bytes = sizeof event,
                             .kind = STOW_EVENT_PRESSURE,
                             .heap = h->shell,
                             .bytes = at.lacking ? at.lacking : r->bytes,
                             .stream = l->stream,
                             .tier = r->tier};
    if (heap_emit(h, &event) == 0) break;
    status = grow_on(ptr, h, l, r, r->tier, &at);
  }
  if (status == STOW_ERR_OUT_OF_MEMORY && r->tier == STOW_TIER_VRAM && !r->pinned &&
      h->host_limit > 0) {
    latch_acquire(&l->lock);
    *ptr = lane_alloc(l, r, STOW_TIER_HOST);
    latch_release(&l->lock);
    attempt spill = {0};
    status = *ptr ? STOW_OK : grow_on(ptr, h, l, r, STOW_TIER_HOST, &spill);
    if (spill.why[0]) memcpy(at.why, spill.why, sizeof at.why);
    if (status == STOW_OK) atomic_fetch_add_explicit(&h->spilled, r->bytes, memory_order_relaxed);
  }
  if (status == STOW_ERR_OUT_OF_MEMORY || status == STOW_ERR_NOT_READY) return fail(h, r, &at);
  return status;
}
