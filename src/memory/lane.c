/* Lane: the memory of one stream (heap.h). Called by alloc.c and grow.c with the lane locked. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "memory/heap.h"

/* Addresses reserved per arena, as a multiple of the limit: best fit leaves holes without pages. */
#define MAIN_TIMES 8
#define FINE_TIMES 2

/* Reports an unmapped range. Arenas unmap only with the heap's lock held. */
static void unmapped(void *owner, stow_addr ptr, uint64_t bytes, stow_tier tier) {
  heap_note(owner, STOW_EVENT_UNMAP, ptr, bytes, tier);
}

static void range_add(heap *h, lane *l, arena *a) {
  ASSERT(lock_held(&h->lock));
  ASSERT(a->base != 0);
  a->unmapped = unmapped;
  a->owner = h;
  uint32_t n = atomic_load_explicit(&h->range_count, memory_order_relaxed);
  a->id = h->arena_count++;
  h->ranges[n] = (range){a->base, a->base + a->bytes, l};
  atomic_store_explicit(&h->range_count, n + 1, memory_order_release);
}

stow_status lane_room(lane *l, stow_tier tier) {
  ASSERT(lock_held(&l->heap->lock));
  ASSERT((unsigned)tier < POOL_TIERS);
  heap *h = l->heap;
  room *r = &l->rooms[tier];
  if (r->main.base) return STOW_OK;
  uint64_t most = h->props.vram_bytes;
  if (tier == STOW_TIER_HOST)
    most = h->props.host_bytes > h->host_limit ? h->props.host_bytes : h->host_limit;
  if (r->fine.base == 0) {
    arena fine;
    STOW_TRY(
        arena_open(&fine, &h->pool, &h->order, l->stream, tier, true, most * FINE_TIMES, most, 5));
    stow_status status = slabs_open(&r->slabs, &fine);
    if (status != STOW_OK) {
      arena_close(&fine);
      return status;
    }
    r->fine = fine;
    range_add(h, l, &r->fine);
  }
  arena main;
  STOW_TRY(
      arena_open(&main, &h->pool, &h->order, l->stream, tier, false, most * MAIN_TIMES, most, 9));
  r->main = main;
  range_add(h, l, &r->main);
  return STOW_OK;
}

static stow_status lane_open(lane **out, heap *h, stow_stream stream) {
  ASSERT(lock_held(&h->lock));
  uint32_t n = atomic_load_explicit(&h->lane_count, memory_order_relaxed);
  if (n == LANES_MAX)
    return stow_fail(STOW_ERR_OVERFLOW, "heap: more than %d streams; reuse streams", LANES_MAX);
  lane *l = aligned_alloc(64, sizeof *l);
  if (!l) return stow_fail(STOW_ERR_HOST_MEMORY, "heap: no host memory for the tables of a stream");
  memset(l, 0, sizeof *l);
  latch_init(&l->lock, LOCK_ARENA);
  l->stream = stream;
  l->heap = h;
  l->id = (uint16_t)n;
  /* Register the lane before its arenas are open, so that a half-opened lane is closed with the
   * heap. */
  atomic_store_explicit(&h->lanes[n], l, memory_order_release);
  atomic_store_explicit(&h->lane_count, n + 1, memory_order_release);
  uint64_t k = hash_stream(stream);
  while (atomic_load_explicit(&h->by_stream[k], memory_order_relaxed))
    k = (k + 1) & (STREAM_HASH - 1);
  atomic_store_explicit(&h->by_stream[k], l, memory_order_release);
  *out = l;
  return STOW_OK;
}

stow_status lane_of(lane **out, heap *h, stow_stream stream) {
  ASSERT(out != NULL && h != NULL);
  *out = lane_look(h, stream);
  if (*out) return STOW_OK;
  lock_acquire(&h->lock);
  stow_status status = STOW_OK;
  *out = lane_look(h, stream);
  if (!*out) status = lane_open(out, h, stream);
  lock_release(&h->lock);
  return status;
}

stow_status lane_close(lane *l) {
  stow_status status = STOW_OK;
  for (int t = 0; t < POOL_TIERS; t++) {
    room *r = &l->rooms[t];
    slabs_close(&r->slabs);
    if (r->fine.base && arena_close(&r->fine) != STOW_OK) status = STOW_ERR_STATE;
    if (r->main.base && arena_close(&r->main) != STOW_OK) status = STOW_ERR_STATE;
  }
  size_t at = 0;
  uint64_t key, value;
  while (map_next(&l->recorded, &at, &key, &value)) free((void *)(uintptr_t)value);
  map_free(&l->recorded);
  free(l->queue);
  free(l);
  return status;
}

