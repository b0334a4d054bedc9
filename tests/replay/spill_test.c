/* replay --spill: the recordings in the repository, on devices of many sizes. */
#include "harness.h"
#include "recordings/recording_file.h"
#include "replay/spill.h"
#include "spill_drift.h"

static const uint64_t context = UINT64_C(680) << 20;

static void load(spill_program *p, const char *name) {
  char path[64];
  recording r;
  recording_init(&r, 0);
  snprintf(path, sizeof path, "touches/%s.stow", name);
  CHECK_OK(recording_read(&r, harness_data(path), KIND_AUTO, NULL));
  CHECK_OK(spill_program_build(p, &r, 0));
  recording_free(&r);
}

static spill_result run(const spill_program *p, double gib) {
  spill_result r;
  spill_options o = {.vram_bytes = (uint64_t)(gib * 0x1p30), .context_bytes = context};
  CHECK_OK(spill_run(&r, p, &o));
  return r;
}

/* Without the scripts inside PyTorch: what the engine reaches. */
static spill_result run_pages(const spill_program *p, double gib) {
  spill_result r;
  spill_options o = {
      .vram_bytes = (uint64_t)(gib * 0x1p30), .context_bytes = context, .pages_only = true};
  CHECK_OK(spill_run(&r, p, &o));
  return r;
}

/* Limits are realistic fractions of the peak. `times`: upper bound relative to the floor, a tenth
 * above what the engine reached when this was written; shows regressions. */
static const struct {
  const char *name;
  double gib, times;
} programs[] = {{"token", 10, 1.0}, {"prompt", 10, 1.6},  {"finetune", 10, 2.5},
                {"vit", 20, 1.2},   {"vit", 12, 1.17},    {"unet", 7.2, 1.75},
                {"gan", 9.52, 1.3}, {"lora", 4.23, 2.85}, {"lstm", 6, 1.35}};

TEST(steps_take_no_longer_than_they_did)
{
  size_t step = harness_rounds(1, 6); /* a sanitizer build runs token and gan */
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i += step) {
    spill_program p;
    load(&p, programs[i].name);
    spill_result r = run_pages(&p, programs[i].gib);
    CHECK(p.how == SPILL_STEP_MARKS);
    /* The model without a spill takes as long as the program did. */
    CHECK(r.bare_ns > p.bare_ns * 99 / 100 && r.bare_ns < p.bare_ns * 101 / 100);
    double times = (double)r.steady.step_ns / (double)r.floor_ns;
    harness_note(" %s %.2f", programs[i].name, times);
    CHECK(times <= programs[i].times);
    CHECK(r.steady.step_ns <= r.stay_ns); /* never slower than not moving */
    CHECK(r.steady.step_ns >= r.bare_ns * 999 / 1000);
    spill_program_free(&p);
  }
}

/* The same, with the scripts inside PyTorch where they are enough. `least` and `most`: a tenth
 * below and above what the model gave, relative to the floor. */
TEST(the_scripts_inside_pytorch_save_the_page_calls)
{
  static const struct {
    const char *name;
    double gib, least, most;
  } scripted[] = {{"token", 10, .55, .68},   {"prompt", 10, .70, .86}, {"finetune", 10, .69, .86},
                  {"vit", 20, .72, .89},     {"vit", 12, .76, .94},    {"gan", 9.52, .75, .92},
                  {"lora", 4.23, 1.18, 1.44}};
  for (size_t i = 0; i < sizeof scripted / sizeof *scripted; i++) {
    spill_program p;
    load(&p, scripted[i].name);
    CHECK(p.torch);
    spill_result r = run(&p, scripted[i].gib);
    double times = (double)r.steady.step_ns / (double)r.floor_ns;
    harness_note(" %s %.2f", scripted[i].name, times);
    CHECK(times >= scripted[i].least && times <= scripted[i].most);
    CHECK(r.scripts.used && r.steady.exchanges == 0 && !r.engine.moving);
    CHECK_U64(r.steady.in_bytes,
              r.scripts.saved_in_bytes + r.scripts.state_bytes + r.scripts.weight_bytes);
    CHECK_U64(r.steady.out_bytes, r.scripts.saved_out_bytes + r.scripts.state_bytes);
    CHECK(r.steady.step_ns >= r.bare_ns * 999 / 1000);
    spill_program_free(&p);
  }
}

