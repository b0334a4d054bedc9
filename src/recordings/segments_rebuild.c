/* Rebuilds segments from events: what the allocator held when the recording ended.
 *
 * Live blocks are allocations without a free. They are placed into the recorded segments; without
 * recorded segments (an RMM log, for example) every live block is its own segment. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "recordings/recording_write.h"

#define GRANULE      (UINT64_C(2) << 20) /* mappings come in multiples of this */
#define GRANULES_MAX (UINT64_C(1) << 24) /* processed in total: 32 TiB of mappings */
#define MAPPING_MAX  (UINT64_C(1) << 40) /* per event: more than any device has */

typedef struct held { /* live blocks and plain segments: addr → number of the event that made it */
  map live, segments, granules;
  uint64_t granules_seen;
} held;

static uint64_t key_of(const recording *r, const event *e, uint64_t addr) {
  return addr ^ (uint64_t)event_origin(r, e)->device << 57;
}

static stow_status put_granules(held *h, const recording *r, size_t number) {
  const event *e = &r->events[number];
  /* No device can have created a larger mapping, and the loop below would otherwise run as long as
   * a number in the file says. */
  if (e->bytes > MAPPING_MAX || e->bytes / GRANULE > GRANULES_MAX - h->granules_seen)
    return STOW_OK;
  h->granules_seen += e->bytes / GRANULE;
  for (uint64_t at = 0; at < e->bytes; at += GRANULE) {
    uint64_t key = key_of(r, e, e->addr + at);
    if (e->kind == EVENT_SEGMENT_MAP)
      STOW_TRY(map_put(&h->granules, key, number));
    else
      map_remove(&h->granules, key, NULL);
  }
  return STOW_OK;
}

static stow_status walk(held *h, const recording *r) {
  for (size_t i = 0; i < r->event_count; i++) {
    const event *e = &r->events[i];
    switch (e->kind) {
    case EVENT_ALLOC: STOW_TRY(map_put(&h->live, key_of(r, e, e->addr), i)); break;
    case EVENT_FREE: map_remove(&h->live, key_of(r, e, e->addr), NULL); break;
    case EVENT_SEGMENT_ALLOC: STOW_TRY(map_put(&h->segments, key_of(r, e, e->addr), i)); break;
    case EVENT_SEGMENT_FREE: map_remove(&h->segments, key_of(r, e, e->addr), NULL); break;
    case EVENT_SEGMENT_MAP:
    case EVENT_SEGMENT_UNMAP: STOW_TRY(put_granules(h, r, i)); break;
    default: break;
    }
  }
  return STOW_OK;
}

