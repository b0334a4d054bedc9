/* Initial state: rebuilds a recording without its beginning, and compares with the whole one. */
#include "replay/initial.h"

#include <stdlib.h>

#include "harness.h"
#include "recordings/recording_file.h"

static void load(recording *r, const char *name) {
  recording_init(r, 0);
  CHECK_OK(recording_read(r, harness_data(name), KIND_AUTO, NULL));
}

TEST(a_whole_recording_begins_with_nothing)
{
  static const char *const files[] = {"leak.pickle.gz", "gpt_varlen_expandable.pickle.gz",
                                      "gpt_varlen_limit36.5.pickle.gz"};
  for (size_t i = 0; i < 3; i++) {
    recording r;
    initial_state s;
    load(&r, files[i]);
    CHECK_OK(recording_initial_state(&s, &r));
    CHECK_U64(s.segment_count, 0);
    CHECK_U64(s.live_blocks, 0);
    CHECK_U64(s.guessed_sizes + s.guessed_segments + s.conflicts, 0);
    initial_state_free(&s);
    recording_free(&r);
  }
}

/* Live blocks and segments just before event `cut`, counted from the real beginning. */
typedef struct walked {
  map live, segments; /* addr → bytes */
  uint64_t mapped_bytes;
} walked;

static void walk(walked *w, const recording *r, size_t cut) {
  *w = (walked){0};
  for (size_t i = 0; i < cut; i++) {
    const event *e = &r->events[i];
    switch (e->kind) {
    case EVENT_ALLOC: CHECK_OK(map_put(&w->live, e->addr, e->bytes)); break;
    case EVENT_FREE: CHECK(map_remove(&w->live, e->addr, NULL)); break;
    case EVENT_SEGMENT_ALLOC: CHECK_OK(map_put(&w->segments, e->addr, e->bytes)); break;
    case EVENT_SEGMENT_FREE: CHECK(map_remove(&w->segments, e->addr, NULL)); break;
    case EVENT_SEGMENT_MAP: w->mapped_bytes += e->bytes; break;
    case EVENT_SEGMENT_UNMAP: w->mapped_bytes -= e->bytes; break;
    default: break;
    }
  }
}

static void check_tiling(const initial_state *s) {
  for (size_t i = 0; i < s->segment_count; i++) {
    const segment *g = &s->segments[i];
    uint64_t at = g->addr;
    for (uint32_t k = 0; k < g->block_count; k++) {
      CHECK_U64(s->blocks[g->first_block + k].addr, at);
      at += s->blocks[g->first_block + k].bytes;
    }
    CHECK_U64(at, g->addr + g->bytes);
  }
}

/* Drops the first `cut` events and compares with a pass over them. */
static void check_cut(const char *file, size_t percent) {
  recording r;
  initial_state s;
  walked w;
  load(&r, file);
  size_t cut = r.event_count * percent / 100;
  walk(&w, &r, cut);
  recording late = r;
  late.events += cut;
  late.event_count -= cut;
  CHECK_OK(recording_initial_state(&s, &late));
  check_tiling(&s);
  uint64_t live = 0, mapped = 0, plain = 0;
  for (size_t i = 0; i < s.block_count; i++) {
    if (s.blocks[i].state == BLOCK_FREE) continue;
    uint64_t *bytes = map_get(&w.live, s.blocks[i].addr);
    CHECK(bytes != NULL);
    CHECK_U64(s.blocks[i].requested_bytes, *bytes);
    CHECK(s.blocks[i].bytes >= *bytes);
    live++;
  }
  for (size_t i = 0; i < s.segment_count; i++) {
    if (s.segments[i].expandable) {
      mapped += s.segments[i].bytes;
      continue;
    }
    uint64_t *bytes = map_get(&w.segments, s.segments[i].addr);
    CHECK(bytes != NULL);
    CHECK_U64(s.segments[i].bytes, *bytes);
    plain++;
  }
  CHECK_U64(live, w.live.count);
  CHECK_U64(s.live_blocks, w.live.count);
  CHECK_U64(s.loose_count, 0);
  CHECK_U64(plain, w.segments.count);
  CHECK_U64(mapped, w.mapped_bytes);
  CHECK_U64(s.conflicts, 0);
  if (percent == 50 || percent == 55)
    harness_note("%zu live in %zu segments, %" PRIu64 " sizes guessed", (size_t)live,
                 s.segment_count, s.guessed_sizes);
  initial_state_free(&s);
  map_free(&w.live);
  map_free(&w.segments);
  recording_free(&r);
}

TEST(what_was_cut_off_is_rebuilt_default)
{
  for (size_t percent = 10; percent < 100; percent += 20)
    check_cut("gpt_varlen_limit36.5.pickle.gz", percent);
}

TEST(what_was_cut_off_is_rebuilt_expandable)
{
  for (size_t percent = 10; percent < 100; percent += 20)
    check_cut("gpt_varlen_expandable.pickle.gz", percent);
}

TEST(what_was_cut_off_is_rebuilt_with_stacks)
{
  for (size_t percent = 5; percent < 100; percent += 10) {
    check_cut("leak.pickle.gz", percent);
    check_cut("oom_gpt_15gib_stacks.pickle.gz", percent);
  }
}

TEST(live_blocks_without_segments_are_distinct)
{
  recording r;
  initial_state s;
  recording_init(&r, 0);
  uint16_t device = 0;
  event e = {.time_ns = 1, .addr = 4096, .bytes = 100, .kind = EVENT_FREE_REQUESTED};
  CHECK_OK(recording_add_event(&r, &e, &(origin){.device = device}));
  e.kind = EVENT_FREE;
  CHECK_OK(recording_add_event(&r, &e, &(origin){.device = device}));
  e = (event){.time_ns = 2, .addr = 8192, .bytes = 7, .kind = EVENT_FREE};
  device = 3;
  CHECK_OK(recording_add_event(&r, &e, &(origin){.device = device}));
  CHECK_OK(recording_initial_state(&s, &r));
  CHECK_U64(s.loose_count, 2);
  CHECK_U64(s.loose[0].requested_bytes, 100);
  CHECK_U64(s.loose[0].bytes, 512);
  CHECK_U64(s.loose[0].state, BLOCK_LIVE);
  CHECK_U64(s.loose_devices[1], 3);
  CHECK_U64(s.loose[1].state, BLOCK_PENDING);
  CHECK_U64(s.live_bytes, 107);
  CHECK_U64(s.guessed_sizes, 2);
  initial_state_free(&s);
  recording_free(&r);
}

TEST_MAIN
