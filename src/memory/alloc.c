/* Alloc: the hot path of alloc and free, and its slow cases (stowage/heap.h).
 *
 * A hot pair takes its lane's latch twice and touches no page. A small block comes from a slab of
 * its class and returns to it. The span freed last serves the next request of its length. Rare
 * cases (a listener, another stream, moved pages, nothing free) are out of line below. */
#ifdef STOWAGE_CHECKS
#include <dlfcn.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "memory/lane_alloc.h"

#define COLD __attribute__((noinline, cold))

#define BYTES_MAX (UINT64_C(1) << 40)

/* Searches the free spans for `units`, more than a block of a slab has. Returns 0 if none fits. */
__attribute__((noinline)) static uint64_t take_span(lane *l, uint32_t units, uint32_t mark,
                                                    unsigned tier) {
  room *m = &l->rooms[tier];
  arena *a = units < FINE_UNITS ? &m->fine : &m->main;
  if (RARE(a->base == 0)) return 0;
  lane_flush(l);
  uint32_t i = arena_alloc(a, units, 1);
  return i ? adopt_span(l, a, i, mark, (uint64_t)units << UNIT_SHIFT, tier) : 0;
}

/* ---- allocating ---- */

static stow_status request_make(request *r, const heap *h, uint64_t bytes, uint64_t align) {
  if (bytes == 0) return stow_fail(STOW_ERR_INVALID, "alloc: zero bytes");
  if (bytes > BYTES_MAX)
    return stow_fail(STOW_ERR_OVERFLOW, "alloc: %llu bytes: more than any device has",
                     (unsigned long long)bytes);
  if (!is_power_of_two(align) || align > h->props.page_bytes)
    return stow_fail(STOW_ERR_INVALID, "alloc: alignment %llu: use a power of two up to %llu",
                     (unsigned long long)align, (unsigned long long)h->props.page_bytes);
  r->units = (uint32_t)((bytes + STOW_HEAP_UNIT - 1) >> UNIT_SHIFT);
  r->align = align <= STOW_HEAP_UNIT ? 1 : (uint32_t)(align >> UNIT_SHIFT);
  r->class = 0;
  if (r->units <= SLAB_UNITS_MAX) {
    if (r->align == 1) {
      r->class = slab_class(r->units);
      r->units = slab_class_units(r->class);
    } else {
      r->units = SLAB_UNITS_MAX; /* use a separate span: none may be shorter than a cell */
    }
  }
  r->bytes = (uint64_t)r->units << UNIT_SHIFT;
  r->pinned = tag_now.pinned;
  r->tier = (stow_tier)tag_now.tier;
  r->mark = tag_now.mark;
  return STOW_OK;
}

/* How many calls on a lane with pending frees pass between two checks of the oldest. */
#define POLL_EVERY 8

COLD static void poll_some(lane *l) {
  stow_status ignored;
  if (++l->polled >= POLL_EVERY) lane_poll(l, false, &ignored);
}

COLD static void emit(heap *h, stow_heap_event_kind kind, uint64_t ptr, uint64_t bytes,
                      stow_stream stream, stow_tier tier, uint32_t mark) {
  stow_heap_event event = {.struct_bytes = sizeof event,
                           .kind = kind,
                           .heap = h->shell,
                           .ptr = ptr,
                           .bytes = bytes,
                           .stream = stream,
                           .tier = tier,
                           .tag = mark >> MARK_TAG_SHIFT};
  heap_emit(h, &event);
}

/* ---- callers of allocations: debug builds only ---- */

#ifdef STOWAGE_CHECKS
static void site_note(heap *h, uint64_t ptr, void *caller) {
  lock_acquire(&h->lock);
  (void)!map_put(&h->sites, ptr, (uint64_t)(uintptr_t)caller); /* without memory, the caller stays
                                                                * unknown */
  lock_release(&h->lock);
}

