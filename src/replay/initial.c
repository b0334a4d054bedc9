/* Initial state: derived from the first event of each address.
 *
 * If the first event is a free, the block was live before; if it is an allocation, it was not. A
 * block without events is as in the final state. The same holds for segments, and for every stretch
 * of an expandable segment (first a map: it was not mapped; first an unmap: it was). */
#include "replay/initial.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/list.h"

#define BLOCK_UNIT UINT64_C(512) /* PyTorch rounds requests up to this */
/* Large blocks keep a remainder of at most 1 MiB unsplit. */
#define SLACK_MAX     (UINT64_C(1) << 20)
#define SMALL_SEGMENT (UINT64_C(2) << 20)

typedef struct place { /* a block with its sort keys */
  block b;
  uint16_t device;
  bool exact;   /* its size is known */
  bool settled; /* nothing more can be learned about it */
} place;

typedef struct edge { /* the start or end of something in a device's addresses */
  uint64_t addr;
  uint16_t device;
} edge;

typedef struct stretch { /* a run of addresses between two edges */
  uint32_t next;         /* the next stretch without an event (union-find) */
  bool mapped, inside;   /* inside: part of segment `from` of the final state */
  uint64_t stream;
  uint32_t from;
} stretch;

typedef struct builder {
  const recording *r;
  initial_state *out;
  map touched, touched_segments;
  place *places;
  size_t place_count, place_capacity;
  size_t segment_capacity;
} builder;

static uint64_t key_of(uint16_t device, uint64_t addr) {
  return addr ^ (uint64_t)device << 57; /* device addresses have at most 57 bits */
}

static stow_status no_memory(void) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to rebuild the initial state");
}

static stow_status add_place(builder *x, place p) {
  STOW_TRY(LIST_ROOM(x->places, x->place_count, x->place_capacity, 64, "blocks of the start"));
  x->places[x->place_count++] = p;
  return STOW_OK;
}

static stow_status add_segment(builder *x, segment s) {
  STOW_TRY(LIST_ROOM(x->out->segments, x->out->segment_count, x->segment_capacity, 64,
                     "segments of the start"));
  x->out->segments[x->out->segment_count++] = s;
  return STOW_OK;
}

/* ---- first events ---- */

static stow_status touch_block(builder *x, const event *e) {
  uint16_t device = event_origin(x->r, e)->device;
  uint64_t key = key_of(device, e->addr);
  if (map_get(&x->touched, key) != NULL) return STOW_OK;
  STOW_TRY(map_put(&x->touched, key, 1));
  if (e->kind == EVENT_ALLOC) return STOW_OK;
  uint64_t bytes;
  if (!checked_round_up(&bytes, e->bytes > 0 ? e->bytes : 1, BLOCK_UNIT)) bytes = e->bytes;
  return add_place(x, (place){.b = {.addr = e->addr,
                                    .bytes = bytes,
                                    .requested_bytes = e->bytes,
                                    .stack_id = 0, /* the event shows who freed it, not who
                                                    * allocated it */
                                    .state = e->kind == EVENT_FREE ? BLOCK_PENDING : BLOCK_LIVE},
                              .device = device});
}

static stow_status touch_segment(builder *x, const event *e) {
  uint16_t device = event_origin(x->r, e)->device;
  uint64_t key = key_of(device, e->addr);
  if (map_get(&x->touched_segments, key) != NULL) return STOW_OK;
  STOW_TRY(map_put(&x->touched_segments, key, 1));
  if (e->kind == EVENT_SEGMENT_ALLOC) return STOW_OK;
  x->out->guessed_segments++;
  return add_segment(x, (segment){.addr = e->addr,
                                  .bytes = e->bytes,
                                  .stream = event_origin(x->r, e)->stream,
                                  .stack_id = e->stack_id,
                                  .device = device,
                                  .small = e->bytes == SMALL_SEGMENT});
}

static stow_status touch_all(builder *x) {
  for (size_t i = 0; i < x->r->event_count; i++) {
    const event *e = &x->r->events[i];
    switch (e->kind) {
    case EVENT_ALLOC:
    case EVENT_FREE_REQUESTED:
    case EVENT_FREE: STOW_TRY(touch_block(x, e)); break;
    case EVENT_SEGMENT_ALLOC:
    case EVENT_SEGMENT_FREE: STOW_TRY(touch_segment(x, e)); break;
    default: break;
    }
  }
  return STOW_OK;
}