static int compare_segments(const void *a, const void *b) {
  const segment *x = a, *y = b;
  if (x->device != y->device) return x->device < y->device ? -1 : 1;
  return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static segment segment_of(const recording *r, const event *e, uint64_t addr, uint64_t bytes,
                          bool expandable) {
  const origin *of = event_origin(r, e);
  return (segment){.addr = addr,
                   .bytes = bytes,
                   .stream = of->stream,
                   .device = of->device,
                   .stack_id = e->stack_id,
                   .expandable = expandable,
                   .small = bytes == GRANULE && !expandable};
}

/* Sorts the segments, merges adjacent granules, and drops segments that overlap an earlier one. */
static void join(rebuilt *out) {
  size_t kept = 0;
  qsort(out->segments, out->segment_count, sizeof *out->segments, compare_segments);
  for (size_t i = 0; i < out->segment_count; i++) {
    segment s = out->segments[i], *last = kept > 0 ? &out->segments[kept - 1] : NULL;
    uint64_t end;
    if (!checked_add(&end, s.addr, s.bytes)) continue;
    bool same = last != NULL && last->device == s.device;
    if (same && last->addr + last->bytes > s.addr) continue;
    if (same && last->expandable && s.expandable && last->stream == s.stream &&
        last->addr + last->bytes == s.addr)
      last->bytes += s.bytes;
    else
      out->segments[kept++] = s;
  }
  out->segment_count = kept;
}

static stow_status collect_segments(rebuilt *out, const recording *r, const held *h) {
  bool none = h->segments.count + h->granules.count == 0;
  size_t count = none ? h->live.count : h->segments.count + h->granules.count;
  out->segments = malloc((count + 1) * sizeof *out->segments);
  if (out->segments == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %zu segments", count);
  const map *maps[] = {none ? &h->live : &h->segments, none ? NULL : &h->granules};
  for (int m = 0; m < 2 && maps[m] != NULL; m++) {
    uint64_t key, number;
    for (size_t at = 0; map_next(maps[m], &at, &key, &number);) {
      const event *e = &r->events[number];
      uint64_t addr = m == 1 ? key_of(r, e, key) : e->addr, bytes = m == 1 ? GRANULE : e->bytes;
      if (none && !checked_round_up(&bytes, bytes, 512)) continue;
      out->segments[out->segment_count++] = segment_of(r, e, addr, bytes, m == 1);
    }
  }
  join(out);
  return STOW_OK;
}

static int compare_events(const void *a, const void *b, void *r) {
  const event *x = *(const event *const *)a, *y = *(const event *const *)b;
  uint16_t first = event_origin(r, x)->device, second = event_origin(r, y)->device;
  if (first != second) return first < second ? -1 : 1;
  return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static void add_block(rebuilt *out, uint64_t addr, uint64_t bytes, const event *e) {
  out->blocks[out->block_count++] = (block){.addr = addr,
                                            .bytes = bytes,
                                            .requested_bytes = e != NULL ? e->bytes : 0,
                                            .stack_id = e != NULL ? e->stack_id : 0,
                                            .state = e != NULL ? BLOCK_LIVE : BLOCK_FREE};
}

/* Places the sorted live blocks into the sorted segments, with free blocks between them. */
static void fill(rebuilt *out, const recording *r, const event **live, size_t count) {
  size_t at = 0;
  for (size_t i = 0; i < out->segment_count; i++) {
    segment *s = &out->segments[i];
    uint64_t behind = s->addr, end = s->addr + s->bytes;
    s->first_block = out->block_count;
    for (; at < count; at++) {
      const event *e = live[at];
      uint16_t device = event_origin(r, e)->device;
      if (device > s->device || (device == s->device && e->addr >= end)) break;
      if (device < s->device || e->addr < behind) continue; /* not in any segment */
      if (e->addr > behind) add_block(out, behind, e->addr - behind, NULL);
      uint64_t bytes = round_up(e->bytes < end ? e->bytes : end, 512);
      if (bytes > end - e->addr) bytes = end - e->addr;
      add_block(out, e->addr, bytes, e);
      behind = e->addr + bytes;
    }
    if (behind < end) add_block(out, behind, end - behind, NULL);
    s->block_count = (uint32_t)(out->block_count - s->first_block);
  }
}

static stow_status lay_out(rebuilt *out, const recording *r, const held *h) {
  const event **live = malloc((h->live.count + 1) * sizeof *live);
  size_t count = 0, room = 2 * h->live.count + out->segment_count + 1;
  out->blocks = malloc(room * sizeof *out->blocks);
  if (live == NULL || out->blocks == NULL) {
    free(live);
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %zu blocks", room);
  }
  uint64_t key, number;
  for (size_t at = 0; map_next(&h->live, &at, &key, &number);) live[count++] = &r->events[number];
  qsort_r(live, count, sizeof *live, compare_events, (void *)r);
  fill(out, r, live, count);
  free(live);
  return STOW_OK;
}

stow_status segments_rebuild(rebuilt *out, const recording *r) {
  *out = (rebuilt){0};
  held h = {0};
  stow_status status = walk(&h, r);
  if (status == STOW_OK) status = collect_segments(out, r, &h);
  if (status == STOW_OK) status = lay_out(out, r, &h);
  map_free(&h.live);
  map_free(&h.segments);
  map_free(&h.granules);
  if (status != STOW_OK) {
    free(out->segments);
    free(out->blocks);
    *out = (rebuilt){0};
  }
  return status;
}
