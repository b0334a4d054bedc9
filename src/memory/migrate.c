/* Migrate: moves an allocation to other pages at the same address (stowage/heap.h).
 *
 * The new pages are filled through a window of scratch addresses while the old ones stay in place;
 * only when every byte is copied are they exchanged, a run of pages at a time. Whatever fails
 * before or during the exchange leaves or restores the old placement. If restoring fails too, the
 * device counts as lost, because the address cannot be repaired. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "memory/heap.h"

typedef struct run {
  uint32_t from, to;   /* slots */
  uint32_t *old, *new; /* page indices in address order */
  uint32_t olds, news;
} run;

static uint64_t slot_bytes(const arena *a) {
  return a->pool->page_bytes;
}
static stow_addr slot_addr(const arena *a, uint32_t slot) {
  return a->base + slot * slot_bytes(a);
}

/* ---- waiting for work that uses the allocation ---- */

static stow_status wait_stream(heap *h, stow_stream stream) {
  ASSERT(lock_held(&h->lock));
  uint32_t ticket;
  STOW_TRY(order_ticket(&h->order, &ticket, stream));
  stow_status status = order_wait(&h->order, ticket);
  order_drop(&h->order, ticket);
  return status;
}

stow_status migrate_wait(heap *h, lane *l, uint64_t ptr, uint32_t mark) {
  STOW_TRY(wait_stream(h, l->stream));
  uint64_t *value = mark & MARK_RECORDED ? map_get(&l->recorded, ptr) : NULL;
  const recorded *others = value ? (const recorded *)(uintptr_t)*value : NULL;
  for (uint32_t i = 0; others && i < others->count; i++)
    STOW_TRY(wait_stream(h, others->streams[i]));
  return STOW_OK;
}

/* With the gate closed, pages shared with neighbours move too: wait for every stream that uses
 * memory of the lane. Other streams continue. */
static stow_status wait_all(heap *h, lane *l) {
  ASSERT(lock_held(&h->lock));
  STOW_TRY(wait_stream(h, l->stream));
  size_t at = 0;
  uint64_t key, value;
  while (map_next(&l->recorded, &at, &key, &value)) {
    const recorded *others = (const recorded *)(uintptr_t)value;
    for (uint32_t i = 0; i < others->count; i++) STOW_TRY(wait_stream(h, others->streams[i]));
  }
  return STOW_OK;
}

/* ---- which pages ---- */

/* Returns whether page `g` of the arena may move with span i: it lies inside the span, or
 * `shared`. */
static bool movable(const arena *a, uint32_t i, const page *g, bool shared) {
  uint32_t begin = a->spans[i].at, end = begin + span_units(a, i);
  uint32_t low = g->slot << a->slot_shift, high = (g->slot + (1u << g->order)) << a->slot_shift;
  return shared || (low >= begin && high <= end);
}

/* Finds the next run of pages of span i, from *slot on, that must move to `tier`. Returns false if
 * there is none. */
static bool next_run(const arena *a, uint32_t i, stow_tier tier, bool shared, uint32_t *slot,
                     run *r) {
  ASSERT(slot != NULL);
  uint32_t last = (a->spans[i].at + span_units(a, i) - 1) >> a->slot_shift;
  memset(r, 0, sizeof *r);
  while (*slot <= last) {
    uint32_t p = a->slots[*slot];
    const page *g = p ? pool_page(a->pool, p - 1) : NULL;
    uint32_t count = g ? 1u << g->order : 1;
    uint32_t first = g ? g->slot : *slot;
    bool goes = g && g->tier != (uint8_t)tier && movable(a, i, g, shared);
    if (!goes && r->olds > 0) return true;
    if (goes) {
      if (r->olds == 0) r->from = first;
      r->to = first + count;
      r->olds++;
    }
    *slot = first + count;
  }
  return r->olds > 0;
}

static uint64_t moving_bytes(const arena *a, uint32_t i, stow_tier tier, bool shared) {
  uint64_t bytes = 0;
  uint32_t slot = a->spans[i].at >> a->slot_shift;
  run r;
  while (next_run(a, i, tier, shared, &slot, &r)) bytes += (r.to - r.from) * slot_bytes(a);
  return bytes;
}

/* ---- creating and filling new pages ---- */

