/* Timeline, census and iterations over recordings made here, event by event. */
#include "harness.h"

#include <stdlib.h>

#include "replay/thin.h"
#include "report/report.h"

static recording made;

static void begin(void) {
  recording_init(&made, 0);
}

static void add(event_kind kind, uint64_t addr, uint64_t bytes) {
  event e = {
      .kind = (uint8_t)kind, .addr = addr, .bytes = bytes, .time_ns = made.event_count * 1000};
  CHECK_OK(recording_add_event(&made, &e, &(origin){0}));
}

static uint32_t stack_of(const char *function, const char *file) {
  uint32_t name, path, frame_ids[2], id;
  CHECK_OK(recording_name(&made, &name, function, strlen(function)));
  CHECK_OK(recording_name(&made, &path, file, strlen(file)));
  CHECK_OK(recording_frame(&made, &frame_ids[1], name, path, 7));
  CHECK_OK(recording_name(&made, &name, "linear", 6));
  CHECK_OK(recording_name(&made, &path, "/x/site-packages/torch/nn/functional.py", 39));
  CHECK_OK(recording_frame(&made, &frame_ids[0], name, path, 1));
  CHECK_OK(recording_stack(&made, &id, frame_ids, 2));
  return id;
}

static void mark(event_kind kind, const char *name) {
  uint32_t id;
  CHECK_OK(recording_name(&made, &id, name, strlen(name)));
  event e = {.kind = (uint8_t)kind, .time_ns = made.event_count * 1000};
  CHECK_OK(recording_add_event(&made, &e, &(origin){.tag_id = id}));
}

static report built(void) {
  report r;
  CHECK_OK(report_build(&r, &made, "made here", 0));
  return r;
}

TEST(peak_is_the_highest_moment_and_its_holders_add_up)
{
  begin();
  uint32_t a = stack_of("forward", "train.py"), b = stack_of("backward", "train.py");
  add(EVENT_ALLOC, 0x1000, 100);
  made.events[0].stack_id = a;
  add(EVENT_ALLOC, 0x2000, 300);
  made.events[1].stack_id = b;
  add(EVENT_FREE, 0x1000, 100);
  add(EVENT_ALLOC, 0x1000, 50);
  made.events[3].stack_id = a;
  report r = built();
  CHECK_U64(r.peak.tick, 1);
  CHECK_U64(r.peak.live_bytes, 400);
  CHECK_U64(r.peak.holder_count, 2);
  CHECK_U64(r.peak.holders[0].bytes, 300);
  char label[64];
  CHECK_TEXT(census_label(label, sizeof label, &r.time, &r.sites, r.group, r.peak.holders[0].key),
             "backward  train.py:7");
  CHECK_U64(r.end_live_bytes, 350);
  report_free(&r);
  recording_free(&made);
}

TEST(what_began_before_the_recording_is_live_from_the_start)
{
  begin();
  add(EVENT_ALLOC, 0x1000, 10);
  add(EVENT_FREE, 0x9000, 500); /* its allocation was not recorded */
  segment s = {.addr = 0x1000, .bytes = 0x100000, .block_count = 2};
  block seen = {.addr = 0x1000, .bytes = 512, .requested_bytes = 10, .state = BLOCK_LIVE};
  block early = {.addr = 0x2000, .bytes = 1024, .requested_bytes = 1000, .state = BLOCK_LIVE};
  CHECK_OK(recording_add_segment(&made, &s));
  CHECK_OK(recording_add_block(&made, &seen));
  CHECK_OK(recording_add_block(&made, &early));
  report r = built();
  CHECK_U64(r.time.before_count, 2);
  CHECK_U64(r.peak.live_bytes, 1510);
  CHECK_U64(r.end_live_bytes, 1010);
  CHECK(r.time.reserved_known);
  CHECK_U64(r.peak_reserved_bytes, 0x100000);
  report_free(&r);
  recording_free(&made);
}

