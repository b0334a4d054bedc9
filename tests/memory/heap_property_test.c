/* Random use of a heap on several streams, compared with a model that does not know its internals.
 *
 * The model keeps every live allocation and checks: no two overlap; a request fails only if the
 * pages it can need exceed the limit less the pages that live allocations touch (seen from their
 * addresses alone); pages held by live allocations stay within the promised bound; the simulator
 * found no use out of stream order. The heap's own slow check runs as often as the budget
 * allows. */
#include <stdlib.h>

#include <stowage/stowage.h>
#include <stowage/sys/device.h>

#include "harness.h"

#define MIB      (UINT64_C(1) << 20)
#define PAGE     (2 * MIB)
#define LIVE_MAX 3000
#define STREAMS  3

typedef struct block {
  uint64_t ptr, bytes;
  int stream;
  bool recorded;
} block;

typedef struct model {
  stow_device *device;
  stow_heap *heap;
  stow_stream streams[STREAMS];
  block live[LIVE_MAX]; /* sorted by address */
  int count;
  uint64_t seed, limit, page_max, fails, steps, work;
  uint32_t small[STREAMS][33], small_peak[STREAMS][33]; /* blocks in slabs, by units of a block */
} model;

/* ---- the set of live blocks ---- */

static int place_of(const model *m, uint64_t ptr) {
  int low = 0, high = m->count;
  while (low < high) {
    int mid = (low + high) / 2;
    if (m->live[mid].ptr < ptr)
      low = mid + 1;
    else
      high = mid;
  }
  return low;
}

static void model_add(model *m, block b) {
  int at = place_of(m, b.ptr);
  if (at > 0 && m->live[at - 1].ptr + m->live[at - 1].bytes > b.ptr)
    FAIL("step %" PRIu64 ": %" PRIx64 "+%" PRIu64 " overlaps the block below it", m->steps, b.ptr,
         b.bytes);
  if (at < m->count && b.ptr + b.bytes > m->live[at].ptr)
    FAIL("step %" PRIu64 ": %" PRIx64 "+%" PRIu64 " overlaps the block above it", m->steps, b.ptr,
         b.bytes);
  memmove(&m->live[at + 1], &m->live[at], (size_t)(m->count - at) * sizeof m->live[0]);
  m->live[at] = b;
  m->count++;
}

/* Returns the bytes of 2 MiB slots that live blocks touch: what must be held if pages are 2 MiB.
 * The 64 KiB slab of a small block may extend into one more slot. */
static uint64_t touched(const model *m) {
  uint64_t pages = 0, last = UINT64_MAX;
  for (int i = 0; i < m->count; i++) {
    const block *b = &m->live[i];
    uint64_t around = b->bytes <= 16384 ? 65536 : 0;
    uint64_t first = (b->ptr - around) / PAGE, end = (b->ptr + b->bytes - 1 + around) / PAGE;
    if (last != UINT64_MAX && first <= last) first = last + 1;
    if (end >= first) pages += end - first + 1;
    if (last == UINT64_MAX || end > last) last = end;
  }
  return pages * PAGE;
}

/* ---- the promised bound of what live allocations hold ----
 *
 * Held pages are at most live bytes / page size, + 2 for each large block, + one slab for each size
 * class and stream. Large blocks are those that are not in a slab (above 16 KiB). Pages have
 * several sizes, so the bound is in bytes: a block's two pages have the largest size it may use, 2
 * MiB or up to 8 times the block. No allocator that keeps addresses can meet this bound for small
 * blocks once a program has freed all but one in each slab. So the live bytes of a class count at
 * their peak, and a slab, which lies in one page, holds that page. */

#define SLAB_BYTES 65536u

/* Returns the units of the block that serves a small request; 0 for a large one. */
static uint32_t small_units(uint64_t bytes) {
  uint32_t units = (uint32_t)((bytes + 511) / 512), step = units <= 8 ? 1 : units <= 16 ? 2 : 4;
  return bytes > 16384 ? 0 : (units + step - 1) / step * step;
}