/* ---- finding ---- */

static stow_status find_block(place *at, uint64_t ptr) {
  ASSERT(at->slab != NULL);
  const slab *b = at->slab;
  const slabs *all = &at->room->slabs;
  at->span = slab_span(all, at->arena, b);
  at->block = slab_block(all, b, ptr);
  if (at->block == BLOCK_NONE)
    return stow_fail(STOW_ERR_NOT_FOUND, "0x%llx: points into an allocation, not at its start",
                     (unsigned long long)ptr);
  if (!slab_busy(b, at->block))
    return stow_fail(STOW_ERR_STATE, "0x%llx: freed twice, or never allocated",
                     (unsigned long long)ptr);
  at->bytes = slab_kinds[b->class].bytes;
  at->mark = slab_mark(all, b, at->block);
  return STOW_OK;
}

stow_status lane_find(place *at, lane *l, uint64_t ptr) {
  for (int t = 0; t < POOL_TIERS; t++) {
    room *r = &l->rooms[t];
    arena *a = ptr - r->main.base < r->main.bytes ? &r->main : &r->fine;
    if (ptr - a->base >= a->bytes) continue;
    *at = (place){.lane = l, .room = r, .arena = a, .tier = (stow_tier)t};
    if (a == &r->fine && (at->slab = slab_at(&r->slabs, ptr))) return find_block(at, ptr);
    at->span = arena_find(a, ptr);
    if (at->span == 0)
      return stow_fail(
          STOW_ERR_STATE,
          "0x%llx: in the heap's range, but nothing live begins there: freed twice, or "
          "never allocated",
          (unsigned long long)ptr);
    if (span_addr(a, at->span) != ptr)
      return stow_fail(STOW_ERR_NOT_FOUND, "0x%llx: points into an allocation, not at its start",
                       (unsigned long long)ptr);
    at->bytes = span_bytes(a, at->span);
    at->mark = &a->spans[at->span].mark;
    if (*at->mark & MARK_QUICK)
      return stow_fail(STOW_ERR_STATE, "0x%llx: freed twice, or never allocated",
                       (unsigned long long)ptr);
    return STOW_OK;
  }
  return stow_fail(STOW_ERR_NOT_FOUND, "0x%llx: not an address of this heap",
                   (unsigned long long)ptr);
}

/* ---- freeing ---- */

static uint64_t place_addr(const place *at) {
  return at->slab ? slab_base(&at->room->slabs, at->slab) + at->block * at->bytes
                  : span_addr(at->arena, at->span);
}

void lane_release(lane *l, const place *at) {
  ASSERT(at->lane == l);
  ASSERT(l->live[at->tier] >= at->bytes);
  uint64_t value;
  if ((*at->mark & MARK_RECORDED) && map_remove(&l->recorded, place_addr(at), &value))
    free((void *)(uintptr_t)value);
  l->live[at->tier] -= at->bytes;
  if (at->slab)
    slab_free(&at->room->slabs, at->arena, at->slab, at->block);
  else if ((*at->mark & (MARK_MOVED | MARK_DISK)) || at->tier != STOW_TIER_VRAM)
    arena_free(at->arena, at->span);
  else
    lane_keep(l, at->arena, at->span);
}

void lane_flush(lane *l) {
  if (!l->quick) return;
  uint32_t i = l->quick;
  l->quick = l->quick_units = 0;
  arena_free(l->quick_arena, i);
}

static stow_status queue_grow(lane *l) {
  ASSERT(l->queue_count == l->queue_capacity);
  uint32_t capacity = l->queue_capacity ? l->queue_capacity * 2 : 32;
  pending *grown = malloc(capacity * sizeof *grown);
  if (!grown) return stow_fail(STOW_ERR_HOST_MEMORY, "free: no host memory to queue the free");
  for (uint32_t i = 0; i < l->queue_count; i++) /* the queue is full and holds this many */
    grown[i] = l->queue[(l->queue_head + i) % l->queue_count];
  free(l->queue);
  l->queue = grown;
  l->queue_capacity = capacity;
  l->queue_head = 0;
  return STOW_OK;
}