TEST(an_address_given_out_twice_ends_the_first)
{
  begin();
  add(EVENT_ALLOC, 0x1000, 100);
  add(EVENT_ALLOC, 0x1000, 40);
  add(EVENT_FREE, 0x1000, 40);
  report r = built();
  CHECK_U64(r.time.doubled_allocs, 1);
  CHECK_U64(r.peak.live_bytes, 100);
  CHECK_U64(r.end_live_bytes, 0);
  report_free(&r);
  recording_free(&made);
}

TEST(sizes_past_any_machine_are_counted_and_left_out)
{
  begin();
  add(EVENT_ALLOC, 0x1000, UINT64_MAX);
  add(EVENT_ALLOC, 0x2000, UINT64_C(1) << 52);
  add(EVENT_ALLOC, 0x3000, UINT64_C(1) << 52); /* the sum exceeds the bound */
  add(EVENT_FREE, 0x4000, UINT64_MAX);
  add(EVENT_SEGMENT_ALLOC, UINT64_MAX - 5, 100);
  add(EVENT_SEGMENT_FREE, 0x1000, UINT64_MAX);
  report r = built();
  CHECK_U64(r.time.bad_sizes, 3);
  CHECK_U64(r.time.bad_extents, 2);
  CHECK_U64(r.peak.live_bytes, UINT64_C(1) << 52);
  report_free(&r);
  recording_free(&made);
}

TEST(holes_are_what_is_between_live_blocks_of_a_segment)
{
  begin();
  add(EVENT_SEGMENT_ALLOC, 0x100000, 0x10000);
  add(EVENT_SEGMENT_ALLOC, 0x110000, 0x10000); /* adjacent to the first, but a separate segment */
  add(EVENT_ALLOC, 0x104000, 0x1000);
  add(EVENT_ALLOC, 0x106000, 0x1000);
  report r = built();
  CHECK_U64(r.peak.reserved_bytes, 0x20000);
  CHECK_U64(r.peak.hole_bytes, 0x20000 - 0x2000);
  CHECK_U64(r.peak.hole_count, 4);
  CHECK_U64(r.peak.largest_hole_bytes, 0x10000);
  report_free(&r);
  recording_free(&made);
}

TEST(an_unmap_cuts_what_was_mapped_in_other_pieces)
{
  begin();
  add(EVENT_SEGMENT_MAP, 0x100000, 0x40000);
  add(EVENT_SEGMENT_MAP, 0x140000, 0x40000);
  add(EVENT_SEGMENT_UNMAP, 0x120000, 0x40000); /* the end of one and the start of the other */
  report r = built();
  CHECK_U64(r.peak_reserved_bytes, 0x80000);
  uint64_t left = 0;
  for (uint32_t i = 0; i < r.time.extent_count; i++)
    if (extent_live(&r.time.extents[i], 2)) left += r.time.extents[i].bytes;
  CHECK_U64(left, 0x40000);
  report_free(&r);
  recording_free(&made);
}

TEST(iterations_come_from_marks_and_say_what_stays)
{
  begin();
  for (uint64_t i = 0; i < 6; i++) {
    add(EVENT_ALLOC, 0x100000 + i * 0x1000, 64); /* stays */
    add(EVENT_ALLOC, 0x1000, 1000);
    add(EVENT_FREE, 0x1000, 1000);
    mark(EVENT_MARK_BEGIN, "Optimizer.step#SGD.step");
    mark(EVENT_MARK_END, "Optimizer.step#SGD.step");
    mark(EVENT_MARK_BEGIN, "Optimizer.zero_grad#SGD.zero_grad");
    mark(EVENT_MARK_END, "Optimizer.zero_grad#SGD.zero_grad");
  }
  report r = built();
  CHECK(r.iterations.how == ITERATION_MARKS);
  CHECK_TEXT(recording_text(&made, r.iterations.name_id), "Optimizer.step#SGD.step");
  CHECK_U64(r.iterations.count - r.iterations.last_is_partial, 6);
  CHECK_U64(r.iterations.list[0].peak_bytes, 1064);
  CHECK_U64(r.iterations.list[2].end_bytes, 3 * 64);
  CHECK(r.iterations.growth_bytes == 64);
  report_free(&r);
  recording_free(&made);
}