static stow_status site_describe(heap *h, uint64_t ptr, stow_status status) {
  char why[512];
  snprintf(why, sizeof why, "%s", stow_status_message());
  lock_acquire(&h->lock);
  const uint64_t *site = map_get(&h->sites, ptr);
  uint64_t caller = site ? *site : 0;
  lock_release(&h->lock);
  if (!caller) return status;
  Dl_info in;
  bool known = dladdr((void *)(uintptr_t)caller, &in) != 0 && in.dli_fname;
  const char *slash = known ? strrchr(in.dli_fname, '/') : NULL;
  char where[256] = "";
  if (known)
    snprintf(where, sizeof where, ": %s%s%s+0x%llx", in.dli_sname ? in.dli_sname : "",
             in.dli_sname ? " in " : "", slash ? slash + 1 : in.dli_fname,
             (unsigned long long)(caller - (uint64_t)(uintptr_t)in.dli_fbase));
  return stow_fail(status, "%s (allocated by the code at 0x%llx%s)", why,
                   (unsigned long long)caller, where);
}
#define SITE_NOTE(h, ptr, caller) site_note(h, ptr, caller)
#else
static stow_status site_describe(heap *h, uint64_t ptr, stow_status status) {
  (void)h, (void)ptr;
  return status;
}
#define SITE_NOTE(h, ptr, caller) (void)(caller)
#endif

__attribute__((noinline)) static stow_status alloc_searched(uint64_t *ptr, stow_heap *shell,
                                                            uint64_t bytes, uint64_t align,
                                                            stow_stream stream, void *caller) {
  heap *h;
  request r;
  if (!ptr) return stow_fail(STOW_ERR_INVALID, "alloc: the result pointer is NULL");
  *ptr = 0;
  STOW_TRY(heap_enter(&h, shell));
  STOW_TRY(request_make(&r, h, bytes, align));
  lane *l = lane_look(h, stream);
  if (RARE(!l)) STOW_TRY(lane_of(&l, h, stream));
  latch_acquire(&l->lock);
  if (RARE(l->queue_count > 0)) poll_some(l);
  uint64_t got = lane_alloc(l, &r, r.tier);
  latch_release(&l->lock);
  if (RARE(got == 0)) STOW_TRY(heap_grow(&got, h, l, &r));
  *ptr = got;
  SITE_NOTE(h, got, caller);
  if (RARE(heap_has_listener(h, STOW_EVENT_ALLOC)))
    emit(h, STOW_EVENT_ALLOC, got, r.bytes, stream, r.tier, r.mark);
  return STOW_OK;
}

stow_status stow_heap_alloc(uint64_t *ptr, stow_heap *shell, uint64_t bytes, stow_stream stream) {
  void *caller = __builtin_return_address(0);
  heap *h = heap_alive(shell);
  if (RARE(!h || !ptr || bytes - 1 >= BYTES_MAX || heap_has_listener(h, STOW_EVENT_ALLOC)))
    return alloc_searched(ptr, shell, bytes, 1, stream, caller);
  lane *l = lane_look(h, stream);
  if (RARE(!l || !latch_enter(&l->lock)))
    return alloc_searched(ptr, shell, bytes, 1, stream, caller);
  uint64_t got = 0;
  if (!RARE(l->queue_count > 0)) {
    uint32_t units = (uint32_t)((bytes + STOW_HEAP_UNIT - 1) >> UNIT_SHIFT);
    got = take_ready(l, units, tag_now.mark, tag_now.tier);
    if (got == 0 && units > SLAB_UNITS_MAX) got = take_span(l, units, tag_now.mark, tag_now.tier);
  }
  latch_leave(&l->lock);
  if (got == 0) return alloc_searched(ptr, shell, bytes, 1, stream, caller);
  *ptr = got;
  SITE_NOTE(h, got, caller);
  return STOW_OK;
}

stow_status stow_heap_alloc_aligned(uint64_t *ptr, stow_heap *shell, uint64_t bytes, uint64_t align,
                                    stow_stream stream) {
  return alloc_searched(ptr, shell, bytes, align, stream, __builtin_return_address(0));
}

/* ---- freeing ---- */

/* Reports a free to the sinks before the memory can be reused, so that no sink sees an allocation
 * at an address that it considers live. The block is marked as freed for all other callers during
 * this. Lane locked, and locked again on return. */
static void emit_free(heap *h, const place *at, uint64_t ptr, stow_stream stream) {
  uint32_t mark = *at->mark;
  place_mark(at, MARK_PENDING);
  latch_release(&at->lane->lock);
  emit(h, STOW_EVENT_FREE, ptr, at->bytes, stream, at->tier, mark);
  latch_acquire(&at->lane->lock);
  *at->mark &= ~MARK_PENDING;
}

