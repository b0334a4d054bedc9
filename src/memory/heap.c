/* Heap: opening, closing, and the hot path of alloc and free (stowage/heap.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "memory/heap.h"

#define PAGE_BYTES_MAX (UINT64_C(64) << 20)

/* Every handle ever given out; kept so that a closed one is told apart from a wild pointer. */
static lock registry_lock = LOCK_INIT(LOCK_REGISTRY);
static stow_heap *registry; /* guarded by registry_lock */

stow_status heap_enter(heap **h, stow_heap *shell) {
  if (!shell) return stow_fail(STOW_ERR_INVALID, "heap: NULL");
  *h = atomic_load_explicit(&shell->inner, memory_order_acquire);
  if (!*h) return stow_fail(STOW_ERR_STATE, "heap: it is closed");
  int dead = atomic_load_explicit(&(*h)->dead, memory_order_relaxed);
  if (dead)
    return stow_fail((stow_status)dead, "heap: its device is lost; close it and open a new one");
  return STOW_OK;
}

stow_status heap_lose(heap *h, stow_status status) {
  if (status == STOW_ERR_DEVICE_LOST) atomic_store(&h->dead, (int)status);
  return status;
}

/* ---- opening ---- */

static stow_status options_check(const stow_heap_options *o) {
  if (o->version != STOW_HEAP_OPTIONS_VERSION)
    return stow_fail(STOW_ERR_INVALID, "heap options: version %u, this library knows %u",
                     o->version, STOW_HEAP_OPTIONS_VERSION);
  if (o->page_bytes_max && !is_power_of_two(o->page_bytes_max))
    return stow_fail(STOW_ERR_INVALID, "heap options: page_bytes_max %llu is no power of two",
                     (unsigned long long)o->page_bytes_max);
  if ((o->gate.close == NULL) != (o->gate.open == NULL))
    return stow_fail(STOW_ERR_INVALID, "heap options: a gate needs both open and close");
  return STOW_OK;
}

static stow_status heap_set_up(heap *h, const stow_heap_options *o) {
  STOW_TRY(device_props(h->device, &h->props));
  if (!h->props.has_vmm)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "heap: %s cannot map pages (no virtual memory management in its driver); a "
                     "newer driver is needed",
                     h->props.name);
  if (o->host_limit_bytes && h->props.host_road < STOW_HOST_LOCATION)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "heap: %s cannot map host pages, so nothing can spill; set host_limit_bytes 0",
                     h->props.name);
  uint64_t vram = o->vram_limit_bytes && o->vram_limit_bytes < h->props.vram_bytes
                      ? o->vram_limit_bytes
                      : h->props.vram_bytes;
  h->host_limit = o->host_limit_bytes;
  if (h->props.host_bytes && h->host_limit > h->props.host_bytes)
    h->host_limit = h->props.host_bytes;
  uint64_t limits[POOL_TIERS] = {vram, h->host_limit};
  uint64_t page_max = o->page_bytes_max ? o->page_bytes_max : PAGE_BYTES_MAX;
  STOW_TRY(pool_open(&h->pool, h->device, limits, h->props.page_bytes, page_max));
  h->reserve[STOW_TIER_VRAM] = o->reserve_bytes;
  h->reserve[STOW_TIER_HOST] = o->host_reserve_bytes;
  h->gate = o->gate;
  if (o->disk_folder && !(h->disk_folder = strdup(o->disk_folder)))
    return stow_fail(STOW_ERR_HOST_MEMORY, "heap: no memory for its options");
  return o->background ? background_start(h) : STOW_OK;
}

static void heap_destroy(heap *h) {
  background_stop(h);
  uint32_t lanes = atomic_load(&h->lane_count);
  for (uint32_t i = 0; i < lanes; i++) lane_close(atomic_load(&h->lanes[i]));
  disk_close(h);
  if (h->scratch && device_unreserve(h->device, h->scratch, h->scratch_bytes) != STOW_OK)
    device_unreserve(h->device, h->scratch, h->scratch_bytes);
  if (h->mover_stream && device_stream_destroy(h->device, h->mover_stream) != STOW_OK)
    device_stream_destroy(h->device, h->mover_stream);
  if (h->pool.chunks) pool_close(&h->pool);
  order_close(&h->order);
  if (h->device_ours) stow_device_close(h->device);
#ifdef STOWAGE_CHECKS
  map_free(&h->sites);
#endif
  free(h->notes);
  free(h->disk_folder);
  free(h);
}