TEST(a_round_that_came_to_its_end_counts_and_one_that_did_not_does_not)
{
  for (int closed = 0; closed < 2; closed++) {
    begin();
    add(EVENT_ALLOC, 0x9000, 500); /* before the loop */
    for (uint64_t i = 0; i < 5; i++) {
      char name[16];
      snprintf(name, sizeof name, "step %u", (unsigned)i);
      mark(EVENT_MARK_BEGIN, name);
      add(EVENT_ALLOC, 0x100000 + i * 0x1000, 64);
      if (i < 4 || closed) mark(EVENT_MARK_END, name);
    }
    if (closed) add(EVENT_FREE, 0x9000, 500); /* after it */
    report r = built();
    CHECK_U64(r.iterations.count - r.iterations.first_is_setup - r.iterations.last_is_partial,
              closed ? 5 : 4);
    CHECK(r.iterations.first_is_setup);
    CHECK(r.iterations.last_is_partial);
    if (closed) CHECK_U64(r.iterations.list[5].end_bytes, 500 + 5 * 64);
    CHECK(r.iterations.growth_bytes == 64);
    report_free(&r);
    recording_free(&made);
  }
}

TEST(iterations_are_guessed_from_what_comes_back_once_a_round)
{
  begin();
  for (int i = 0; i < 20; i++) {
    add(EVENT_ALLOC, 0x500000, 77777); /* once per iteration */
    for (uint64_t layer = 0; layer < 8; layer++) add(EVENT_ALLOC, 0x1000 * (layer + 1), 4096);
    for (uint64_t layer = 0; layer < 8; layer++) add(EVENT_FREE, 0x1000 * (layer + 1), 4096);
    add(EVENT_FREE, 0x500000, 77777);
  }
  report r = built();
  CHECK(r.iterations.how == ITERATION_GUESSED);
  CHECK_U64(r.iterations.guess_bytes, 77777);
  CHECK(r.iterations.count >= 19 && r.iterations.count <= 20);
  report_free(&r);
  recording_free(&made);
}

TEST(failures_know_what_was_live_and_free_then)
{
  begin();
  add(EVENT_SEGMENT_ALLOC, 0x100000, 0x10000);
  add(EVENT_ALLOC, 0x100000, 0x8000);
  add(EVENT_FAIL, 12345, 0x9000);
  report r = built();
  CHECK_U64(r.failure_count, 1);
  CHECK_U64(r.failures[0].asked_bytes, 0x9000);
  CHECK_U64(r.failures[0].device_free_bytes, 12345);
  CHECK_U64(r.failures[0].live_bytes, 0x8000);
  CHECK_U64(r.failures[0].largest_hole_bytes, 0x8000);
  report_free(&r);
  recording_free(&made);
}

TEST(an_empty_recording_gives_every_form_of_report)
{
  begin();
  report r = built();
  buffer text = BUFFER_INIT, facts = BUFFER_INIT, page = BUFFER_INIT;
  CHECK_OK(report_text(&r, 1, &text, false));
  CHECK_OK(report_json(&r, 1, &facts));
  CHECK_OK(report_html(&r, 1, &page));
  CHECK(strstr(text.data, "holds no allocation") != NULL);
  buffer_free(&text);
  buffer_free(&facts);
  buffer_free(&page);
  report_free(&r);
  recording_free(&made);
}