/* The same programs, with temporary blocks that are somewhere else in each step, as on a device. */
TEST(steps_whose_blocks_move_take_little_longer)
{
  enum { VARIANTS = 8 };
  static const struct {
    const char *name;
    double gib, times;
  } moving[] = {{"gan", 9.52, 1.5}, {"lora", 4.23, 3.4}, {"finetune", 10, 4.6}};
  for (size_t i = 0; i < harness_rounds(3, 1); i++) {
    spill_program p, variants[VARIANTS];
    load(&p, moving[i].name);
    for (int k = 0; k < VARIANTS; k++) drift_program(&variants[k], &p, (uint64_t)k + 1);
    for (int k = 0; k < VARIANTS; k++) variants[k].next = &variants[(k + 1) % VARIANTS];
    spill_result r;
    spill_options o = {.vram_bytes = (uint64_t)(moving[i].gib * 0x1p30),
                       .context_bytes = context,
                       .unit_bytes = UINT64_C(20) << 20};
    CHECK_OK(spill_run(&r, variants, &o));
    double times = (double)r.steady.step_ns / (double)r.floor_ns;
    harness_note(" %s %.2f", moving[i].name, times);
    CHECK(times <= moving[i].times);
    CHECK(r.engine.forecast_hits * 100 >= r.engine.launches * 90);
    for (int k = 0; k < VARIANTS; k++) spill_program_free(&variants[k]);
    spill_program_free(&p);
  }
}

TEST(no_plan_beats_beladys_bound)
{
  static const char *const names[] = {"prompt", "lora", "gan"};
  for (size_t i = 0; i < harness_rounds(3, 1); i++) {
    spill_program p;
    load(&p, names[i]);
    for (double gib = 4; gib < 12; gib += 3) {
      spill_result r = run_pages(&p, gib);
      if (!r.fits && r.engine.moving && r.steady.in_place_ns == 0)
        CHECK(r.steady.in_bytes * 101 / 100 >= r.bound_in_bytes);
    }
    spill_program_free(&p);
  }
}

TEST(more_vram_is_never_much_slower)
{
  static const char *const names[] = {"token", "prompt", "lora", "gan", "unet"};
  for (size_t i = 0; i < harness_rounds(5, 2); i++) {
    spill_program p;
    load(&p, names[i]);
    uint64_t best = UINT64_MAX;
    for (double gib = 3; gib <= 18; gib += 3) {
      spill_result r = run(&p, gib);
      uint64_t step = r.fits ? r.bare_ns : r.steady.step_ns;
      CHECK(step <= best + best / 5);
      if (step < best) best = step;
    }
    spill_result all = run(&p, 40);
    CHECK(all.fits && all.steady.step_ns <= all.bare_ns * 101 / 100);
    spill_program_free(&p);
  }
}

TEST(the_same_run_gives_the_same_result)
{
  spill_program p;
  load(&p, "gan");
  spill_result a = run(&p, 9), b = run(&p, 9);
  CHECK_U64(a.steady.step_ns, b.steady.step_ns);
  CHECK_U64(a.steady.in_bytes, b.steady.in_bytes);
  CHECK_U64(a.bound_in_bytes, b.bound_in_bytes);
  spill_program_free(&p);
}

static void add(recording *r, event_kind kind, uint64_t time_ns, uint64_t addr, uint64_t bytes) {
  event e = {.kind = kind, .time_ns = time_ns, .addr = addr, .bytes = bytes};
  CHECK_OK(recording_add_event(r, &e, &(origin){.thread = 1}));
}

/* Adds a launch of a kernel that takes 400 us and has these words. */
static void add_kernel(recording *r, uint64_t time_ns, const uint64_t *words, int count) {
  add(r, EVENT_LAUNCH, time_ns, words[0], 400000);
  for (int i = 1; i < count; i++) add(r, EVENT_TOUCH, time_ns, words[i], 0);
}

/* A pool that is much larger than what is used of it, with 24 layers of 64 MiB: weights, their
 * gradients and what the backward pass needs, each named by one word, and one launch that updates
 * all of them. No more than what is missing has to come in, however large the pool is. */