static void run_free(heap *h, run *r) {
  ASSERT(lock_held(&h->lock));
  for (uint32_t k = 0; k < r->news; k++) pool_put(&h->pool, r->new[k]);
  free(r->old);
  free(r->new);
  r->old = r->new = NULL;
  r->news = 0;
}

/* Gives up the scratch window because a page cannot be unmapped from it; a new window is reserved
 * next time. */
static void lose_window(heap *h, page *g) {
  ASSERT(lock_held(&h->lock));
  atomic_fetch_add(&g->maps, 1);
  h->scratch = 0;
}

static stow_status fill_page(heap *h, stow_addr from, uint32_t index) {
  ASSERT(lock_held(&h->lock));
  ASSERT(h->scratch != 0);
  page *g = pool_page(&h->pool, index);
  char why[256] = "";
  STOW_TRY(device_map(h->device, h->scratch, g->bytes, g->handle));
  stow_status status = device_access(h->device, h->scratch, g->bytes);
  if (status == STOW_OK)
    status = device_copy(h->device, h->scratch, from, g->bytes, h->mover_stream);
  if (status == STOW_OK) status = device_stream_sync(h->device, h->mover_stream);
  if (status != STOW_OK) {
    snprintf(why, sizeof why, "%s", stow_status_message());
    if (device_stream_sync(h->device, h->mover_stream) != STOW_OK) {
      lose_window(h, g); /* the copy may still be running */
      return stow_fail(status, "%s", why);
    }
  }
  stow_status unmapped = device_unmap(h->device, h->scratch, g->bytes);
  if (unmapped != STOW_OK && device_unmap(h->device, h->scratch, g->bytes) != STOW_OK)
    lose_window(h, g);
  if (status != STOW_OK) return stow_fail(status, "%s", why);
  return unmapped;
}

static stow_status run_prepare(heap *h, const arena *a, run *r, stow_tier tier) {
  uint32_t slots = r->to - r->from;
  r->old = malloc(slots * sizeof *r->old);
  r->new = malloc(slots * sizeof *r->new);
  if (!r->old || !r->new) return stow_fail(STOW_ERR_HOST_MEMORY, "migrate: no memory");
  uint32_t k = 0;
  for (uint32_t slot = r->from; slot < r->to; k++) {
    r->old[k] = a->slots[slot] - 1;
    slot += 1u << pool_page(&h->pool, r->old[k])->order;
  }
  for (uint32_t slot = r->from; slot < r->to;) {
    uint8_t o = h->pool.order_max;
    while (o > 0 && ((slot & ((1u << o) - 1)) != 0 || (1u << o) > r->to - slot)) o--;
    uint32_t index;
    STOW_TRY(pool_get(&h->pool, &index, tier, o));
    r->new[r->news++] = index;
    page *g = pool_page(&h->pool, index);
    STOW_TRY(order_wait(&h->order, g->ticket));
    if (!h->scratch) STOW_TRY(migrate_stream(h));
    STOW_TRY(fill_page(h, slot_addr(a, slot), index));
    slot += 1u << g->order;
  }
  return STOW_OK;
}

/* ---- exchanging ---- */

static stow_status map_all(heap *h, const arena *a, const run *r, const uint32_t *pages,
                           uint32_t count, uint32_t *mapped) {
  uint32_t slot = r->from;
  *mapped = 0;
  for (uint32_t k = 0; k < count; k++) {
    const page *g = pool_page(&h->pool, pages[k]);
    STOW_TRY(device_map(h->device, slot_addr(a, slot), g->bytes, g->handle));
    slot += 1u << g->order;
    *mapped = slot - r->from;
  }
  return device_access(h->device, slot_addr(a, r->from), (r->to - r->from) * slot_bytes(a));
}