COLD static stow_status freed_twice(uint64_t ptr, const place *at) {
  return stow_fail(STOW_ERR_STATE, "free of 0x%llx (%llu bytes, tag \"%s\"): freed twice",
                   (unsigned long long)ptr, (unsigned long long)at->bytes,
                   stow_tag_name(*at->mark >> MARK_TAG_SHIFT));
}

/* Frees an allocation with pages on another tier. Those pages are returned first, which needs the
 * heap's lock, taken before the lane's. */
static stow_status free_moved(heap *h, lane *l, uint64_t ptr, stow_stream stream, bool reported) {
  lock_acquire(&h->lock);
  latch_acquire(&l->lock);
  place at;
  stow_status status = lane_find(&at, l, ptr);
  if (status == STOW_OK && (*at.mark & MARK_PENDING) && !reported) status = freed_twice(ptr, &at);
  if (status == STOW_OK && stream != l->stream) /* rare enough to wait here */
    status = device_stream_sync(h->device, stream);
  if (status == STOW_OK) status = migrate_wait(h, l, ptr, *at.mark);
  if (status == STOW_OK) status = migrate_undo_pages(h, &at);
  if (status == STOW_OK && !reported && heap_has_listener(h, STOW_EVENT_FREE)) {
    uint32_t mark = *at.mark;
    *at.mark |= MARK_DISK | MARK_PENDING; /* its pages are gone; for everyone else it is freed */
    latch_release(&l->lock);
    heap_unlock(h);
    emit(h, STOW_EVENT_FREE, ptr, at.bytes, stream, at.tier, mark);
    lock_acquire(&h->lock);
    latch_acquire(&l->lock);
  }
  if (status == STOW_OK) {
    *at.mark = (*at.mark & ~MARK_PENDING) | MARK_DISK;
    l->frees++;
    lane_release(l, &at);
  }
  latch_release(&l->lock);
  heap_unlock(h);
  return status;
}

__attribute__((noinline)) static stow_status free_searched(stow_heap *shell, uint64_t ptr,
                                                           stow_stream stream) {
  heap *h;
  STOW_TRY(heap_enter(&h, shell));
  if (ptr == 0) return STOW_OK;
  lane *l = lane_at(h, ptr);
  if (!l)
    return stow_fail(STOW_ERR_NOT_FOUND, "free of 0x%llx: not an address of this heap",
                     (unsigned long long)ptr);
  place at;
  pending later = {0};
  bool reported = false, moved = false;
  latch_acquire(&l->lock);
  stow_status status = lane_find(&at, l, ptr);
  if (status == STOW_OK && (*at.mark & MARK_PENDING)) status = freed_twice(ptr, &at);
  if (status == STOW_OK) {
    moved = *at.mark & (MARK_MOVED | MARK_DISK);
    bool now = stream == l->stream && !(*at.mark & MARK_RECORDED);
    if (!moved && !now) status = lane_defer(&later, l, &at, ptr, stream);
    if (!moved && status == STOW_OK && heap_has_listener(h, STOW_EVENT_FREE)) {
      emit_free(h, &at, ptr, stream);
      reported = true;
      if (now)
        moved = *at.mark & (MARK_MOVED | MARK_DISK); /* it may have moved in the meantime,
                                                      * with a neighbour */
    }
    if (!moved && status == STOW_OK) {
      l->frees++;
      if (now)
        lane_release(l, &at);
      else
        lane_defer_done(l, &at, &later);
    }
  }
  latch_release(&l->lock);
  if (status == STOW_OK && moved) status = free_moved(h, l, ptr, stream, reported);
  return status == STOW_OK ? STOW_OK : heap_lose(h, site_describe(h, ptr, status));
}

/* Marks of a live block that the hot path of free does not handle. */
#define MARK_ODD                                                                                   \
  (MARK_STATE | MARK_SLAB | MARK_PENDING | MARK_RECORDED | MARK_MOVED | MARK_DISK | MARK_QUICK)