static void small_count(model *m, const block *b, int by) {
  uint32_t units = small_units(b->bytes);
  if (units == 0) return;
  uint32_t *n = &m->small[b->stream][units], *peak = &m->small_peak[b->stream][units];
  *n += (uint32_t)by;
  if (*n > *peak) *peak = *n;
}

/* Returns the most slabs that all classes and streams together may have. */
static uint64_t slabs_most(const model *m) {
  uint64_t slabs = 0;
  for (int s = 0; s < STREAMS; s++)
    for (uint32_t u = 1; u <= 32; u++) {
      uint32_t slots = SLAB_BYTES / 512 / u;
      if (m->small_peak[s][u]) slabs += (m->small_peak[s][u] + slots - 1) / slots + 1;
    }
  return slabs;
}

static uint64_t bound(const model *m) {
  uint64_t bytes = slabs_most(m) * PAGE;
  for (int i = 0; i < m->count; i++) {
    if (small_units(m->live[i].bytes)) continue;
    uint64_t page = PAGE;
    while (page * 2 <= m->page_max && page * 2 <= 8 * m->live[i].bytes) page *= 2;
    bytes += m->live[i].bytes + 2 * page;
  }
  return bytes;
}

/* ---- steps ---- */

static uint64_t pick_bytes(model *m) {
  uint64_t r = harness_random(&m->seed);
  switch (r % 8) {
  case 0: return 1 + (r >> 8) % 16384;
  case 1: return 1 + (r >> 8) % (256 * 1024);
  case 2:
  case 3: return 1 + (r >> 8) % (2 * MIB);
  case 4:
  case 5: return 1 + (r >> 8) % (8 * MIB);
  case 6: return 1 + (r >> 8) % (m->limit / 16);
  default: return (UINT64_C(1) << (9 + (r >> 8) % 15)) + (r >> 40) % 3 * 512;
  }
}

static void check_failure(model *m, uint64_t bytes) {
  stow_heap_failure f = STOW_HEAP_FAILURE_INIT;
  CHECK_OK(stow_heap_last_failure(m->heap, &f));
  m->fails++;
  uint64_t held = m->page_max == PAGE ? touched(m) : f.pinned_bytes;
  uint64_t needed = (bytes / PAGE + 2) * PAGE;
  if (held + needed <= m->limit)
    FAIL("step %" PRIu64 ": %" PRIu64 " bytes refused with %" PRIu64 " held of %" PRIu64
         " (heap says %" PRIu64 " pinned, needs %" PRIu64 ")",
         m->steps, bytes, held, m->limit, f.pinned_bytes, f.needed_page_bytes);
  if (f.pinned_bytes > bound(m))
    FAIL("step %" PRIu64 ": %" PRIu64 " bytes pinned, bound %" PRIu64, m->steps, f.pinned_bytes,
         bound(m));
}

/* Checks the bound, which holds at any time, not only at a refusal. */
static void check_held(model *m) {
  stow_heap_stats s = STOW_HEAP_STATS_INIT;
  CHECK_OK(stow_heap_get_stats(m->heap, &s));
  if (s.pending_count == 0 && s.tier[STOW_TIER_VRAM].pinned_bytes > bound(m))
    FAIL("step %" PRIu64 ": %" PRIu64 " bytes of pages held by live blocks, bound %" PRIu64,
         m->steps, s.tier[STOW_TIER_VRAM].pinned_bytes, bound(m));
}

static void step_alloc(model *m) {
  block b = {.bytes = pick_bytes(m), .stream = (int)(harness_random(&m->seed) % STREAMS)};
  uint64_t ptr;
  stow_status status = stow_heap_alloc(&ptr, m->heap, b.bytes, m->streams[b.stream]);
  if (status == STOW_ERR_OUT_OF_MEMORY) {
    check_failure(m, b.bytes);
    return;
  }
  CHECK_OK(status);
  b.ptr = ptr;
  b.bytes = (b.bytes + 511) / 512 * 512;
  model_add(m, b);
  small_count(m, &b, 1);
  if (harness_random(&m->seed) % 4 == 0) {
    uint64_t us = harness_random(&m->seed) % 200;
    CHECK_OK(stow_sim_submit(m->device, m->streams[b.stream], ptr, b.bytes, STOW_SIM_WRITE, us));
    m->work++;
  }
}