/* Unmaps `was` from the run's addresses and maps `now` there. On failure, restores `was`. */
static stow_status exchange(heap *h, const arena *a, const run *r, const uint32_t *was,
                            uint32_t was_count, const uint32_t *now, uint32_t now_count) {
  uint64_t bytes = (r->to - r->from) * slot_bytes(a);
  STOW_TRY(device_unmap(h->device, slot_addr(a, r->from), bytes));
  uint32_t mapped;
  stow_status status = map_all(h, a, r, now, now_count, &mapped);
  if (status == STOW_OK) return STOW_OK;
  char why[256];
  snprintf(why, sizeof why, "%s", stow_status_message());
  for (int tries = 0; tries < 3; tries++) {
    if (mapped && device_unmap(h->device, slot_addr(a, r->from), mapped * slot_bytes(a)) != STOW_OK)
      continue;
    if (map_all(h, a, r, was, was_count, &mapped) == STOW_OK) return stow_fail(status, "%s", why);
  }
  return heap_lose(h, stow_fail(STOW_ERR_DEVICE_LOST,
                                "migrate: neither the new nor the old pages could be mapped (%s)",
                                why));
}

/* Records the exchange: pages `now` belong to the run, pages `was` go to the pool. */
static void settle(heap *h, arena *a, const run *r, const uint32_t *was, uint32_t was_count,
                   const uint32_t *now, uint32_t now_count) {
  for (uint32_t k = 0; k < was_count; k++) {
    page *g = pool_page(&h->pool, was[k]);
    atomic_fetch_sub(&g->maps, 1);
    a->coarse -= g->order > 0;
    pool_put(&h->pool, was[k]);
  }
  uint32_t slot = r->from;
  for (uint32_t k = 0; k < now_count; k++) {
    page *g = pool_page(&h->pool, now[k]);
    atomic_fetch_add(&g->maps, 1);
    a->coarse += g->order > 0;
    g->slot = slot;
    g->arena = a->id;
    for (uint32_t n = 1u << g->order; n > 0; n--) a->slots[slot++] = now[k] + 1;
  }
}

/* Updates the mark of every live span on these pages: whether they are on the arena's own tier. */
static void mark_moved(arena *a, uint32_t i, const run *r, bool away) {
  uint32_t low = r->from << a->slot_shift, high = r->to << a->slot_shift;
  while (a->spans[i].prev && a->spans[i].at > low) i = a->spans[i].prev;
  for (; i != 1 && a->spans[i].at < high; i = a->spans[i].next) {
    if (span_state_of(&a->spans[i]) != SPAN_LIVE) continue;
    if (away) a->spans[i].mark |= MARK_MOVED;
  }
}

static stow_status exchange_all(heap *h, arena *a, uint32_t i, run *runs, uint32_t count,
                                stow_tier tier) {
  stow_status status = STOW_OK;
  uint32_t done = 0;
  for (; done < count && status == STOW_OK; done++) {
    run *r = &runs[done];
    status = exchange(h, a, r, r->old, r->olds, r->new, r->news);
    if (status != STOW_OK) break;
  }
  if (status != STOW_OK) {
    char why[256];
    snprintf(why, sizeof why, "%s", stow_status_message());
    while (done-- > 0) {
      run *r = &runs[done];
      STOW_TRY(exchange(h, a, r, r->new, r->news, r->old, r->olds));
    }
    return stow_fail(status, "%s", why);
  }
  for (uint32_t k = 0; k < count; k++) {
    run *r = &runs[k];
    settle(h, a, r, r->old, r->olds, r->new, r->news);
    r->news = 0; /* they belong to the arena now */
    mark_moved(a, i, r, tier != (stow_tier)a->tier);
  }
  return STOW_OK;
}

/* Waits for work that uses the allocation, then moves its pages. Heap and lane locked. */
static stow_status move_span(heap *h, const place *at, stow_tier tier, bool shared,
                             uint64_t *moved) {
  arena *a = at->arena;
  uint32_t count = 0, slot = a->spans[at->span].at >> a->slot_shift;
  run r, *runs = NULL;
  stow_status status = migrate_stream(h);
  while (status == STOW_OK && next_run(a, at->span, tier, shared, &slot, &r)) {
    run *grown = realloc(runs, (count + 1) * sizeof *runs);
    if (!grown) {
      status = stow_fail(STOW_ERR_HOST_MEMORY, "migrate: no memory");
      break;
    }
    runs = grown;
    runs[count] = r;
    status = run_prepare(h, a, &runs[count++], tier);
  }
  uint64_t bytes = 0;
  for (uint32_t k = 0; k < count; k++) bytes += (runs[k].to - runs[k].from) * slot_bytes(a);
  if (status == STOW_OK) status = exchange_all(h, a, at->span, runs, count, tier);
  for (uint32_t k = 0; k < count; k++) run_free(h, &runs[k]);
  free(runs);
  if (status == STOW_OK) {
    atomic_fetch_add_explicit(&h->migrated, bytes, memory_order_relaxed);
    if (moved) *moved += bytes;
    if (bytes) heap_note(h, STOW_EVENT_MIGRATE, span_addr(a, at->span), bytes, tier);
  }
  return status;
}