/* Random, mostly invalid events: nothing may crash, and the sums must agree. */
TEST(nonsense_is_survived_and_the_sums_agree)
{
  for (uint64_t seed = 1; seed <= 40; seed++) {
    uint64_t random = seed;
    begin();
    for (int i = 0; i < 2000; i++) {
      uint64_t draw = harness_random(&random);
      uint64_t bytes = draw % 50 == 0 ? harness_random(&random) : draw % 100000;
      event e = {.kind = (draw >> 8) % EVENT_KIND_COUNT,
                 .addr = (draw >> 16) % 64 * 4096,
                 .bytes = bytes,
                 .time_ns = harness_random(&random),
                 .stack_id = (uint32_t)draw};
      origin of = {.tag_id = (uint32_t)(draw >> 32), .stream = draw % 3};
      CHECK_OK(recording_add_event(&made, &e, &of));
    }
    report r = built();
    uint64_t live = 0;
    for (uint32_t i = 0; i < r.time.lifetime_count; i++)
      if (lifetime_live(&r.time.lifetimes[i], r.time.tick_count - 1))
        live += r.time.lifetimes[i].bytes;
    CHECK_U64(live, r.end_live_bytes);
    buffer page = BUFFER_INIT, text = BUFFER_INIT;
    CHECK_OK(report_html(&r, 1, &page));
    CHECK_OK(report_text(&r, 1, &text, false));
    buffer_free(&page);
    buffer_free(&text);
    report_free(&r);
    recording_free(&made);
  }
}

/* Live bytes after each tick, computed only from the lifetimes. */
static uint64_t *live_by_tick(const timeline *t) {
  int64_t *change = calloc(t->tick_count + 2u, sizeof *change);
  uint64_t *live = calloc(t->tick_count + 1u, sizeof *live), now = 0;
  CHECK(change != NULL && live != NULL);
  for (uint32_t i = 0; i < t->lifetime_count; i++) {
    const lifetime *l = &t->lifetimes[i];
    change[l->start] += (int64_t)l->bytes;
    if (l->end != TIMELINE_OPEN) change[l->end] -= (int64_t)l->bytes;
  }
  for (uint32_t tick = 0; tick < t->tick_count; tick++) live[tick] = now += (uint64_t)change[tick];
  free(change);
  return live;
}

TEST(a_thinned_timeline_keeps_the_largest_and_still_adds_up)
{
  for (uint64_t seed = 1; seed <= 20; seed++) {
    uint64_t random = seed;
    begin();
    for (int i = 0; i < 3000; i++) {
      uint64_t draw = harness_random(&random), addr = (draw >> 16) % 300 * 4096;
      add(draw % 2 != 0 ? EVENT_ALLOC : EVENT_FREE, addr, (draw >> 40) % 1000);
    }
    timeline t;
    thinned thin;
    CHECK_OK(timeline_build(&t, &made, 0));
    CHECK_OK(timeline_thin(&thin, &t, 200, 10));
    CHECK_U64(thin.left_out, t.lifetime_count - 200);
    CHECK_U64(thin.time.lifetime_count, 200 + thin.rest_count);
    uint64_t *whole = live_by_tick(&t), *less = live_by_tick(&thin.time), most = 0, high = 0;
    for (uint32_t tick = 0; tick < t.tick_count; tick++) {
      CHECK(less[tick] >= whole[tick]);
      if (whole[tick] > most) most = whole[tick];
      if (less[tick] > high) high = less[tick];
    }
    CHECK(high <= most + most / 2); /* as high as the maximum of the rest in its interval, no
                                     * higher */
    uint32_t begun = thin.time.before_count;
    for (uint32_t tick = 0; tick < t.tick_count; tick++) {
      uint32_t n = thin.time.lifetime[tick];
      if (n == TIMELINE_NONE) continue;
      if (timeline_event(&t, tick)->kind == EVENT_ALLOC)
        CHECK_U64(n, begun++); /* the viewer numbers them this way */
      else
        CHECK_U64(thin.time.lifetimes[n].end, tick);
    }
    CHECK_U64(begun, thin.time.lifetime_count);
    free(whole);
    free(less);
    thinned_free(&thin);
    timeline_free(&t);
    recording_free(&made);
  }
}

TEST_MAIN