/* Lets another stream read the block, ordered by an event after the owner's work and recorded with
 * the heap. */
static void step_share(model *m) {
  block *b = &m->live[harness_random(&m->seed) % (uint64_t)m->count];
  stow_stream other = m->streams[(b->stream + 1) % STREAMS];
  stow_event e;
  CHECK_OK(m->device->ops->event_create(m->device, &e));
  CHECK_OK(m->device->ops->event_record(m->device, e, m->streams[b->stream]));
  CHECK_OK(m->device->ops->stream_wait(m->device, other, e));
  CHECK_OK(m->device->ops->event_destroy(m->device, e));
  CHECK_OK(stow_heap_record_stream(m->heap, b->ptr, other));
  CHECK_OK(stow_sim_submit(m->device, other, b->ptr, b->bytes, STOW_SIM_READ, 50));
  b->recorded = true;
}

static void step_free(model *m) {
  int at = (int)(harness_random(&m->seed) % (uint64_t)m->count);
  block b = m->live[at];
  CHECK_OK(stow_heap_free(m->heap, b.ptr, m->streams[b.stream]));
  if (!b.recorded) small_count(m, &b, -1); /* a recorded block waits for an unknown time */
  memmove(&m->live[at], &m->live[at + 1], (size_t)(m->count - at - 1) * sizeof m->live[0]);
  m->count--;
}