stow_status migrate_undo_pages(heap *h, const place *at) {
  arena *a = at->arena;
  if (*at->mark & MARK_DISK) disk_forget(h, at);
  stow_tier other = a->tier == STOW_TIER_VRAM ? STOW_TIER_VRAM : STOW_TIER_HOST;
  uint32_t slot = a->spans[at->span].at >> a->slot_shift;
  run r;
  while (next_run(a, at->span, other, false, &slot, &r)) {
    STOW_TRY(device_unmap(h->device, slot_addr(a, r.from), (r.to - r.from) * slot_bytes(a)));
    for (uint32_t s = r.from; s < r.to;) {
      uint32_t index = a->slots[s] - 1;
      page *g = pool_page(&h->pool, index);
      uint32_t n = 1u << g->order;
      atomic_fetch_sub(&g->maps, 1);
      a->coarse -= g->order > 0;
      for (uint32_t k = 0; k < n; k++) a->slots[s + k] = 0;
      pool_put(&h->pool, index);
      s += n;
    }
  }
  return STOW_OK;
}

/* ---- the public calls ---- */

static stow_status migrate_found(heap *h, const place *at, stow_tier tier, bool shared,
                                 uint64_t *moved) {
  if (*at->mark & MARK_DISK) return tier == STOW_TIER_DISK ? STOW_OK : disk_get(h, at, tier);
  if (tier == STOW_TIER_DISK) return disk_put(h, at);
  return move_span(h, at, tier, shared, moved);
}

/* Finds the allocation again with both locks held: another thread may have freed it in between. */
static stow_status find_locked(place *at, lane *l, uint64_t ptr) {
  ASSERT(lock_held(&l->heap->lock));
  lane_flush(l);
  STOW_TRY(lane_find(at, l, ptr));
  if (*at->mark & MARK_PENDING)
    return stow_fail(STOW_ERR_STATE, "migrate of 0x%llx: it is freed", (unsigned long long)ptr);
  if (at->slab)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "migrate of 0x%llx: %llu bytes share a slab with others; allocate it under a "
                     "tag that is pinned to the tier instead",
                     (unsigned long long)ptr, (unsigned long long)at->bytes);
  return STOW_OK;
}

static stow_status migrate_locked(heap *h, lane *l, uint64_t ptr, stow_tier tier, uint64_t *moved) {
  ASSERT(lock_held(&h->lock));
  bool shared = h->gate.close != NULL;
  place at;
  latch_acquire(&l->lock);
  stow_status status = find_locked(&at, l, ptr);
  uint64_t need = 0;
  if (status == STOW_OK && tier != STOW_TIER_DISK)
    need = *at.mark & MARK_DISK ? at.bytes : moving_bytes(at.arena, at.span, tier, shared);
  latch_release(&l->lock);
  STOW_TRY(status);
  if (need > 0) {
    uint64_t have = pool_room(&h->pool, tier);
    stow_status ignored;
    if (have < need) {
      heap_strip(h, tier, need - have, NULL);
      heap_settle(h, true, &ignored);
      have = pool_room(&h->pool, tier);
    }
    if (have < need)
      return stow_fail(
          STOW_ERR_OUT_OF_MEMORY,
          "migrate of 0x%llx: %llu bytes of %s pages are needed, but only %llu are available",
          (unsigned long long)ptr, (unsigned long long)need, stow_tier_name(tier),
          (unsigned long long)have);
  }
  latch_acquire(&l->lock);
  status = find_locked(&at, l, ptr);
  if (status == STOW_OK) status = shared ? wait_all(h, l) : migrate_wait(h, l, ptr, *at.mark);
  if (status == STOW_OK) status = migrate_found(h, &at, tier, shared, moved);
  latch_release(&l->lock);
  return status;
}

