/* Steps: one pass over the events, with the live addresses in a map. */
#include "replay/steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "replay/initial.h"

/* ---- lanes ---- */

static int lane_compare(const void *a, const void *b) {
  const policy_lane *x = a, *y = b;
  for (int i = 0; i < 2; i++)
    if (x->pool[i] != y->pool[i]) return x->pool[i] < y->pool[i] ? -1 : 1;
  if (x->stream != y->stream) return x->stream < y->stream ? -1 : 1;
  return 0;
}

/* Private pools, as far as the recording shows them: from its segments at the end, by address.
 * Events have no pool, so an event whose segment no longer exists at the end counts for the default
 * pool. */
typedef struct pool_finder {
  const segment **private; /* sorted by address */
  size_t count;
} pool_finder;

static int segment_compare(const void *a, const void *b) {
  const segment *x = *(const segment *const *)a, *y = *(const segment *const *)b;
  return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static stow_status pool_finder_init(pool_finder *f, const recording *r, uint16_t device) {
  *f = (pool_finder){0};
  for (size_t i = 0; i < r->segment_count; i++) {
    const segment *s = &r->segments[i];
    if (s->device != device || (s->pool[0] == 0 && s->pool[1] == 0)) continue;
    if (f->private == NULL) {
      f->private = calloc(r->segment_count, sizeof *f->private);
      if (f->private == NULL)
        return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %zu segments", r->segment_count);
    }
    f->private[f->count++] = s;
  }
  if (f->count > 0) qsort(f->private, f->count, sizeof *f->private, segment_compare);
  return STOW_OK;
}

static policy_lane lane_of(const pool_finder *f, uint64_t stream, uint64_t addr) {
  policy_lane lane = {.stream = stream};
  size_t low = 0, high = f->count;
  while (low < high) { /* the last segment that begins at or before the address */
    size_t middle = low + (high - low) / 2;
    if (f->private[middle] -> addr <= addr)
      low = middle + 1;
    else
      high = middle;
  }
  if (low > 0 && addr - f->private[low - 1] -> addr < f -> private[low - 1] -> bytes)
    memcpy(lane.pool, f->private[low - 1] -> pool, sizeof lane.pool);
  return lane;
}

/* Collects the lanes in order of appearance; they are sorted at the end, when steps are
 * renumbered. */
static stow_status lane_number(steps *s, uint32_t *number, policy_lane lane) {
  for (uint32_t i = s->lane_count; i-- > 0;)
    if (lane_compare(&s->lanes[i], &lane) == 0) {
      *number = i;
      return STOW_OK;
    }
  if (s->lane_count == 4096)
    return stow_fail(STOW_ERR_UNSUPPORTED, "more than 4096 streams in one recording");
  if ((s->lane_count & (s->lane_count - 1)) == 0) {
    policy_lane *lanes =
        realloc(s->lanes, (s->lane_count == 0 ? 1 : s->lane_count * 2) * sizeof *lanes);
    if (lanes == NULL)
      return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %u streams", s->lane_count + 1);
    s->lanes = lanes;
  }
  *number = s->lane_count;
  s->lanes[s->lane_count++] = lane;
  return STOW_OK;
}

static stow_status lanes_sort(steps *s) {
  if (s->lane_count == 0) return lane_number(s, &(uint32_t){0}, (policy_lane){0});
  policy_lane *sorted = malloc(s->lane_count * sizeof *sorted);
  uint32_t *number = malloc(s->lane_count * sizeof *number);
  if (sorted == NULL || number == NULL) {
    free(sorted);
    free(number);
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %u streams", s->lane_count);
  }
  memcpy(sorted, s->lanes, s->lane_count * sizeof *sorted);
  qsort(sorted, s->lane_count, sizeof *sorted, lane_compare);
  for (uint32_t i = 0; i < s->lane_count; i++)
    for (uint32_t j = 0; j < s->lane_count; j++)
      if (lane_compare(&s->lanes[i], &sorted[j]) == 0) number[i] = j;
  for (size_t i = 0; i < s->count; i++) s->list[i].lane = number[s->list[i].lane];
  free(s->lanes);
  free(number);
  s->lanes = sorted;
  return STOW_OK;
}

/* ---- segments ---- */

/* The contents of the recorded segments. Which segments are empty when memory is freed shows why it
 * was freed. */
typedef struct held_segment {
  uint64_t addr, bytes, live; /* live: allocations in it */
} held_segment;

typedef struct held {
  held_segment *list; /* by address */
  size_t count, capacity, empty;
} held;

/* Returns the position after the last segment that begins at or before `addr`. */
static size_t held_upper(const held *h, uint64_t addr) {
  size_t low = 0, high = h->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (h->list[middle].addr <= addr)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static held_segment *held_find(const held *h, uint64_t addr) {
  size_t at = held_upper(h, addr);
  if (at == 0 || addr - h->list[at - 1].addr >= h->list[at - 1].bytes) return NULL;
  return &h->list[at - 1];
}

static stow_status held_add(held *h, uint64_t addr, uint64_t bytes) {
  STOW_TRY(LIST_ROOM(h->list, h->count, h->capacity, 64, "segments"));
  size_t at = held_upper(h, addr);
  memmove(&h->list[at + 1], &h->list[at], (h->count - at) * sizeof *h->list);
  h->list[at] = (held_segment){.addr = addr, .bytes = bytes};
  h->count++;
  h->empty++;
  return STOW_OK;
}

static void held_remove(held *h, uint64_t addr) {
  size_t at = held_upper(h, addr);
  /* NOLINTNEXTLINE(clang-analyzer-*): at > 0 only if the list has entries */
  if (at == 0 || h->list[at - 1].addr != addr) return;
  h->empty -= h->list[at - 1].live == 0;
  memmove(&h->list[at - 1], &h->list[at], (h->count - at) * sizeof *h->list);
  h->count--;
}

static void held_count(held *h, uint64_t addr, int change) {
  held_segment *s = held_find(h, addr);
  if (s == NULL || (change < 0 && s->live == 0)) return;
  h->empty -= s->live == 0;
  s->live += (uint64_t)(int64_t)change;
  h->empty += s->live == 0;
}

/* ---- building ---- */

typedef struct builder {
  steps *out;
  pool_finder pools;
  map live;        /* address → id */
  uint64_t *bytes; /* requested bytes, by ID */
  uint32_t *spare; /* unused ids */
  uint32_t spare_count, id_capacity;
  uint64_t live_bytes;
  uint64_t reserved, reserved_max; /* computed from the recorded segment events */
  bool gives;                      /* the recording frees memory somewhere */
  held held;
  policy_settings settings;
} builder;

static stow_status add_step(builder *b, step s) {
  steps *out = b->out;
  STOW_TRY(LIST_ROOM(out->list, out->count, out->capacity, 1024, "steps"));
  out->list[out->count++] = s;
  return STOW_OK;
}

static stow_status take_id(builder *b, uint32_t *id) {
  if (b->spare_count > 0) {
    *id = b->spare[--b->spare_count];
    return STOW_OK;
  }
  if (b->out->id_count == b->id_capacity) {
    uint32_t capacity = b->id_capacity == 0 ? 256 : b->id_capacity * 2;
    uint64_t *bytes = realloc(b->bytes, capacity * sizeof *bytes);
    if (bytes != NULL) b->bytes = bytes;
    uint32_t *spare = realloc(b->spare, capacity * sizeof *spare);
    if (spare != NULL) b->spare = spare;
    if (bytes == NULL || spare == NULL)
      return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %u blocks at once", capacity);
    b->id_capacity = capacity;
  }
  *id = b->out->id_count++;
  return STOW_OK;
}

static void note_live(builder *b, uint64_t bytes) {
  /* A sum above 2^64 comes from impossible sizes; it saturates. */
  b->live_bytes = b->live_bytes + bytes < bytes ? UINT64_MAX : b->live_bytes + bytes;
  if (b->live_bytes > b->out->peak_live_bytes) b->out->peak_live_bytes = b->live_bytes;
}

static stow_status add_free(builder *b, uint64_t addr, uint32_t index) {
  uint64_t id;
  if (!map_remove(&b->live, addr, &id)) {
    b->out->unknown_frees++;
    return STOW_OK;
  }
  STOW_TRY(add_step(
      b, (step){.kind = STEP_FREE, .bytes = b->bytes[id], .id = (uint32_t)id, .event = index}));
  if (b->gives) held_count(&b->held, addr, -1);
  b->live_bytes -= b->bytes[id] < b->live_bytes ? b->bytes[id] : b->live_bytes;
  b->spare[b->spare_count++] = (uint32_t)id;
  return STOW_OK;
}

/* Adds an allocation. `s` has bytes and event; the rest is filled in. */
static stow_status add_alloc(builder *b, uint64_t stream, uint64_t addr, step s) {
  if (map_get(&b->live, addr) != NULL) { /* its free was lost */
    b->out->doubled_addresses++;
    STOW_TRY(add_free(b, addr, s.event));
  }
  s.kind = STEP_ALLOC;
  STOW_TRY(lane_number(b->out, &s.lane, lane_of(&b->pools, stream, addr)));
  STOW_TRY(take_id(b, &s.id));
  /* NOLINTNEXTLINE(clang-analyzer-*): take_id made room for the number it returned */
  b->bytes[s.id] = s.bytes;
  STOW_TRY(map_put(&b->live, addr, s.id));
  if (b->gives) held_count(&b->held, addr, 1);
  note_live(b, s.bytes);
  b->out->alloc_count++;
  return add_step(b, s);
}

static stow_status add_fail(builder *b, const event *e, uint32_t index) {
  step s = {.kind = STEP_FAIL, .bytes = e->bytes, .event = index};
  policy_lane lane = {.stream = event_origin(b->out->source, e)->stream};
  STOW_TRY(lane_number(b->out, &s.lane, lane));
  STOW_TRY(take_id(b, &s.id));
  /* NOLINTNEXTLINE(clang-analyzer-*): as many slots as ids */
  b->spare[b->spare_count++] = s.id;
  uint64_t before = b->live_bytes;
  note_live(b, e->bytes);
  b->live_bytes = before;
  return add_step(b, s);
}

/* Adds a free_requested, unless its free follows directly. */
static stow_status add_request(builder *b, const event *e, uint32_t index) {
  const recording *r = b->out->source;
  for (size_t i = (size_t)index + 1; i < r->event_count; i++) {
    const event *next = &r->events[i];
    if (next->kind >= EVENT_SNAPSHOT || event_origin(r, next)->device != b->out->device) continue;
    if (next->kind == EVENT_FREE && next->addr == e->addr) return STOW_OK;
    break;
  }
  uint64_t *id = map_get(&b->live, e->addr);
  if (id == NULL) return STOW_OK; /* counted at its free */
  return add_step(b, (step){.kind = STEP_PEND, .id = (uint32_t)*id, .event = index});
}

static bool gives_back(const event *e) {
  return e->kind == EVENT_SEGMENT_FREE || e->kind == EVENT_SEGMENT_UNMAP;
}

/* Returns the next allocator event of this device from `i` on; event_count if there is none. */
static size_t next_event(const builder *b, size_t i) {
  const recording *r = b->out->source;
  while (i < r->event_count && (r->events[i].kind >= EVENT_SNAPSHOT ||
                                event_origin(r, &r->events[i])->device != b->out->device))
    i++;
  return i;
}

/* Returns whether the request would have fitted into the memory freed in [first, end). Then that
 * memory was not freed for it. Small requests live in their own 2 MiB segments. */
static bool would_fit(const builder *b, size_t first, size_t end, const event *request) {
  const uint64_t small_max = UINT64_C(1) << 20, small_segment = UINT64_C(2) << 20;
  const recording *r = b->out->source;
  uint64_t stream = event_origin(r, request)->stream;
  bool small = request->bytes <= small_max;
  uint64_t oversize = b->settings.max_split_bytes, most = UINT64_MAX;
  if (request->bytes >= oversize) most = request->bytes + b->settings.max_rounding_bytes;
  if (request->bytes < oversize && oversize != POLICY_NO_LIMIT) most = oversize;
  for (size_t i = first; i < end; i++) {
    const event *e = &r->events[i];
    const origin *of = event_origin(r, e);
    if (of->device != b->out->device || !gives_back(e) || of->stream != stream) continue;
    if (e->bytes >= request->bytes && e->bytes < most && small == (e->bytes == small_segment))
      return true;
  }
  return false;
}

/* Handles memory freed from event `index` on. If the program freed it (empty_cache), it is a
 * separate step. If the allocator freed it on its own, a policy does the same on its own:
 *
 *   - collecting garbage, or freeing oversize blocks: then some empty segments remain;
 *   - out of memory: then a new segment or a refusal follows, for a request that fitted nothing
 *     that was freed and would have pushed the reserve above its maximum. */
static stow_status add_trim(builder *b, uint32_t index, uint32_t *last) {
  const event *events = b->out->source->events;
  size_t count = b->out->source->event_count, end = index, given = 0;
  for (size_t i = index; i < count && gives_back(&events[i]); i = next_event(b, i + 1)) {
    given += events[i].kind == EVENT_SEGMENT_FREE;
    end = i + 1;
  }
  *last = (uint32_t)end - 1;
  if (given > 0 && given < b->held.empty) return STOW_OK;
  uint64_t more = 0;
  size_t i = next_event(b, end);
  for (;
       i < count && (events[i].kind == EVENT_SEGMENT_ALLOC || events[i].kind == EVENT_SEGMENT_MAP);
       i = next_event(b, i + 1))
    more += events[i].bytes;
  bool fails = i < count && events[i].kind == EVENT_FAIL;
  bool grows = i < count && events[i].kind == EVENT_ALLOC && more > 0 &&
               b->reserved + more > b->reserved_max;
  if ((fails || grows) && !would_fit(b, index, end, &events[i])) return STOW_OK;
  return add_step(b, (step){.kind = STEP_TRIM, .event = *last});
}

/* Returns the maximum of the recorded reserve. A recording that began late knows it only from there
 * on. */
static uint64_t most_reserved(const recording *r, uint16_t device, bool *gives) {
  uint64_t now = 0, most = 0;
  *gives = false;
  for (size_t i = 0; i < r->event_count; i++) {
    const event *e = &r->events[i];
    if (event_origin(r, e)->device != device) continue;
    if (e->kind == EVENT_SEGMENT_ALLOC || e->kind == EVENT_SEGMENT_MAP) now += e->bytes;
    if (gives_back(e)) {
      now -= e->bytes < now ? e->bytes : now;
      *gives = true;
    }
    if (now > most) most = now;
  }
  return most;
}

static stow_status add_event(builder *b, uint32_t index, uint32_t *given_until) {
  const event *e = &b->out->source->events[index];
  switch (e->kind) {
  case EVENT_ALLOC:
    return add_alloc(b, event_origin(b->out->source, e)->stream, e->addr,
                     (step){.bytes = e->bytes, .event = index});
  case EVENT_FREE_REQUESTED: return add_request(b, e, index);
  case EVENT_FREE: return add_free(b, e->addr, index);
  case EVENT_FAIL: return add_fail(b, e, index);
  case EVENT_SEGMENT_ALLOC:
    if (b->gives) STOW_TRY(held_add(&b->held, e->addr, e->bytes));
    b->reserved += e->bytes;
    return STOW_OK;
  case EVENT_SEGMENT_MAP: b->reserved += e->bytes; return STOW_OK;
  case EVENT_SEGMENT_FREE:
  case EVENT_SEGMENT_UNMAP:
    if (index >= *given_until) {
      STOW_TRY(add_trim(b, index, given_until));
      ++*given_until;
    }
    if (e->kind == EVENT_SEGMENT_FREE) held_remove(&b->held, e->addr);
    b->reserved -= e->bytes < b->reserved ? e->bytes : b->reserved;
    return STOW_OK;
  default: return STOW_OK;
  }
}

/* Allocates what was live before the first event, by address: the real order is unknown. */
static stow_status add_initial(builder *b, const initial_state *state) {
  uint16_t device = b->out->device;
  for (size_t i = 0; i < state->segment_count; i++) {
    const segment *s = &state->segments[i];
    if (s->device != device) continue;
    for (uint64_t k = s->first_block; k < s->first_block + s->block_count; k++) {
      const block *live = &state->blocks[k];
      if (live->state == BLOCK_FREE) continue;
      uint64_t bytes = live->requested_bytes != 0 ? live->requested_bytes : live->bytes;
      STOW_TRY(add_alloc(b, s->stream, live->addr, (step){.bytes = bytes, .initial = true}));
    }
  }
  for (size_t i = 0; i < state->loose_count; i++) {
    const block *live = &state->loose[i];
    if (state->loose_devices[i] != device || live->state == BLOCK_FREE) continue;
    uint64_t bytes = live->requested_bytes != 0 ? live->requested_bytes : live->bytes;
    STOW_TRY(add_alloc(b, 0, live->addr, (step){.bytes = bytes, .initial = true}));
  }
  b->out->initial_blocks = b->out->alloc_count;
  b->out->alloc_count = 0;
  return STOW_OK;
}

static stow_status build(builder *b) {
  const recording *r = b->out->source;
  STOW_TRY(pool_finder_init(&b->pools, r, b->out->device));
  b->reserved_max = most_reserved(r, b->out->device, &b->gives);
  steps_settings(&b->settings, r);
  if (r->event_count > 0) {
    initial_state state;
    STOW_TRY(recording_initial_state(&state, r));
    stow_status status = add_initial(b, &state);
    initial_state_free(&state);
    STOW_TRY(status);
  }
  uint32_t given_until = 0;
  for (size_t i = 0; i < r->event_count; i++) {
    if (event_origin(r, &r->events[i])->device != b->out->device) continue;
    b->out->event_count++;
    STOW_TRY(add_event(b, (uint32_t)i, &given_until));
  }
  b->out->end_live_bytes = b->live_bytes;
  return lanes_sort(b->out);
}

stow_status steps_build(steps *out, const recording *r, uint16_t device) {
  *out = (steps){.source = r, .device = device};
  if (r->event_count >= UINT32_MAX)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "a recording of %zu events cannot be replayed; the maximum is 4294967294",
                     r->event_count);
  builder b = {.out = out};
  stow_status status = build(&b);
  free(b.pools.private);
  free(b.held.list);
  map_free(&b.live);
  free(b.bytes);
  free(b.spare);
  return status;
}

void steps_free(steps *s) {
  free(s->list);
  free(s->lanes);
  *s = (steps){0};
}

uint16_t steps_main_device(const recording *r) {
  uint64_t counts[256] = {0};
  for (size_t i = 0; i < r->event_count; i++) {
    uint16_t device = event_origin(r, &r->events[i])->device;
    if (device < 256) counts[device]++;
  }
  uint16_t best = 0;
  for (uint16_t i = 1; i < 256; i++)
    if (counts[i] > counts[best]) best = i;
  return best;
}

/* ---- settings ---- */

bool steps_expandable(const recording *r) {
  const char *value = recording_setting(r, "expandable_segments");
  if (value != NULL) return strcmp(value, "True") == 0 || strcmp(value, "1") == 0;
  for (size_t i = 0; i < r->event_count; i++)
    if (r->events[i].kind == EVENT_SEGMENT_MAP) return true;
  return false;
}

void steps_settings(policy_settings *out, const recording *r) {
  *out = POLICY_SETTINGS_INIT;
  const char *text = recording_setting(r, "max_split_size"); /* bytes; -1: none */
  if (text != NULL && text[0] != '-') {
    unsigned long long bytes = strtoull(text, NULL, 10);
    if (bytes > 0 && bytes < POLICY_NO_LIMIT) out->max_split_bytes = bytes;
  }
  text = recording_setting(r, "garbage_collection_threshold");
  if (text != NULL) {
    double threshold = strtod(text, NULL);
    if (threshold > 0 && threshold < 1) out->gc_threshold = threshold;
  }
  text = recording_setting(r, "roundup_power2_divisions"); /* [1:0,2:0,…] */
  if (text != NULL && strlen(text) < 512) {
    char pair[600];
    snprintf(pair, sizeof pair, "roundup_power2_divisions:%s", text);
    policy_settings read = *out;
    if (policy_settings_parse(&read, pair) == STOW_OK) *out = read;
  }
}