static void run(uint64_t limit, uint64_t page_max, uint64_t steps, uint64_t seed, int check_every,
                bool shares) {
  model *m = calloc(1, sizeof *m);
  stow_sim_options so = STOW_SIM_OPTIONS_INIT;
  so.vram_bytes = limit;
  so.host_bytes = 0;
  so.paper = true;
  CHECK_OK(stow_sim_open(&m->device, &so));
  stow_heap_options o = STOW_HEAP_OPTIONS_INIT;
  o.device = m->device;
  o.page_bytes_max = page_max;
  o.background = false;
  CHECK_OK(stow_heap_open(&m->heap, &o));
  m->limit = limit;
  m->page_max = page_max;
  m->seed = seed;
  for (int i = 1; i < STREAMS; i++)
    CHECK_OK(m->device->ops->stream_create(m->device, &m->streams[i]));
  for (m->steps = 0; m->steps < steps; m->steps++) {
    /* The live set grows and shrinks, so that the heap is both full and fragmented at times. */
    uint64_t phase = m->steps / 4000 % 5, r = harness_random(&m->seed) % 100;
    bool give = r < (phase == 4 ? 70u : 45u) || m->count > LIVE_MAX - 2;
    if (shares && m->count > 0 && r == 99)
      step_share(m);
    else if (give && m->count > 0)
      step_free(m);
    else
      step_alloc(m);
    if (m->steps % 64 == 0) CHECK_OK(stow_sim_advance(m->device, 100));
    if (m->steps % 100000 == 99999) CHECK_OK(stow_heap_trim(m->heap, 0, NULL));
    if (m->steps % (uint64_t)check_every == 0) CHECK_OK(stow_heap_check(m->heap));
    if (m->steps % 500 == 0) check_held(m);
  }
  stow_sim_counts c = STOW_SIM_COUNTS_INIT;
  CHECK_OK(stow_sim_get_counts(m->device, &c));
  CHECK_U64(c.violations, 0);
  CHECK(c.vram_peak_bytes <= limit);
  CHECK(m->fails > 0); /* otherwise the test had no refusals */
  stow_heap_stats s = STOW_HEAP_STATS_INIT;
  CHECK_OK(stow_heap_get_stats(m->heap, &s));
  harness_note("%" PRIu64 " steps, %" PRIu64 " refusals, %" PRIu64 " stitches, %" PRIu64 " maps",
               m->steps, m->fails, s.stitches, s.maps);
  while (m->count > 0) step_free(m);
  CHECK_OK(stow_heap_check(m->heap));
  CHECK_OK(stow_heap_close(m->heap));
  for (int i = 1; i < STREAMS; i++)
    CHECK_OK(m->device->ops->stream_destroy(m->device, m->streams[i]));
  CHECK_OK(stow_device_close(m->device));
  free(m);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SCALE 20
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SCALE 20
#endif
#endif
#ifndef SCALE
#define SCALE 1
#endif

/* Steps of the two long runs: 2,000,000 in `make test-long`, a fifth of them in `make test`. */
static uint64_t long_steps(void) {
  return (SCALE > 1 || harness_long() ? 2000000 : 400000) / SCALE;
}

TEST(requests_fail_only_for_want_of_pages_of_2_mib)
{ run(512 * MIB, PAGE, long_steps(), 1, 1000, false); }
TEST(requests_fail_only_for_want_of_pages_of_any_size)
{ run(2048 * MIB, 64 * MIB, long_steps(), 2, 1000, false); }
TEST(streams_that_share_memory_never_meet_in_it)
{ run(256 * MIB, PAGE, 200000 / SCALE, 3, 200, true); }
TEST(a_small_device_is_checked_after_every_step)
{ run(64 * MIB, 8 * MIB, 60000 / SCALE, 4, 1, true); }

/* Checks the bound literally, in pages of one size, while nothing is freed; sizes up to `most`. */
static void fill_up(uint64_t most, uint64_t seed) {
  const uint64_t limit = 256 * MIB;
  stow_sim_options so = STOW_SIM_OPTIONS_INIT;
  so.vram_bytes = limit;
  so.host_bytes = 0;
  so.paper = true;
  stow_heap_options o = STOW_HEAP_OPTIONS_INIT;
  CHECK_OK(stow_sim_open(&o.device, &so));
  o.page_bytes_max = PAGE;
  o.background = false;
  stow_heap *h;
  CHECK_OK(stow_heap_open(&h, &o));
  stow_stream streams[STREAMS] = {0};
  for (int i = 1; i < STREAMS; i++) CHECK_OK(o.device->ops->stream_create(o.device, &streams[i]));
  uint32_t blocks[STREAMS][33] = {0}; /* small blocks, by units of a block */
  uint64_t large = 0, large_bytes = 0, slabs = 0, count = 0, ptr;
  for (;; count++) {
    uint64_t bytes = 1 + harness_random(&seed) % most;
    int stream = (int)(harness_random(&seed) % STREAMS);
    stow_status status = stow_heap_alloc(&ptr, h, bytes, streams[stream]);
    if (status == STOW_ERR_OUT_OF_MEMORY) break;
    CHECK_OK(status);
    uint32_t units = small_units(bytes);
    if (units == 0) {
      large++;
      large_bytes += bytes;
    } else if (blocks[stream][units]++ % (SLAB_BYTES / 512 / units) == 0) {
      slabs++; /* all others of the class are full */
    }
    if (count % 16) continue;
    stow_heap_stats s = STOW_HEAP_STATS_INIT;
    CHECK_OK(stow_heap_get_stats(h, &s));
    uint64_t pages = s.tier[STOW_TIER_VRAM].pinned_bytes / PAGE;
    /* Full slabs count as live bytes, each block with its share. The last slab of each class and
     * the last page of each stream may be partly used. */
    uint64_t allowed = (large_bytes + slabs * SLAB_BYTES) / PAGE + 2 * large + STREAMS;
    if (pages > allowed)
      FAIL("%" PRIu64 " blocks, %" PRIu64 " of them large: %" PRIu64 " pages held, %" PRIu64
           " allowed",
           count, large, pages, allowed);
  }
  harness_note("%" PRIu64 " blocks, %" PRIu64 " large", count, large);
  CHECK_STATUS(stow_heap_close(h), STOW_ERR_STATE);
  for (int i = 1; i < STREAMS; i++) CHECK_OK(o.device->ops->stream_destroy(o.device, streams[i]));
  CHECK_OK(stow_device_close(o.device));
}

TEST(small_blocks_share_their_pages)
{ fill_up(16384, 5); }
TEST(blocks_of_every_size_hold_no_more_pages_than_promised)
{ fill_up(MIB, 6); }

TEST_MAIN