stow_status stow_heap_open(stow_heap **out, const stow_heap_options *options) {
  if (!out || !options) return stow_fail(STOW_ERR_INVALID, "heap: NULL argument");
  *out = NULL;
  STOW_TRY(options_check(options));
  heap *h = calloc(1, sizeof *h);
  stow_heap *shell = calloc(1, sizeof *shell);
  if (!h || !shell) {
    free(h);
    free(shell);
    return stow_fail(STOW_ERR_HOST_MEMORY, "heap: no memory for its books");
  }
  h->disk.fd = -1;
  h->device = options->device;
  stow_status status = STOW_OK;
  if (!h->device) {
    status = stow_device_open(&h->device, options->device_name);
    h->device_ours = status == STOW_OK;
  }
  lock_init(&h->lock, LOCK_HEAP);
  order_open(&h->order, h->device);
  if (status == STOW_OK) status = heap_set_up(h, options);
  if (status != STOW_OK) {
    heap_destroy(h);
    free(shell);
    return status;
  }
  h->shell = shell;
  atomic_store_explicit(&shell->inner, h, memory_order_release);
  lock_take(&registry_lock);
  shell->next = registry;
  registry = shell;
  lock_give(&registry_lock);
  *out = shell;
  return STOW_OK;
}

/* ---- closing ---- */

static bool free_one(void *user, const stow_heap_entry *entry) {
  uint64_t *ptrs = user;
  if (ptrs[0] < 4096) ptrs[++ptrs[0]] = entry->ptr;
  return ptrs[0] < 4096;
}

/* Frees what is still live; how much. */
static uint64_t free_rest(stow_heap *shell) {
  uint64_t total = 0, *ptrs = malloc(4097 * sizeof *ptrs);
  if (!ptrs) return 0;
  do {
    ptrs[0] = 0;
    stow_heap_each(shell, free_one, ptrs);
    for (uint64_t i = 1; i <= ptrs[0]; i++) {
      lane *l = lane_at(atomic_load(&shell->inner), ptrs[i]);
      stow_heap_free(shell, ptrs[i], l->stream);
    }
    total += ptrs[0];
  } while (ptrs[0] == 4096);
  free(ptrs);
  return total;
}

stow_status stow_heap_close(stow_heap *shell) {
  if (!shell) return STOW_OK;
  heap *h = atomic_load_explicit(&shell->inner, memory_order_acquire);
  if (!h) return stow_fail(STOW_ERR_STATE, "heap: closed twice");
  background_stop(h);
  /* A lost device is asked all the same: what it still answers goes back. */
  atomic_store(&h->dead, 0);
  uint64_t left = free_rest(shell);
  stow_status status;
  lock_take(&h->lock);
  for (int tries = 0; tries < 3; tries++) { /* a call that failed once may go well again */
    heap_settle(h, true, &status);
    uint64_t went = 0;
    for (int t = 0; t < POOL_TIERS; t++) went += heap_strip(h, (stow_tier)t, UINT64_MAX, NULL);
    if (went == 0 && tries > 0 && status == STOW_OK) break;
  }
  heap_settle(h, true, &status);
  lock_give(&h->lock);
  atomic_store_explicit(&shell->inner, NULL, memory_order_release);
  heap_destroy(h);
  if (left)
    return stow_fail(STOW_ERR_STATE, "heap: closed with %llu allocations live",
                     (unsigned long long)left);
  return status;
}

stow_device *stow_heap_device(stow_heap *shell) {
  heap *h = shell ? atomic_load_explicit(&shell->inner, memory_order_acquire) : NULL;
  return h ? h->device : NULL;
}

/* ---- allocating ---- */