/* Blocks without events are as in the final state. */
static stow_status take_untouched(builder *x) {
  const recording *r = x->r;
  for (size_t i = 0; i < r->segment_count; i++) {
    const segment *s = &r->segments[i];
    if (!s->expandable && map_get(&x->touched_segments, key_of(s->device, s->addr)) == NULL)
      STOW_TRY(add_segment(x, *s));
    for (uint32_t k = 0; k < s->block_count; k++) {
      const block *b = &r->blocks[s->first_block + k];
      if (b->state == BLOCK_FREE || map_get(&x->touched, key_of(s->device, b->addr)) != NULL)
        continue;
      STOW_TRY(add_place(x, (place){.b = *b, .device = s->device, .exact = true, .settled = true}));
    }
  }
  return STOW_OK;
}

/* ---- expandable segments ---- */

static int compare_edges(const void *a, const void *b) {
  const edge *x = a, *y = b;
  if (x->device != y->device) return x->device < y->device ? -1 : 1;
  return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static bool is_mapping(const event *e) {
  return e->kind == EVENT_SEGMENT_MAP || e->kind == EVENT_SEGMENT_UNMAP;
}

static stow_status add_edges(edge **edges, size_t *count, size_t *capacity, uint16_t device,
                             uint64_t addr, uint64_t bytes) {
  uint64_t end;
  if (bytes == 0 || !checked_add(&end, addr, bytes)) return STOW_OK;
  STOW_TRY(LIST_ROOM(*edges, *count + 1, *capacity, 64, "edges of segments"));
  (*edges)[(*count)++] = (edge){addr, device};
  (*edges)[(*count)++] = (edge){end, device};
  return STOW_OK;
}

static stow_status collect_edges(const recording *r, edge **edges, size_t *count) {
  size_t capacity = 0;
  for (size_t i = 0; i < r->event_count; i++)
    if (is_mapping(&r->events[i]))
      STOW_TRY(add_edges(edges, count, &capacity, event_origin(r, &r->events[i])->device,
                         r->events[i].addr, r->events[i].bytes));
  for (size_t i = 0; i < r->segment_count; i++)
    if (r->segments[i].expandable)
      STOW_TRY(add_edges(edges, count, &capacity, r->segments[i].device, r->segments[i].addr,
                         r->segments[i].bytes));
  if (*count == 0) return STOW_OK;
  qsort(*edges, *count, sizeof **edges, compare_edges);
  size_t distinct = 1;
  for (size_t i = 1; i < *count; i++)
    if (compare_edges(&(*edges)[i], &(*edges)[distinct - 1]) != 0)
      (*edges)[distinct++] = (*edges)[i];
  *count = distinct;
  return STOW_OK;
}

static uint32_t edge_index(const edge *edges, size_t count, uint16_t device, uint64_t addr) {
  edge wanted = {addr, device};
  const edge *found = bsearch(&wanted, edges, count, sizeof *edges, compare_edges);
  return (uint32_t)(found - edges);
}

/* Returns the first stretch without an event at or after i. */
static uint32_t untouched(stretch *stretches, uint32_t i) {
  uint32_t root = i;
  while (stretches[root].next != root) root = stretches[root].next;
  while (stretches[i].next != root) {
    uint32_t next = stretches[i].next;
    stretches[i].next = root;
    i = next;
  }
  return root;
}

/* Decides which stretches were mapped at the start. Stretch i runs from edge i to edge i + 1. */
static void decide_stretches(const recording *r, const edge *edges, size_t count,
                             stretch *stretches) {
  uint64_t end;
  for (uint32_t i = 0; i <= count; i++) stretches[i] = (stretch){.next = i};
  for (size_t k = 0; k < r->segment_count; k++) {
    const segment *s = &r->segments[k];
    if (!s->expandable || s->bytes == 0 || !checked_add(&end, s->addr, s->bytes)) continue;
    uint32_t i = edge_index(edges, count, s->device, s->addr);
    for (; i < count && edges[i].addr < end && edges[i].device == s->device; i++)
      if (!stretches[i].inside)
        stretches[i] = (stretch){
            .next = i, .mapped = true, .inside = true, .stream = s->stream, .from = (uint32_t)k};
      else
        break; /* segments overlap (hostile input); each stretch is processed once */
  }
  for (size_t k = 0; k < r->event_count; k++) {
    const event *e = &r->events[k];
    if (!is_mapping(e) || e->bytes == 0 || !checked_add(&end, e->addr, e->bytes)) continue;
    const origin *of = event_origin(r, e);
    uint32_t i = untouched(stretches, edge_index(edges, count, of->device, e->addr));
    for (; i < count && edges[i].addr < end && edges[i].device == of->device;
         i = untouched(stretches, i)) {
      stretches[i].mapped = e->kind == EVENT_SEGMENT_UNMAP;
      stretches[i].stream = of->stream;
      stretches[i].next = i + 1;
    }
  }
}

/* Merges adjacent stretches of one stream into a segment, as in a snapshot. */
static stow_status join_stretches(builder *x, const edge *edges, size_t count,
                                  const stretch *stretches) {
  for (size_t i = 0; i + 1 < count;) {
    if (!stretches[i].mapped || edges[i].device != edges[i + 1].device) {
      i++;
      continue;
    }
    segment s = {.addr = edges[i].addr,
                 .stream = stretches[i].stream,
                 .device = edges[i].device,
                 .expandable = true};
    bool known = false;
    for (; i + 1 < count && stretches[i].mapped && stretches[i].stream == s.stream &&
           edges[i].device == s.device && edges[i + 1].device == s.device;
         i++) {
      if (stretches[i].inside && !known) {
        const segment *end_state = &x->r->segments[stretches[i].from];
        s.small = end_state->small;
        s.pool[0] = end_state->pool[0];
        s.pool[1] = end_state->pool[1];
        s.stack_id = end_state->stack_id;
        known = true;
      }
      s.bytes = edges[i + 1].addr - s.addr;
    }
    if (!known) x->out->guessed_segments++;
    STOW_TRY(add_segment(x, s));
  }
  return STOW_OK;
}

static stow_status take_expandable(builder *x) {
  edge *edges = NULL;
  stretch *stretches = NULL;
  size_t count = 0;
  stow_status status = collect_edges(x->r, &edges, &count);
  if (status == STOW_OK && count > UINT32_MAX - 2)
    status = stow_fail(STOW_ERR_OVERFLOW, "more than 2^32 mappings in one recording");
  if (status == STOW_OK && count > 0) {
    stretches = malloc((count + 1) * sizeof *stretches);
    if (stretches == NULL) status = no_memory();
  }
  if (status == STOW_OK && count > 0) {
    decide_stretches(x->r, edges, count, stretches);
    status = join_stretches(x, edges, count, stretches);
  }
  free(edges);
  free(stretches);
  return status;
}

/* ---- layout ---- */

static int compare_places(const void *a, const void *b) {
  const place *x = a, *y = b;
  if (x->device != y->device) return x->device < y->device ? -1 : 1;
  return x->b.addr < y->b.addr ? -1 : x->b.addr > y->b.addr;
}

static int compare_segments(const void *a, const void *b) {
  const segment *x = a, *y = b;
  if (x->device != y->device) return x->device < y->device ? -1 : 1;
  return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* Sorts the segments and drops those that overlap another. */
static void sort_segments(builder *x) {
  initial_state *s = x->out;
  if (s->segment_count == 0) return;
  qsort(s->segments, s->segment_count, sizeof *s->segments, compare_segments);
  size_t kept = 0;
  for (size_t i = 0; i < s->segment_count; i++) {
    const segment *last = kept > 0 ? &s->segments[kept - 1] : NULL;
    uint64_t end;
    bool fits = checked_add(&end, s->segments[i].addr, s->segments[i].bytes) &&
                (last == NULL || last->device != s->segments[i].device ||
                 last->addr + last->bytes <= s->segments[i].addr);
    if (fits)
      s->segments[kept++] = s->segments[i];
    else
      s->conflicts++;
  }
  s->segment_count = kept;
}

/* Returns the place with the greatest address at or below `addr`; NULL if the device has none. */
static place *place_below(const builder *x, uint16_t device, uint64_t addr) {
  size_t low = 0, high = x->place_count;
  place wanted = {.b.addr = addr, .device = device};
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (compare_places(&x->places[middle], &wanted) <= 0)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == 0 || x->places[low - 1].device != device) return NULL;
  return &x->places[low - 1];
}

/* Determines where blocks of unknown size end. A free block is used from its start, so the first
 * allocation after such a block shows where it ends (while the block is live: freeing it would
 * merge them). */
static void learn_ends(builder *x) {
  size_t open = 0;
  for (size_t i = 0; i < x->place_count; i++) open += !x->places[i].settled;
  for (size_t i = 0; i < x->r->event_count && open > 0; i++) {
    const event *e = &x->r->events[i];
    if (e->kind != EVENT_ALLOC && e->kind != EVENT_FREE) continue;
    place *p = place_below(x, event_origin(x->r, e)->device, e->addr);
    if (p == NULL || p->settled) continue;
    bool freed = e->kind == EVENT_FREE && p->b.addr == e->addr;
    bool behind = e->kind == EVENT_ALLOC && e->addr >= p->b.addr + p->b.bytes;
    if (!freed && !behind) continue;
    if (behind && e->addr - p->b.addr - p->b.bytes <= SLACK_MAX) {
      p->b.bytes = e->addr - p->b.addr;
      p->exact = true;
    }
    p->settled = true;
    open--;
  }
}

static stow_status add_block(initial_state *s, size_t *capacity, block b) {
  STOW_TRY(LIST_ROOM(s->blocks, s->block_count, *capacity, 64, "blocks of the start"));
  s->blocks[s->block_count++] = b;
  return STOW_OK;
}

static stow_status add_loose(initial_state *s, size_t *capacity, const place *p) {
  size_t devices = *capacity;
  STOW_TRY(LIST_ROOM(s->loose, s->loose_count, *capacity, 64, "blocks of the start"));
  STOW_TRY(LIST_ROOM(s->loose_devices, s->loose_count, devices, 64, "blocks of the start"));
  s->loose[s->loose_count] = p->b;
  s->loose_devices[s->loose_count++] = p->device;
  return STOW_OK;
}

/* Fills one segment with its places and the free blocks between them; `*at` advances over the
 * places. */
static stow_status fill_segment(builder *x, segment *g, size_t *at, size_t *capacity) {
  initial_state *s = x->out;
  uint64_t behind = g->addr, end = g->addr + g->bytes;
  g->first_block = s->block_count;
  for (; *at < x->place_count; ++*at) {
    block b = x->places[*at].b;
    if (x->places[*at].device != g->device || b.addr >= end) break;
    if (b.addr < behind) {
      s->conflicts++;
      continue;
    }
    uint64_t next = end;
    if (*at + 1 < x->place_count && x->places[*at + 1].device == g->device &&
        x->places[*at + 1].b.addr < end)
      next = x->places[*at + 1].b.addr;
    if (b.bytes > next - b.addr) {
      b.bytes = next - b.addr;
      s->conflicts++;
    }
    /* Small segments are split down to the last unit. A large segment has no free block as small as
     * the remainder it leaves unsplit: such a remainder belongs to the block before it. */
    bool whole = !g->small && next - b.addr - b.bytes <= SLACK_MAX;
    if (whole) b.bytes = next - b.addr;
    if (!whole && !g->small && !x->places[*at].exact) s->guessed_sizes++;
    if (b.addr > behind)
      STOW_TRY(add_block(s, capacity, (block){behind, b.addr - behind, 0, 0, 0}));
    STOW_TRY(add_block(s, capacity, b));
    s->live_blocks++;
    s->live_bytes += b.requested_bytes;
    behind = b.addr + b.bytes;
  }
  if (behind < end) STOW_TRY(add_block(s, capacity, (block){behind, end - behind, 0, 0, 0}));
  g->block_count = (uint32_t)(s->block_count - g->first_block);
  return STOW_OK;
}

static stow_status lay_out(builder *x) {
  initial_state *s = x->out;
  size_t at = 0, capacity = 0, loose_capacity = 0;
  sort_segments(x);
  if (x->place_count > 0) qsort(x->places, x->place_count, sizeof *x->places, compare_places);
  learn_ends(x);
  for (size_t i = 0; i <= s->segment_count; i++) {
    segment *g = i < s->segment_count ? &s->segments[i] : NULL;
    for (; at < x->place_count; at++) { /* places before this segment are in no segment */
      const place *p = &x->places[at];
      if (g != NULL && (p->device > g->device || (p->device == g->device && p->b.addr >= g->addr)))
        break;
      STOW_TRY(add_loose(s, &loose_capacity, p));
      s->guessed_sizes += !p->exact;
      s->live_blocks++;
      s->live_bytes += p->b.requested_bytes;
    }
    if (g != NULL) STOW_TRY(fill_segment(x, g, &at, &capacity));
  }
  return STOW_OK;
}

stow_status recording_initial_state(initial_state *state, const recording *r) {
  *state = (initial_state){0};
  builder x = {.r = r, .out = state};
  stow_status status = touch_all(&x);
  if (status == STOW_OK) status = take_untouched(&x);
  if (status == STOW_OK) status = take_expandable(&x);
  if (status == STOW_OK) status = lay_out(&x);
  map_free(&x.touched);
  map_free(&x.touched_segments);
  free(x.places);
  if (status != STOW_OK) initial_state_free(state);
  return status;
}

void initial_state_free(initial_state *state) {
  free(state->segments);
  free(state->blocks);
  free(state->loose);
  free(state->loose_devices);
  *state = (initial_state){0};
}