TEST(a_pool_costs_what_is_used_of_it)
{
  enum { LAYERS = 24 };
  const uint64_t base = UINT64_C(1) << 40, buffer = UINT64_C(64) << 20;
  uint64_t steps[2];
  for (uint64_t gib = 6, i = 0; gib <= 30; gib += 24, i++) {
    recording r;
    spill_program p;
    uint64_t now = 0, all[2 * LAYERS], temp = base + 3 * LAYERS * buffer;
    recording_init(&r, 0);
    add(&r, EVENT_ALLOC, 0, base, gib << 30);
    for (int step = 0; step < 4; step++) {
      for (uint64_t k = 0; k < LAYERS; k++) {
        uint64_t weight = base + k * buffer, kept = weight + LAYERS * buffer;
        add_kernel(&r, now += 4000, (uint64_t[]){weight, kept, temp}, 3);
      }
      for (uint64_t k = LAYERS; k-- > 0;) {
        uint64_t weight = base + k * buffer, kept = weight + LAYERS * buffer;
        all[2 * k] = weight, all[2 * k + 1] = kept + LAYERS * buffer;
        add_kernel(&r, now += 4000, (uint64_t[]){kept, temp, all[2 * k + 1]}, 3);
        add_kernel(&r, now += 4000, (uint64_t[]){temp, weight}, 2);
      }
      add_kernel(&r, now += 4000, all, 2 * LAYERS);
    }
    CHECK_OK(spill_program_build(&p, &r, 0));
    /* 73 buffers, and what the last words are apart. */
    uint64_t used = p.peak_live_bytes;
    CHECK(gib == 6 ? used == gib << 30 : used >= 73 * buffer && used <= 76 * buffer);
    CHECK_U64(used + p.unused_bytes, gib << 30);
    spill_result result = run(&p, 5);
    harness_note(" %llu GiB %.2f", (unsigned long long)gib,
                 (double)result.steady.step_ns / (double)result.bare_ns);
    CHECK(result.steady.in_bytes <= UINT64_C(3) << 29);
    CHECK_U64(result.steady.in_place_ns, 0);
    steps[i] = result.steady.step_ns;
    spill_program_free(&p);
    recording_free(&r);
  }
  CHECK(steps[1] <= steps[0] + steps[0] / 20);
}

/* The pool of JAX is mapped memory in which the recording has no blocks: it is one block. A segment
 * that contains blocks is not. */
TEST(memory_without_blocks_is_a_block)
{
  enum { BUFFERS = 40 };
  const uint64_t pool = UINT64_C(1) << 40, mapped = UINT64_C(2) << 40, buffer = UINT64_C(64) << 20;
  recording r;
  spill_program p;
  recording_init(&r, 0);
  add(&r, EVENT_SEGMENT_MAP, 0, pool, UINT64_C(3) << 30);
  add(&r, EVENT_SEGMENT_ALLOC, 0, mapped, UINT64_C(1) << 30);
  add(&r, EVENT_ALLOC, 0, mapped + buffer, buffer);
  for (uint64_t i = 0; i < 5 * BUFFERS; i++)
    add_kernel(&r, 1000 * (i + 1), (uint64_t[]){pool + i % BUFFERS * buffer, mapped + buffer}, 2);
  CHECK_OK(spill_program_build(&p, &r, 0));
  CHECK_U64(p.initial_count, 2);
  CHECK_U64(p.peak_live_bytes, (UINT64_C(3) << 30) + buffer);
  spill_result result = run(&p, 2.5);
  CHECK(!result.fits && result.steady.in_bytes > 0);
  spill_program_free(&p);
  recording_free(&r);
}

/* Without marks, the step is the part that repeats. */
TEST(a_step_is_found_by_its_launches)
{
  recording r;
  spill_program p;
  recording_init(&r, 0);
  CHECK_STATUS(spill_program_build(&p, &r, 0), STOW_ERR_NOT_FOUND);
  CHECK_MESSAGE("--touches");
  spill_program_free(&p);
  for (uint64_t i = 0; i < 40; i++) add(&r, EVENT_ALLOC, 1, (i + 1) << 28, 1 << 28);
  for (uint64_t i = 0; i < 5 * 40; i++) {
    add(&r, EVENT_LAUNCH, 1000 * (i + 1), (i % 40 + 1) << 28, 500);
    add(&r, EVENT_TOUCH, 1000 * (i + 1), ((i + 3) % 40 + 1) << 28, 0);
  }
  CHECK_OK(spill_program_build(&p, &r, 0));
  CHECK(p.how == SPILL_STEP_PERIOD);
  CHECK_U64(p.launch_count, 40);
  CHECK_U64(p.word_count, 80);
  CHECK_U64(p.initial_count, 40);
  CHECK_U64(p.peak_live_bytes, UINT64_C(40) << 28);
  spill_program_free(&p);
  recording_free(&r);
}

TEST_MAIN