static stow_status request_make(request *r, const heap *h, uint64_t bytes, uint64_t align) {
  if (bytes == 0) return stow_fail(STOW_ERR_INVALID, "alloc: zero bytes");
  if (!is_power_of_two(align) || align > h->props.page_bytes)
    return stow_fail(STOW_ERR_INVALID, "alloc: alignment %llu: a power of two up to %llu is needed",
                     (unsigned long long)align, (unsigned long long)h->props.page_bytes);
  uint64_t rounded;
  if (!checked_round_up(&rounded, bytes, STOW_HEAP_UNIT) || rounded > UINT64_C(1) << 40)
    return stow_fail(STOW_ERR_OVERFLOW, "alloc: %llu bytes are more than any card has",
                     (unsigned long long)bytes);
  r->bytes = rounded;
  r->units = (uint32_t)(rounded >> UNIT_SHIFT);
  r->align = align <= STOW_HEAP_UNIT ? 1 : (uint32_t)(align >> UNIT_SHIFT);
  r->class = 0;
  if (r->units <= SLAB_UNITS_MAX) {
    if (r->align == 1) {
      r->class = slab_class(r->units);
      r->units = slab_class_units(r->class);
    } else {
      r->units = SLAB_UNITS_MAX; /* no live span is shorter than a cell */
    }
    r->bytes = (uint64_t)r->units << UNIT_SHIFT;
  }
  r->pinned = false;
  r->tier = STOW_TIER_VRAM;
  r->mark = tag_now(&r->pinned, &r->tier) << MARK_TAG_SHIFT;
  return STOW_OK;
}

/* Calls on a lane with waiting frees between two questions about the oldest. */
#define POLL_EVERY 8

static uint64_t book(lane *l, const request *r, stow_tier tier, uint64_t ptr) {
  l->live[tier] += r->bytes;
  if (l->live[tier] > l->peak[tier]) l->peak[tier] = l->live[tier];
  l->allocs++;
  return ptr;
}

uint64_t lane_adopt(lane *l, const request *r, stow_tier tier, uint32_t i) {
  room *m = &l->rooms[tier];
  arena *a = r->units < FINE_UNITS ? &m->fine : &m->main;
  if (!r->class) {
    a->spans[i].mark |= r->mark;
    return book(l, r, tier, span_addr(a, i));
  }
  if (slab_adopt(&m->slabs, a, i, r->class) != STOW_OK) {
    arena_give(a, i);
    return 0;
  }
  return book(l, r, tier, slab_take(&m->slabs, a, r->class, r->mark));
}

uint64_t lane_take(lane *l, const request *r, stow_tier tier) {
  room *m = &l->rooms[tier];
  arena *a = r->units < FINE_UNITS ? &m->fine : &m->main;
  if (a->base == 0) return 0;
  if (r->class) {
    uint64_t ptr = slab_take(&m->slabs, a, r->class, r->mark);
    if (ptr) return book(l, r, tier, ptr);
    lane_flush(l);
  } else if (l->quick_units == r->units && r->align == 1 && l->quick_arena == a) {
    uint64_t ptr = span_addr(a, l->quick);
    a->spans[l->quick].mark = SPAN_LIVE | r->mark;
    l->quick = l->quick_units = 0;
    return book(l, r, tier, ptr);
  } else if (l->quick) {
    lane_flush(l);
  }
  uint32_t i = arena_take(a, r->class ? SLAB_UNITS : r->units, r->class ? 1 : r->align);
  return i ? lane_adopt(l, r, tier, i) : 0;
}

static void tell(heap *h, stow_event_kind kind, uint64_t ptr, uint64_t bytes, stow_stream stream,
                 stow_tier tier, uint32_t mark) {
  stow_heap_event event = {.kind = kind,
                           .heap = h->shell,
                           .ptr = ptr,
                           .bytes = bytes,
                           .stream = stream,
                           .tier = tier,
                           .tag = mark >> MARK_TAG_SHIFT};
  heap_emit(h, &event);
}

/* ---- who allocated it: debug builds only ---- */

#ifdef STOWAGE_CHECKS
static void site_note(heap *h, uint64_t ptr, void *caller) {
  lock_take(&h->lock);
  (void)!map_put(&h->sites, ptr, (uint64_t)(uintptr_t)caller); /* for want of memory: not known */
  lock_give(&h->lock);
}