stow_status lane_defer(pending *p, lane *l, const place *at, uint64_t ptr, stow_stream stream) {
  ASSERT(at->lane == l);
  lane_flush(l);
  if (l->queue_count == l->queue_capacity) STOW_TRY(queue_grow(l));
  const recorded *others = NULL;
  if (*at->mark & MARK_RECORDED) {
    uint64_t *value = map_get(&l->recorded, ptr);
    if (value) others = (const recorded *)(uintptr_t)*value;
  }
  uint32_t most = 2 + (others ? others->count : 0), count = 0;
  stow_event *events = malloc(most * sizeof *events);
  if (!events) return stow_fail(STOW_ERR_HOST_MEMORY, "free: no host memory to queue the free");
  /* The freeing stream is ordered after every use that the caller knows of. The allocation's own
   * stream and each recorded stream may still have work that uses it. */
  stow_status status = STOW_OK;
  for (uint32_t i = 0; i < most && status == STOW_OK; i++) {
    stow_stream s = i == 0 ? stream : i == 1 ? l->stream : others->streams[i - 2];
    if (i == 1 && stream == l->stream) continue;
    status = order_event(&l->heap->order, &events[count]);
    if (status != STOW_OK) break;
    status = device_event_record(l->heap->device, events[count++], s);
  }
  if (status != STOW_OK) {
    for (uint32_t i = 0; i < count; i++) order_event_back(&l->heap->order, events[i]);
    free(events);
    return status;
  }
  *p = (pending){ptr, at->bytes, count, events};
  return STOW_OK;
}

void lane_defer_done(lane *l, const place *at, pending *p) {
  ASSERT(p->count > 0 && p->events != NULL);
  place_mark(at, MARK_PENDING);
  if (l->queue_count < l->queue_capacity || queue_grow(l) == STOW_OK) {
    l->queue[(l->queue_head + l->queue_count++) % l->queue_capacity] = *p;
    l->pending_bytes += p->bytes;
    return;
  }
  /* Other threads filled the queue while the sinks ran, and it cannot grow: wait here. If the wait
   * fails, keep the block forever rather than reuse it too early. */
  bool passed = true;
  for (uint32_t i = 0; i < p->count; i++) {
    passed = device_event_wait(l->heap->device, p->events[i]) == STOW_OK && passed;
    order_event_back(&l->heap->order, p->events[i]);
  }
  free(p->events);
  if (passed) lane_release(l, at);
}

bool lane_poll(lane *l, bool wait, stow_status *status) {
  ASSERT(status != NULL);
  bool any = false;
  heap *h = l->heap;
  l->polled = 0;
  *status = STOW_OK;
  /* Streams are independent, so the oldest need not pass first: check the others too. */
  for (uint32_t left = l->queue_count; left > 0; left--) {
    pending p = l->queue[l->queue_head];
    l->queue_head = (l->queue_head + 1) % l->queue_capacity;
    l->queue_count--;
    while (p.count > 0) {
      stow_status s = device_event_query(h->device, p.events[p.count - 1]);
      if (s == STOW_ERR_NOT_READY && wait) {
        atomic_fetch_add_explicit(&h->order.waits, 1, memory_order_relaxed);
        s = device_event_wait(h->device, p.events[p.count - 1]);
      }
      if (s != STOW_OK && s != STOW_ERR_NOT_READY) *status = s;
      if (s != STOW_OK) break;
      order_event_back(&h->order, p.events[--p.count]);
    }
    if (p.count > 0) {
      l->queue[(l->queue_head + l->queue_count++) % l->queue_capacity] = p;
      continue;
    }
    free(p.events);
    l->pending_bytes -= p.bytes;
    place at;
    if (lane_find(&at, l, p.ptr) == STOW_OK) lane_release(l, &at);
    any = true;
  }
  return any;
}

stow_status lane_check(lane *l) {
  lane_flush(l);
  for (int t = 0; t < POOL_TIERS; t++) {
    room *r = &l->rooms[t];
    if (r->fine.base) {
      STOW_TRY(arena_check(&r->fine));
      STOW_TRY(slabs_check(&r->slabs, &r->fine));
    }
    if (r->main.base) STOW_TRY(arena_check(&r->main));
    uint64_t cut = 0, blocks = r->fine.base ? slabs_live_bytes(&r->slabs, &r->fine, &cut) : 0;
    uint64_t live = r->fine.live_bytes + r->main.live_bytes - cut + blocks;
    if (live != l->live[t])
      return stow_fail(STOW_ERR_STATE, "lane %u: %llu live bytes kept, %llu in its room", l->id,
                       (unsigned long long)l->live[t], (unsigned long long)live);
  }
  return STOW_OK;
}
