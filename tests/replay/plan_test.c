/* The planned layout: valid, never below the bound, at least as good as plain greedy layouts, the
 * same every time, and complete for recordings of any length. */
#include "replay/plan.h"

#include <stdio.h>
#include <stdlib.h>

#include "harness.h"
#include "recordings/recording_file.h"
#include "replay/replay.h"

#define MIB UINT64_C(1048576)

typedef struct loaded {
  recording record;
  steps steps;
  replay_options options;
} loaded;

static void build(loaded *l) {
  CHECK_OK(steps_build(&l->steps, &l->record, 0));
  l->options = REPLAY_OPTIONS_INIT;
}

static void unload(loaded *l) {
  steps_free(&l->steps);
  recording_free(&l->record);
}

static void add(loaded *l, event_kind kind, uint64_t addr, uint64_t bytes) {
  event e = {.kind = (uint8_t)kind, .addr = addr, .bytes = bytes};
  CHECK_OK(recording_add_event(&l->record, &e, &(origin){0}));
}

static void random_program(loaded *l, uint64_t seed, int count, int slots) {
  *l = (loaded){0};
  recording_init(&l->record, 0);
  uint64_t live[256] = {0}, next = 4096;
  for (int i = 0; i < count; i++) {
    uint64_t x = harness_random(&seed), *slot = &live[x % (unsigned)slots];
    if (*slot != 0) {
      add(l, EVENT_FREE, *slot, 0);
      *slot = 0;
    } else {
      uint64_t bits = (x >> 8) % 28;
      add(l, EVENT_ALLOC, *slot = next++ * 512, 1 + (x >> 20) % (UINT64_C(1) << bits));
    }
  }
  build(l);
}

static bool overlap(const plan_block *a, const plan_block *b) {
  return a->step < b->until && b->step < a->until && a->offset < b->offset + b->bytes &&
         b->offset < a->offset + a->bytes;
}

static void check_valid(const plan *p) {
  uint64_t top = 0;
  for (uint32_t i = 0; i < p->count; i++) {
    const plan_block *b = &p->blocks[i];
    CHECK_U64(b->offset % PLAN_ALIGN_BYTES, 0);
    if (b->offset + b->bytes > top) top = b->offset + b->bytes;
    for (uint32_t j = 0; j < i && p->count < 20000; j++)
      if (overlap(b, &p->blocks[j])) FAIL("blocks %u and %u overlap", j, i);
  }
  CHECK_U64(p->height_bytes, top);
  CHECK(p->height_bytes >= p->bound_bytes);
}

/* ---- plain greedy layouts, quadratic ---- */

static bool by_area;

static int larger_first(const void *a, const void *b) {
  const plan_block *x = a, *y = b;
  uint64_t kx = x->bytes / 512 * (by_area ? x->until - x->step : 1);
  uint64_t ky = y->bytes / 512 * (by_area ? y->until - y->step : 1);
  if (kx != ky) return kx > ky ? -1 : 1;
  return (x->step > y->step) - (x->step < y->step);
}

/* Places blocks by size or area, each as low as possible, and returns the height. */
static uint64_t greedy_height(const plan *p, bool area) {
  plan_block *list = malloc((p->count + 1) * sizeof *list);
  uint64_t height = 0;
  for (uint32_t i = 0; i < p->count; i++) list[i] = p->blocks[i];
  by_area = area;
  qsort(list, p->count, sizeof *list, larger_first);
  for (uint32_t i = 0; i < p->count; i++) {
    bool moved = true;
    list[i].offset = 0;
    while (moved) {
      moved = false;
      for (uint32_t j = 0; j < i; j++)
        if (overlap(&list[i], &list[j]))
          list[i].offset = list[j].offset + list[j].bytes, moved = true;
    }
    if (list[i].offset + list[i].bytes > height) height = list[i].offset + list[i].bytes;
  }
  free(list);
  return height;
}

TEST(a_plan_is_valid_and_at_least_as_good_as_plain_greedy_layouts)
{
  for (uint64_t seed = 1; seed <= 6; seed++) {
    loaded l;
    plan p;
    random_program(&l, seed * 77, 900, 48);
    CHECK_OK(plan_build(&p, &l.steps, 20000000));
    check_valid(&p);
    CHECK(p.bound_bytes >= l.steps.peak_live_bytes);
    CHECK(p.height_bytes <= greedy_height(&p, false));
    CHECK(p.height_bytes <= greedy_height(&p, true));
    plan_free(&p);
    unload(&l);
  }
}

TEST(with_little_work_a_plan_is_still_valid)
{
  static const uint64_t works[] = {1, 1000, 100000, 3000000};
  for (size_t i = 0; i < sizeof works / sizeof works[0]; i++) {
    loaded l;
    plan p;
    random_program(&l, 5, 12000, 200);
    CHECK_OK(plan_build(&p, &l.steps, works[i]));
    check_valid(&p);
    plan_free(&p);
    unload(&l);
  }
}

TEST(the_same_steps_give_the_same_plan)
{
  loaded l;
  plan a, b;
  random_program(&l, 9, 1500, 100);
  CHECK_OK(plan_build(&a, &l.steps, 5000000));
  CHECK_OK(plan_build(&b, &l.steps, 5000000));
  CHECK_U64(a.count, b.count);
  for (uint32_t i = 0; i < a.count; i++) CHECK_U64(a.blocks[i].offset, b.blocks[i].offset);
  plan_free(&a);
  plan_free(&b);
  unload(&l);
}