static stow_status site_tell(heap *h, uint64_t ptr, stow_status status) {
  char why[512];
  snprintf(why, sizeof why, "%s", stow_status_message());
  lock_take(&h->lock);
  const uint64_t *site = map_get(&h->sites, ptr);
  uint64_t caller = site ? *site : 0;
  lock_give(&h->lock);
  return caller ? stow_fail(status, "%s (allocated by the code at 0x%llx)", why,
                            (unsigned long long)caller)
                : status;
}
#define SITE_NOTE(h, ptr, caller) site_note(h, ptr, caller)
#else
static stow_status site_tell(heap *h, uint64_t ptr, stow_status status) {
  (void)h, (void)ptr;
  return status;
}
#define SITE_NOTE(h, ptr, caller) (void)(caller)
#endif

static stow_status heap_alloc(uint64_t *ptr, stow_heap *shell, uint64_t bytes, uint64_t align,
                              stow_stream stream, void *caller) {
  heap *h;
  lane *l;
  request r;
  if (!ptr) return stow_fail(STOW_ERR_INVALID, "alloc: nowhere to put the address");
  *ptr = 0;
  STOW_TRY(heap_enter(&h, shell));
  STOW_TRY(request_make(&r, h, bytes, align));
  l = lane_look(h, stream);
  if (!l) STOW_TRY(lane_of(&l, h, stream));
  latch_take(&l->lock);
  if (l->queue_count > 0 && ++l->polled >= POLL_EVERY) {
    stow_status ignored;
    lane_poll(l, false, &ignored);
  }
  uint64_t got = lane_take(l, &r, r.tier);
  latch_give(&l->lock);
  if (got == 0) STOW_TRY(heap_grow(&got, h, l, &r));
  *ptr = got;
  SITE_NOTE(h, got, caller);
  if (heap_heard(h, STOW_EVENT_ALLOC))
    tell(h, STOW_EVENT_ALLOC, got, r.bytes, stream, r.tier, r.mark);
  return STOW_OK;
}

stow_status stow_heap_alloc(uint64_t *ptr, stow_heap *shell, uint64_t bytes, stow_stream stream) {
  return heap_alloc(ptr, shell, bytes, 1, stream, __builtin_return_address(0));
}

stow_status stow_heap_alloc_aligned(uint64_t *ptr, stow_heap *shell, uint64_t bytes, uint64_t align,
                                    stow_stream stream) {
  if (align == 0) return stow_fail(STOW_ERR_INVALID, "alloc: alignment 0");
  return heap_alloc(ptr, shell, bytes, align, stream, __builtin_return_address(0));
}

/* ---- freeing ---- */

/* Pages that moved away go back first; that needs the heap's lock, taken before the lane's. */
static stow_status free_moved(heap *h, lane *l, uint64_t ptr, stow_stream stream) {
  lock_take(&h->lock);
  latch_take(&l->lock);
  place at;
  stow_status status = lane_find(&at, l, ptr);
  if (status == STOW_OK && (*at.mark & MARK_PENDING))
    status = stow_fail(STOW_ERR_STATE, "0x%llx: freed twice", (unsigned long long)ptr);
  if (status == STOW_OK && stream != l->stream) {
    /* Seldom enough to wait for here. */
    status = device_stream_sync(h->device, stream);
  }
  if (status == STOW_OK) status = migrate_wait(h, l, ptr, *at.mark);
  if (status == STOW_OK) status = migrate_undo_pages(h, &at);
  if (status == STOW_OK) {
    l->frees++;
    lane_release(l, &at);
  }
  latch_give(&l->lock);
  heap_unlock(h);
  return status;
}

