/* Curve: two running sums per device. */
#include "recordings/curve.h"

#include <stdlib.h>

/* Sums wrap instead of overflowing: sizes come from untrusted files. */
static void add(int64_t *sum, uint64_t bytes, bool minus) {
  *sum = (int64_t)((uint64_t)*sum + (minus ? 0 - bytes : bytes));
}

bool curve_step(curve *c, const event *e) {
  curve_point *p = curve_at(c, e);
  switch (e->kind) {
  case EVENT_ALLOC: add(&p->live_bytes, e->bytes, false); return true;
  case EVENT_FREE: add(&p->live_bytes, e->bytes, true); return true;
  case EVENT_SEGMENT_ALLOC:
  case EVENT_SEGMENT_MAP: add(&p->reserved_bytes, e->bytes, false); return true;
  case EVENT_SEGMENT_FREE:
  case EVENT_SEGMENT_UNMAP: add(&p->reserved_bytes, e->bytes, true); return true;
  default: return false;
  }
}

static size_t count_devices(const recording *r) {
  size_t count = 1;
  for (size_t i = 0; i < r->origin_count; i++)
    if (r->origins[i].device >= count) count = (size_t)r->origins[i].device + 1;
  for (size_t i = 0; i < r->segment_count; i++)
    if (r->segments[i].device >= count) count = (size_t)r->segments[i].device + 1;
  return count;
}

/* Adds what the segments report at the end. */
static void add_end(const recording *r, curve_point *end) {
  for (size_t i = 0; i < r->segment_count; i++) {
    const segment *s = &r->segments[i];
    add(&end[s->device].reserved_bytes, s->bytes, false);
    for (uint32_t k = 0; k < s->block_count; k++) {
      const block *b = &r->blocks[s->first_block + k];
      if (b->state != BLOCK_FREE)
        add(&end[s->device].live_bytes, b->requested_bytes != 0 ? b->requested_bytes : b->bytes,
            false);
    }
  }
}

static int64_t most(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* Returns a - b, wrapping like add. */
static int64_t minus(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a - (uint64_t)b);
}

stow_status curve_begin(curve *c, const recording *r) {
  size_t count = count_devices(r);
  /* the running sums, their minima, and the end according to the segments */
  curve_point *all = calloc(3 * count, sizeof *all);
  if (all == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for memory curves");
  curve_point *low = all + count, *end = all + 2 * count;
  *c = (curve){r, all, count};
  for (size_t i = 0; i < r->event_count; i++) {
    if (!curve_step(c, &r->events[i])) continue;
    size_t d = event_origin(r, &r->events[i])->device;
    if (all[d].live_bytes < low[d].live_bytes) low[d].live_bytes = all[d].live_bytes;
    if (all[d].reserved_bytes < low[d].reserved_bytes)
      low[d].reserved_bytes = all[d].reserved_bytes;
  }
  add_end(r, end);
  for (size_t d = 0; d < count; d++) {
    int64_t live = r->segment_count > 0 ? minus(end[d].live_bytes, all[d].live_bytes) : 0;
    int64_t reserved =
        r->segment_count > 0 ? minus(end[d].reserved_bytes, all[d].reserved_bytes) : 0;
    all[d].live_bytes = most(live, minus(0, low[d].live_bytes));
    all[d].reserved_bytes = most(reserved, minus(0, low[d].reserved_bytes));
  }
  return STOW_OK;
}

void curve_free(curve *c) {
  free(c->points);
  *c = (curve){0};
}