/* An allocator that does not know the future puts the small block below the large one's place:
 * 2 + 4 at the start, 2 freed, then 3. A plan puts 4 at the bottom and 3 over the freed 2. */
TEST(knowing_the_future_reaches_the_bound)
{
  loaded l = {0};
  replay_result r, less;
  recording_init(&l.record, 0);
  add(&l, EVENT_ALLOC, 1 << 20, 2 * MIB);
  add(&l, EVENT_ALLOC, 2 << 20, 4 * MIB);
  add(&l, EVENT_FREE, 1 << 20, 2 * MIB);
  add(&l, EVENT_ALLOC, 3 << 20, 3 * MIB);
  build(&l);
  CHECK_OK(replay_run(&r, &l.steps, &policy_planned, &l.options));
  CHECK(r.finishes);
  CHECK_U64(r.stats.peak_reserved_bytes, 7 * MIB);
  CHECK_U64(r.lower_bound_bytes, 7 * MIB);
  CHECK_U64(r.peak_live_bytes, 7 * MIB);
  CHECK_U64(r.stats.largest_hole_bytes, 0);
  CHECK_U64(r.stats.page_calls, 1);
  CHECK_OK(replay_min_limit(&r, &l.steps, &policy_planned, &l.options));
  CHECK_U64(r.min_limit_bytes, 8 * MIB);
  CHECK(r.min_limit_proved);
  l.options.limit_bytes = 6 * MIB;
  CHECK_OK(replay_run(&less, &l.steps, &policy_planned, &l.options));
  CHECK(!less.finishes);
  CHECK_U64(less.failed_at_event, 3);
  CHECK_U64(less.failed_bytes, 3 * MIB);
  CHECK_U64(less.peak_live_bytes, 6 * MIB);
  unload(&l);
}

TEST(requests_that_no_device_holds_fail_and_the_rest_is_planned)
{
  loaded l = {0};
  replay_result r;
  recording_init(&l.record, 0);
  add(&l, EVENT_ALLOC, 1 << 20, 3 * MIB);
  add(&l, EVENT_ALLOC, 1 << 30, UINT64_MAX);
  add(&l, EVENT_FREE, 1 << 30, UINT64_MAX);
  build(&l);
  CHECK_OK(replay_run(&r, &l.steps, &policy_planned, &l.options));
  CHECK(!r.finishes);
  CHECK_U64(r.failed_at_event, 1);
  CHECK_U64(r.stats.peak_reserved_bytes, 3 * MIB);
  CHECK_OK(replay_min_limit(&r, &l.steps, &policy_planned, &l.options));
  CHECK_U64(r.min_limit_bytes, 0);
  unload(&l);
}

TEST(more_live_bytes_than_any_device_has_fail_at_that_request)
{
  loaded l = {0};
  replay_result r;
  recording_init(&l.record, 0);
  for (uint64_t i = 0; i < 1100; i++) add(&l, EVENT_ALLOC, (i + 1) << 20, UINT64_C(1) << 40);
  build(&l);
  CHECK_OK(replay_run(&r, &l.steps, &policy_planned, &l.options));
  CHECK(!r.finishes);
  CHECK_U64(r.failed_at_event, 1024); /* 1024 TiB fit below 2^50 */
  unload(&l);
}

TEST(recorded_programs_need_no_more_than_their_allocators)
{
  static const char *const names[] = {"fragmentation.pickle.gz", "leak.pickle.gz",
                                      "oom_gpt_15gib_stacks.pickle.gz"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    loaded l = {0};
    replay_result planned, torch;
    recording_init(&l.record, 0);
    CHECK_OK(recording_read(&l.record, harness_data(names[i]), KIND_AUTO, NULL));
    CHECK_OK(steps_build(&l.steps, &l.record, steps_main_device(&l.record)));
    l.options = REPLAY_OPTIONS_INIT;
    CHECK_OK(replay_run(&planned, &l.steps, &policy_planned, &l.options));
    CHECK_OK(replay_run(&torch, &l.steps, &policy_torch_default, &l.options));
    CHECK(planned.finishes);
    CHECK(planned.stats.peak_reserved_bytes <= torch.stats.peak_reserved_bytes);
    CHECK_U64(planned.stats.peak_reserved_bytes, planned.lower_bound_bytes);
    unload(&l);
  }
}

/* minimalloc's problems have an optimum of at most 1 MiB that takes a solver to find. A fixed
 * amount of work stays below these heights. */
TEST(packing_problems_stay_near_their_optimum)
{
  if (harness_shared() == NULL) SKIP("no shared packing problems beside this checkout");
  for (char name = 'A'; name <= 'F'; name++) {
    char path[512];
    loaded l = {0};
    plan p;
    snprintf(path, sizeof path, "%s/data/packing/%c.1048576.csv", harness_shared(), name);
    FILE *file = fopen(path, "rb");
    if (file == NULL) SKIP("no shared packing problems beside this checkout");
    fclose(file);
    recording_init(&l.record, 0);
    CHECK_OK(recording_read(&l.record, path, KIND_MINIMALLOC, NULL));
    build(&l);
    CHECK_OK(plan_build(&p, &l.steps, 10000000));
    check_valid(&p);
    CHECK(p.height_bytes <= MIB * 140 / 100);
    CHECK(p.height_bytes <= greedy_height(&p, false) && p.height_bytes <= greedy_height(&p, true));
    plan_free(&p);
    unload(&l);
  }
}

TEST_MAIN