stow_status stow_heap_free(stow_heap *shell, uint64_t ptr, stow_stream stream) {
  heap *h;
  STOW_TRY(heap_enter(&h, shell));
  if (ptr == 0) return STOW_OK;
  lane *l = lane_at(h, ptr);
  if (!l)
    return stow_fail(STOW_ERR_NOT_FOUND, "free of 0x%llx: not an address of this heap",
                     (unsigned long long)ptr);
  place at;
  latch_take(&l->lock);
  stow_status status = lane_find(&at, l, ptr);
  uint32_t mark = 0;
  if (status == STOW_OK) {
    mark = *at.mark;
    if (mark & MARK_PENDING) {
      status = stow_fail(STOW_ERR_STATE, "free of 0x%llx (%llu bytes, tag \"%s\"): freed twice",
                         (unsigned long long)ptr, (unsigned long long)at.bytes,
                         stow_tag_name(mark >> MARK_TAG_SHIFT));
    } else if (mark & (MARK_MOVED | MARK_DISK)) {
      latch_give(&l->lock);
      STOW_TRY(free_moved(h, l, ptr, stream));
      goto told;
    } else if (stream == l->stream && !(mark & MARK_RECORDED)) {
      l->frees++;
      lane_release(l, &at);
    } else {
      status = lane_defer(l, &at, ptr, stream);
      if (status == STOW_OK) l->frees++;
    }
  }
  latch_give(&l->lock);
  if (status != STOW_OK) return heap_lose(h, site_tell(h, ptr, status));
told:
  if (heap_heard(h, STOW_EVENT_FREE))
    tell(h, STOW_EVENT_FREE, ptr, at.bytes, stream, at.tier, mark);
  return STOW_OK;
}

stow_status stow_heap_record_stream(stow_heap *shell, uint64_t ptr, stow_stream stream) {
  heap *h;
  STOW_TRY(heap_enter(&h, shell));
  lane *l = lane_at(h, ptr);
  if (!l)
    return stow_fail(STOW_ERR_NOT_FOUND, "record_stream of 0x%llx: not an address of this heap",
                     (unsigned long long)ptr);
  if (stream == l->stream) return STOW_OK;
  place at;
  latch_take(&l->lock);
  stow_status status = lane_find(&at, l, ptr);
  if (status == STOW_OK && (*at.mark & MARK_PENDING))
    status =
        stow_fail(STOW_ERR_STATE, "record_stream of 0x%llx: it is freed", (unsigned long long)ptr);
  if (status == STOW_OK) {
    uint64_t *value = map_get(&l->recorded, ptr);
    recorded *old = value ? (recorded *)(uintptr_t)*value : NULL;
    uint32_t n = old ? old->count : 0;
    bool known = false;
    for (uint32_t i = 0; i < n; i++) known = known || old->streams[i] == stream;
    if (!known && (!old || n == old->capacity)) {
      uint32_t capacity = n ? n * 2 : 2;
      recorded *grown = realloc(old, sizeof *grown + capacity * sizeof grown->streams[0]);
      if (!grown) status = stow_fail(STOW_ERR_HOST_MEMORY, "record_stream: no memory");
      if (grown) {
        grown->count = n;
        grown->capacity = capacity;
        old = grown;
        status = map_put(&l->recorded, ptr, (uint64_t)(uintptr_t)grown);
        if (status != STOW_OK && n == 0) free(grown);
      }
    }
    if (status == STOW_OK && !known) old->streams[old->count++] = stream;
    if (status == STOW_OK) *at.mark |= MARK_RECORDED;
  }
  latch_give(&l->lock);
  return status;
}

stow_status stow_heap_set_heat(stow_heap *shell, uint64_t ptr, stow_heap_heat heat) {
  heap *h;
  STOW_TRY(heap_enter(&h, shell));
  if (heat < STOW_HEAT_NORMAL || heat > STOW_HEAT_COLD)
    return stow_fail(STOW_ERR_INVALID, "set_heat: %d is no heat", (int)heat);
  lane *l = lane_at(h, ptr);
  if (!l)
    return stow_fail(STOW_ERR_NOT_FOUND, "set_heat of 0x%llx: not an address of this heap",
                     (unsigned long long)ptr);
  place at;
  latch_take(&l->lock);
  stow_status status = lane_find(&at, l, ptr);
  if (status == STOW_OK) {
    *at.mark &= ~(MARK_HOT | MARK_COLD);
    if (heat == STOW_HEAT_HOT) *at.mark |= MARK_HOT;
    if (heat == STOW_HEAT_COLD) *at.mark |= MARK_COLD;
  }
  latch_give(&l->lock);
  if (status == STOW_OK && heat == STOW_HEAT_HOT) background_kick(h);
  return status;
}