stow_status stow_heap_migrate(stow_heap *shell, uint64_t ptr, stow_tier tier) {
  heap *h;
  STOW_TRY(heap_enter(&h, shell));
  if (tier < STOW_TIER_VRAM || tier > STOW_TIER_DISK)
    return stow_fail(STOW_ERR_INVALID, "migrate: tier %d does not exist", (int)tier);
  if (tier == STOW_TIER_HOST && h->host_limit == 0)
    return stow_fail(STOW_ERR_UNSUPPORTED, "migrate: the heap has no host budget");
  lane *l = lane_at(h, ptr);
  if (!l)
    return stow_fail(STOW_ERR_NOT_FOUND, "migrate of 0x%llx: not an address of this heap",
                     (unsigned long long)ptr);
  if (h->gate.close) h->gate.close(h->gate.user);
  lock_acquire(&h->lock);
  pool_retry_driver(&h->pool);
  stow_status status = migrate_locked(h, l, ptr, tier, NULL);
  heap_unlock(h);
  if (h->gate.close) h->gate.open(h->gate.user);
  return heap_lose(h, status);
}

/* ---- bringing spilled memory back ---- */

typedef struct spilled {
  uint64_t ptr, bytes;
  bool hot;
} spilled;
#define SPILLED_MAX 1024

typedef struct gather {
  spilled list[SPILLED_MAX];
  uint32_t count;
} gather;

static bool gather_one(void *user, const stow_heap_entry *e) {
  gather *g = user;
  if (e->tier == STOW_TIER_HOST && e->heat != STOW_HEAT_COLD &&
      e->bytes >= (UINT64_C(16) << 10) + 1)
    g->list[g->count++] = (spilled){e->ptr, e->bytes, e->heat == STOW_HEAT_HOT};
  return g->count < SPILLED_MAX;
}

static int hotter(const void *x, const void *y) {
  const spilled *a = x, *b = y;
  if (a->hot != b->hot) return a->hot ? -1 : 1;
  return a->bytes < b->bytes ? 1 : a->bytes > b->bytes ? -1 : 0;
}

/* Returns the bytes of vram available for memory that comes back. Free pages in the heap's spans
 * count only for hot memory: the program is just as likely to need them itself and would then spill
 * again. */
static uint64_t room_for(heap *h, bool hot) {
  uint64_t bytes = pool_room(&h->pool, STOW_TIER_VRAM);
  if (!hot) return bytes;
  stow_heap_tier_stats vram = {0};
  lock_acquire(&h->lock);
  heap_count_tier(h, STOW_TIER_VRAM, &vram);
  lock_release(&h->lock);
  uint64_t used = vram.cached_bytes + vram.pinned_bytes;
  return bytes + (vram.held_bytes > used ? vram.held_bytes - used : 0);
}

stow_status stow_heap_bring_back(stow_heap *shell, uint64_t *moved_bytes) {
  heap *h;
  if (moved_bytes) *moved_bytes = 0;
  STOW_TRY(heap_enter(&h, shell));
  gather *g = calloc(1, sizeof *g);
  if (!g) return stow_fail(STOW_ERR_HOST_MEMORY, "bring_back: no memory");
  stow_status status = stow_heap_each(shell, gather_one, g);
  qsort(g->list, g->count, sizeof g->list[0], hotter);
  for (uint32_t k = 0; k < g->count && status == STOW_OK; k++) {
    if (room_for(h, g->list[k].hot) < g->list[k].bytes) continue;
    lane *l = lane_at(h, g->list[k].ptr);
    uint64_t moved = 0;
    if (h->gate.close) h->gate.close(h->gate.user);
    lock_acquire(&h->lock);
    status = migrate_locked(h, l, g->list[k].ptr, STOW_TIER_VRAM, &moved);
    heap_unlock(h);
    if (h->gate.close) h->gate.open(h->gate.user);
    if (moved_bytes) *moved_bytes += moved;
    if (status == STOW_ERR_OUT_OF_MEMORY || status == STOW_ERR_STATE ||
        status == STOW_ERR_NOT_FOUND || status == STOW_ERR_NOT_READY)
      status = STOW_OK; /* not an error: it was freed in the meantime, is pinned, or the space was
                         * taken */
  }
  free(g);
  return heap_lose(h, status);
}