HOT bool give_block(lane *l, room *m, slab *b, uint64_t ptr) {
  uint32_t block = slab_block(&m->slabs, b, ptr), bytes = slab_kinds[b->class].bytes;
  if (RARE(block == BLOCK_NONE || !slab_busy(b, block) ||
           (b->odd && (*slab_mark(&m->slabs, b, block) & MARK_ODD))))
    return false;
  ASSERT_VALUES(l->live[STOW_TIER_VRAM] >= bytes, "lane: live bytes", l->live[STOW_TIER_VRAM],
                bytes);
  l->live[STOW_TIER_VRAM] -= bytes;
  slab_free(&m->slabs, &m->fine, b, block);
  return true;
}

HOT bool give_span(lane *l, arena *a, uint64_t offset) {
  uint32_t unit = (uint32_t)(offset >> UNIT_SHIFT), i = a->cells[unit >> a->cell_shift];
  const span *s = &a->spans[i];
  if (RARE(i == 0 || (uint64_t)s->at << UNIT_SHIFT != offset || (s->mark & MARK_ODD))) return false;
  l->live[STOW_TIER_VRAM] -= span_bytes(a, i);
  lane_keep(l, a, i);
  return true;
}

/* Frees a plain block in vram on the lane's own stream. Returns false for any other block. */
HOT bool free_plain(lane *l, uint64_t ptr) {
  room *m = &l->rooms[STOW_TIER_VRAM];
  uint64_t offset = ptr - m->fine.base;
  bool gave;
  if (offset < m->fine.bytes) {
    slab *b = &m->slabs.at[offset >> SLAB_SHIFT];
    gave = b->class ? give_block(l, m, b, ptr) : give_span(l, &m->fine, offset);
  } else {
    offset = ptr - m->main.base;
    gave = offset < m->main.bytes && give_span(l, &m->main, offset);
  }
  l->frees += gave;
  return gave;
}

stow_status stow_heap_free(stow_heap *shell, uint64_t ptr, stow_stream stream) {
  heap *h = heap_alive(shell);
  if (RARE(!h || heap_has_listener(h, STOW_EVENT_FREE))) return free_searched(shell, ptr, stream);
  lane *l = lane_look(h, stream);
  if (RARE(!l || !latch_enter(&l->lock))) return free_searched(shell, ptr, stream);
  bool gave = free_plain(l, ptr);
  latch_leave(&l->lock);
  return gave ? STOW_OK : free_searched(shell, ptr, stream);
}

/* ---- properties of an allocation ---- */

stow_status stow_heap_record_stream(stow_heap *shell, uint64_t ptr, stow_stream stream) {
  heap *h;
  STOW_TRY(heap_enter(&h, shell));
  lane *l = lane_at(h, ptr);
  if (!l)
    return stow_fail(STOW_ERR_NOT_FOUND, "record_stream of 0x%llx: not an address of this heap",
                     (unsigned long long)ptr);
  if (stream == l->stream) return STOW_OK;
  place at;
  latch_acquire(&l->lock);
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
    if (status == STOW_OK) place_mark(&at, MARK_RECORDED);
  }
  latch_release(&l->lock);
  return status;
}

stow_status stow_heap_set_heat(stow_heap *shell, uint64_t ptr, stow_heap_heat heat) {
  heap *h;
  STOW_TRY(heap_enter(&h, shell));
  if (heat < STOW_HEAT_NORMAL || heat > STOW_HEAT_COLD)
    return stow_fail(STOW_ERR_INVALID, "set_heat: unknown heat %d", (int)heat);
  lane *l = lane_at(h, ptr);
  if (!l)
    return stow_fail(STOW_ERR_NOT_FOUND, "set_heat of 0x%llx: not an address of this heap",
                     (unsigned long long)ptr);
  place at;
  latch_acquire(&l->lock);
  stow_status status = lane_find(&at, l, ptr);
  if (status == STOW_OK) {
    *at.mark &= ~(MARK_HOT | MARK_COLD);
    if (heat == STOW_HEAT_HOT) *at.mark |= MARK_HOT;
    if (heat == STOW_HEAT_COLD) *at.mark |= MARK_COLD;
  }
  latch_release(&l->lock);
  if (status == STOW_OK && heat == STOW_HEAT_HOT) background_kick(h);
  return status;
}
