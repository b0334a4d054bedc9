/* Replay must be exact: every segment and every address of recorded runs, the path at a limit, and
 * the smallest limit, which must hold at each step above it. */
#include "replay/replay.h"

#include <stdio.h>
#include <stdlib.h>

#include "harness.h"
#include "recordings/recording_file.h"

typedef struct loaded {
  recording record;
  steps steps;
  replay_options options;
} loaded;

static void load(loaded *l, const char *path) {
  recording_init(&l->record, 0);
  CHECK_OK(recording_read(&l->record, path, KIND_AUTO, NULL));
  CHECK_OK(steps_build(&l->steps, &l->record, steps_main_device(&l->record)));
  l->options = REPLAY_OPTIONS_INIT;
  steps_settings(&l->options.settings, &l->record);
}

static void unload(loaded *l) {
  steps_free(&l->steps);
  recording_free(&l->record);
}

static const char *shared_path(const char *name) {
  static char path[512];
  if (harness_shared() == NULL) SKIP("no shared recordings beside this checkout");
  snprintf(path, sizeof path, "%s/data/%s.pickle.gz", harness_shared(), name);
  FILE *file = fopen(path, "rb");
  if (file == NULL) SKIP("no %s among the shared recordings", name);
  fclose(file);
  return path;
}

static double gib(uint64_t bytes) {
  return (double)bytes / (1 << 30);
}

/* Compares with a measurement, which has three decimals of a GiB. */
static void check_gib(uint64_t bytes, double expected, const char *what) {
  double off = gib(bytes) - expected;
  if (off < -0.0006 || off > 0.0006)
    FAIL("%s: %.4f GiB, measured %.3f", what, gib(bytes), expected);
}

typedef struct recorded {
  const char *name;
  double reserved_gib; /* peak, as PyTorch reported it; 0: unknown */
  double limit_gib;    /* 0: none */
  uint64_t retries;
} recorded;

static const recorded recordings[] = {
    {"snapshots/gpt_varlen", 46.623, 0, 0},
    {"snapshots/gpt_varlen_limit36.5", 36.111, 36.5, 1},
    {"snapshots/gpt_varlen_expandable", 30.416, 0, 0},
    {"snapshots/gpt_varlen_expandable_limit33.5", 33.326, 33.5, 1},
    {"snapshots/generate", 3.703, 0, 0},
    {"snapshots/generate_expandable", 2.625, 0, 0},
    {"snapshots/t5_seq2seq", 15.256, 0, 0},
    {"snapshots/oom_gpt_15gib_stacks", 14.955, 15, 2},
    {"causes/batch_too_big", 0, 0, 0},
    {"causes/cache_held", 0, 0, 0},
    {"causes/eval_batch_bigger", 0, 0, 0},
    {"causes/fragmentation", 0, 0, 0},
    {"causes/graph_kept", 0, 0, 0},
    {"causes/leak", 0, 0, 0},
    {"causes/loaded_twice", 0, 0, 0},
    {"causes/no_grad_missing", 0, 0, 0},
    {"causes/one_spike", 0, 0, 0},
    {"causes/optimizer_state", 0, 0, 0},
    {"causes/other_process", 0, 0, 0},
    {"causes/outside_framework", 0, 0, 0},
    {"causes/weights_too_big", 0, 0, 0},
};

static const policy_ops *own_policy(const loaded *l) {
  return steps_expandable(&l->record) ? &policy_torch_expandable : &policy_torch_default;
}

static void check_exact(const loaded *l, const recorded *want, replay_result *out) {
  CHECK_OK(replay_check(out, &l->steps, own_policy(l), &l->options));
  if (out->segment_mismatches + out->address_mismatches > 0)
    FAIL("%s: %" PRIu64 " of %" PRIu64 " segment events and %" PRIu64 " of %" PRIu64
         " addresses differ",
         want->name, out->segment_mismatches, out->segments_checked, out->address_mismatches,
         out->addresses_checked);
  CHECK(out->addresses_checked == l->steps.alloc_count && out->segments_checked > 0);
  if (want->reserved_gib != 0)
    check_gib(out->stats.peak_reserved_bytes, want->reserved_gib, want->name);
}

/* Replays once with the recording as the driver. If a limit is known, once more with only the limit
 * and made-up addresses: it must run out, free and retry where PyTorch did. */
static uint64_t check_recording(const recorded *want, const char *path) {
  loaded l;
  replay_result r, plain;
  load(&l, path);
  check_exact(&l, want, &r);
  uint64_t checked = r.segments_checked + r.addresses_checked;
  if (want->limit_gib != 0) {
    l.options.limit_bytes = (uint64_t)(want->limit_gib * (1 << 30));
    check_exact(&l, want, &r);
    CHECK_U64(r.stats.retries, want->retries);
    CHECK(r.finishes == (strstr(want->name, "oom") == NULL));
    CHECK_OK(replay_run(&plain, &l.steps, own_policy(&l), &l.options));
    CHECK(plain.finishes == r.finishes);
    CHECK_U64(plain.failed_at_event, r.failed_at_event);
  }
  unload(&l);
  return checked;
}

TEST(every_shared_recording_is_repeated_exactly)
{
  uint64_t checked = 0;
  for (size_t i = 0; i < sizeof recordings / sizeof recordings[0]; i++)
    checked += check_recording(&recordings[i], shared_path(recordings[i].name));
  harness_note("%" PRIu64 " segment events and addresses, none differ", checked);
}

TEST(recordings_the_project_carries_are_repeated_exactly)
{
  static const recorded carried[] = {{"gpt_varlen_limit36.5", 36.111, 36.5, 1},
                                     {"gpt_varlen_expandable", 30.416, 0, 0},
                                     {"oom_gpt_15gib_stacks", 14.955, 15, 2},
                                     {"fragmentation", 0, 0, 0},
                                     {"leak", 0, 0, 0}};
  for (size_t i = 0; i < sizeof carried / sizeof carried[0]; i++) {
    char name[128];
    snprintf(name, sizeof name, "%s.pickle.gz", carried[i].name);
    check_recording(&carried[i], harness_data(name));
  }
}

/* One loop under many settings and limits, with a second stream and empty_cache, recorded on an
 * H200 by tests/gpu/record_torch.py; the figures are PyTorch's own. */
typedef struct loop_run {
  const char *name;
  uint64_t limit_bytes, reserved_bytes, retries;
  bool fails;
} loop_run;

static const loop_run loop_runs[] = {
    {"plain", 0, 3091202048, 0, false},
    {"limited", 2048917504, 2023751680, 4, false},
    {"split_limited", 1976565760, 1975517184, 8, false},
    {"rounded_list", 0, 2692743168, 0, false},
    {"collected", 2286944256, 2162163712, 0, false},
    {"collected_split", 2195718144, 1937768448, 0, false},
    {"expandable_limited", 1884291072, 1883242496, 3, true},
    {"expandable_rounded", 2104492032, 1967128576, 1, false},
    {"fails", 1646264320, 1612709888, 1, true},
    {"expandable_fails", 1646264320, 1610612736, 1, true},
};

static void load_loop(loaded *l, const char *name) {
  char file[128];
  snprintf(file, sizeof file, "loop/%s.pickle.gz", name);
  load(l, harness_data(file));
}

TEST(settings_limits_streams_and_emptied_caches_are_repeated_exactly)
{
  for (size_t i = 0; i < sizeof loop_runs / sizeof loop_runs[0]; i++) {
    const loop_run *want = &loop_runs[i];
    loaded l;
    replay_result r;
    load_loop(&l, want->name);
    /* Garbage collection depends on the limit, so without one nothing is known. */
    bool known = l.options.settings.gc_threshold == 0;
    if (known) check_exact(&l, &(recorded){want->name, 0, 0, 0}, &r);
    if (want->limit_bytes != 0) l.options.limit_bytes = want->limit_bytes;
    check_exact(&l, &(recorded){want->name, 0, 0, 0}, &r);
    CHECK_U64(r.stats.peak_reserved_bytes, want->reserved_bytes);
    CHECK_U64(r.stats.retries, want->retries);
    CHECK(r.finishes == !want->fails);
    unload(&l);
  }
}

/* The check must detect other settings than those of the run. */
TEST(the_wrong_settings_do_not_pass_the_check)
{
  static const char *const wrong[][2] = {{"split_limited", "max_split_size_mb:64"},
                                         {"rounded_list", "roundup_power2_divisions:2"},
                                         {"plain", "max_split_size_mb:32"},
                                         {"collected", "garbage_collection_threshold:0.8"}};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    loaded l;
    replay_result r;
    load_loop(&l, wrong[i][0]);
    CHECK_OK(policy_settings_parse(&l.options.settings, wrong[i][1]));
    for (size_t k = 0; k < sizeof loop_runs / sizeof loop_runs[0]; k++)
      if (strcmp(loop_runs[k].name, wrong[i][0]) == 0 && loop_runs[k].limit_bytes != 0)
        l.options.limit_bytes = loop_runs[k].limit_bytes;
    CHECK_OK(replay_check(&r, &l.steps, own_policy(&l), &l.options));
    CHECK(r.segment_mismatches > 0 && r.address_mismatches > 0);
    unload(&l);
  }
}

static void check_within(uint64_t bytes, uint64_t measured, double part, const char *what) {
  double off = (double)bytes / (double)measured - 1;
  if (off < -part || off > part)
    FAIL("%s: %.4f GiB, %.4f on the device: %+.1f%%", what, gib(bytes), gib(measured), off * 100);
}

/* Peaks of the driver's own pool (tests/gpu/record_async.py) and of PyTorch on it
 * (record_torch.py).
 */
TEST(cuda_async_reserves_what_the_driver_reserved)
{
  loaded l;
  replay_result r;
  load(&l, harness_data("gpt_varlen_expandable.pickle.gz"));
  CHECK_OK(replay_run(&r, &l.steps, &policy_cuda_async, &l.options));
  CHECK_U64(r.stats.peak_reserved_bytes, UINT64_C(954) << 25); /* 29.8125 GiB */
  unload(&l);
  load_loop(&l, "plain");
  l.options.limit_bytes = POLICY_NO_LIMIT;
  CHECK_OK(replay_run(&r, &l.steps, &policy_cuda_async, &l.options));
  check_within(r.stats.peak_reserved_bytes, 2415919104, 0.03, "the loop under PyTorch's backend");
  unload(&l);
}

/* JAX 0.11 on an H200, its allocator growing as needed (tests/gpu/record_bfc.py): what it held
 * at the end. The training loop is its allocator's own log; the arrays' log began when it held 1
 * GiB. */
TEST(bfc_holds_what_jax_held)
{
  static const struct {
    const char *file;
    uint64_t pool_bytes;
  } runs[] = {{"loop/train.csv", 2149580800}, {"loop/arrays.csv", 8587837440}};
  for (size_t i = 0; i < 2; i++) {
    loaded l;
    replay_result r;
    load(&l, harness_data(runs[i].file));
    CHECK_OK(replay_run(&r, &l.steps, &policy_bfc, &l.options));
    check_within(r.stats.peak_reserved_bytes, runs[i].pool_bytes, 0.03, runs[i].file);
    unload(&l);
  }
}

/* Recording is often switched on after the model was loaded. */
TEST(blocks_live_before_a_late_recording_are_allocated_first)
{
  loaded l;
  replay_result whole, late;
  load_loop(&l, "plain");
  CHECK_OK(replay_run(&whole, &l.steps, &policy_torch_default, &l.options));
  uint64_t end_live = l.steps.end_live_bytes;
  steps_free(&l.steps);
  size_t cut = l.record.event_count / 2;
  memmove(l.record.events, l.record.events + cut,
          (l.record.event_count - cut) * sizeof *l.record.events);
  l.record.event_count -= cut;
  CHECK_OK(steps_build(&l.steps, &l.record, 0));
  CHECK(l.steps.initial_blocks > 0);
  CHECK_U64(l.steps.unknown_frees, 0);
  CHECK_U64(l.steps.end_live_bytes, end_live);
  CHECK_OK(replay_run(&late, &l.steps, &policy_torch_default, &l.options));
  CHECK(late.finishes && late.peak_live_bytes <= whole.peak_live_bytes);
  CHECK(late.stats.peak_reserved_bytes >= late.peak_live_bytes);
  unload(&l);
}

/* ---- synthetic recordings ---- */

#define MIB UINT64_C(1048576)

static void add(recording *r, event_kind kind, uint64_t addr, uint64_t bytes, uint64_t stream) {
  event e = {.kind = (uint8_t)kind, .addr = addr, .bytes = bytes};
  CHECK_OK(recording_add_event(r, &e, &(origin){.stream = stream}));
}

static void build(loaded *l) {
  CHECK_OK(steps_build(&l->steps, &l->record, 0));
  l->options = REPLAY_OPTIONS_INIT;
}

/* Makes a random program; `addr` is only an identifier here. */
static void random_program(recording *r, uint64_t seed, int count, uint64_t largest) {
  uint64_t live[64] = {0}, next = 4096;
  for (int i = 0; i < count; i++) {
    uint64_t x = harness_random(&seed);
    uint64_t *slot = &live[x % 64];
    if (*slot != 0) {
      add(r, EVENT_FREE, *slot, 0, 0);
      *slot = 0;
    } else {
      uint64_t bits = (x >> 8) % 28;
      uint64_t bytes = 1 + (x >> 20) % (UINT64_C(1) << bits) % largest;
      add(r, EVENT_ALLOC, *slot = next++ * 512, bytes, (x >> 60) % 3);
    }
  }
}

/* Blocks never overlap and stay inside the reserved memory, under every policy. */
TEST(live_blocks_never_overlap_under_any_policy)
{
  for (size_t k = 0; policy_at(k) != NULL; k++) {
    loaded l = {0};
    recording_init(&l.record, 0);
    random_program(&l.record, 7 + k, (int)harness_rounds(20000, 4000), 200 * MIB);
    build(&l);
    const policy_ops *ops = policy_at(k);
    policy_options o = {.limit_bytes = UINT64_C(3) << 30,
                        .limit_in_framework = true,
                        .settings = POLICY_SETTINGS_INIT,
                        .lanes = l.steps.lanes,
                        .lane_count = l.steps.lane_count,
                        .id_count = l.steps.id_count};
    policy *p;
    CHECK_OK(ops->open(&p, &o));
    uint64_t *from = calloc(l.steps.id_count, sizeof *from), refused = 0;
    uint64_t *upto = calloc(l.steps.id_count, sizeof *upto);
    for (size_t i = 0; i < l.steps.count; i++) {
      const step *s = &l.steps.list[i];
      if (s->kind == STEP_FREE) {
        CHECK(ops->release(p, s->id) == POLICY_DONE);
        upto[s->id] = 0;
        continue;
      }
      policy_answer answer = ops->alloc(p, s->id, s->bytes, s->lane);
      CHECK(answer != POLICY_BROKEN);
      refused += answer == POLICY_FULL;
      if (answer == POLICY_FULL) continue;
      from[s->id] = ops->address(p, s->id);
      upto[s->id] = from[s->id] + s->bytes;
      for (uint32_t j = 0; j < l.steps.id_count; j++)
        if (j != s->id && upto[j] != 0 && from[j] < upto[s->id] && from[s->id] < upto[j])
          FAIL("%s: step %zu puts a block over a live one", ops->name, i);
    }
    policy_stats stats;
    ops->stats(p, &stats);
    CHECK(stats.peak_reserved_bytes <= o.limit_bytes + 20 * MIB);
    ops->close(p);
    free(from);
    free(upto);
    unload(&l);
    (void)refused;
  }
}

TEST(the_smallest_limit_finishes_at_every_step_above_it_and_not_below)
{
  for (size_t k = 0; policy_at(k) != NULL; k++) {
    for (uint64_t seed = 1; seed <= harness_rounds(3, 1); seed++) {
      loaded l = {0};
      recording_init(&l.record, 0);
      random_program(&l.record, seed * 31, 1500, 40 * MIB);
      build(&l);
      replay_result r = {0}, at;
      CHECK_OK(replay_min_limit(&r, &l.steps, policy_at(k), &l.options));
      CHECK(r.min_limit_bytes >= l.steps.peak_live_bytes);
      l.options.limit_bytes = POLICY_NO_LIMIT;
      CHECK_OK(replay_run(&at, &l.steps, policy_at(k), &l.options));
      uint64_t top = at.stats.peak_reserved_bytes + 64 * MIB;
      for (uint64_t limit = r.min_limit_bytes; limit <= top && r.min_limit_proved;
           limit += 2 * MIB) {
        l.options.limit_bytes = limit;
        CHECK_OK(replay_run(&at, &l.steps, policy_at(k), &l.options));
        if (!at.finishes)
          FAIL("%s: fails at %" PRIu64 " MiB, above the %" PRIu64 " MiB found", policy_at(k)->name,
               limit >> 20, r.min_limit_bytes >> 20);
      }
      l.options.limit_bytes = r.min_limit_bytes - 2 * MIB;
      CHECK_OK(replay_run(&at, &l.steps, policy_at(k), &l.options));
      CHECK(!at.finishes);
      unload(&l);
    }
  }
}

TEST(a_request_the_run_was_refused_has_to_fit_and_is_not_kept)
{
  loaded l = {0};
  recording_init(&l.record, 0);
  add(&l.record, EVENT_ALLOC, 512, 100 * MIB, 0);
  add(&l.record, EVENT_FAIL, 0, 300 * MIB, 0);
  add(&l.record, EVENT_ALLOC, 1024, 300 * MIB, 0);
  build(&l);
  replay_result r;
  l.options.limit_bytes = 400 * MIB;
  CHECK_OK(replay_run(&r, &l.steps, &policy_torch_default, &l.options));
  CHECK(r.finishes);
  CHECK_U64(r.peak_live_bytes, 400 * MIB);
  l.options.limit_bytes = 399 * MIB;
  CHECK_OK(replay_run(&r, &l.steps, &policy_torch_default, &l.options));
  CHECK(!r.finishes);
  CHECK_U64(r.failed_at_event, 1);
  CHECK_U64(r.failed_bytes, 300 * MIB);
  unload(&l);
}

TEST(frees_of_unknown_addresses_and_doubled_ones_are_counted)
{
  loaded l = {0};
  recording_init(&l.record, 0);
  add(&l.record, EVENT_FREE, 4096, 0, 0);
  add(&l.record, EVENT_ALLOC, 512, MIB, 0);
  add(&l.record, EVENT_ALLOC, 512, 2 * MIB, 0);
  add(&l.record, EVENT_FREE, 512, 0, 0);
  add(&l.record, EVENT_FREE, 512, 0, 0);
  build(&l);
  CHECK_U64(l.steps.initial_blocks, 1); /* the first free: the block existed before */
  CHECK_U64(l.steps.unknown_frees, 1);
  CHECK_U64(l.steps.doubled_addresses, 1);
  CHECK_U64(l.steps.end_live_bytes, 0);
  unload(&l);
}

TEST(sizes_no_device_has_do_not_fit_and_break_nothing)
{
  static const uint64_t sizes[] = {UINT64_MAX, UINT64_MAX - 511, UINT64_C(1) << 63,
                                   (UINT64_C(1) << 62) + 1, 0};
  for (size_t k = 0; policy_at(k) != NULL; k++)
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
      loaded l = {0};
      recording_init(&l.record, 0);
      add(&l.record, EVENT_ALLOC, 512, sizes[i], 0);
      build(&l);
      replay_result r;
      CHECK_OK(replay_run(&r, &l.steps, policy_at(k), &l.options));
      CHECK(r.finishes == (sizes[i] == 0));
      unload(&l);
    }
}

/* Memory that another stream still uses is reusable only after the retry path has waited for it. */
TEST(pending_blocks_are_waited_for_only_on_the_retry_path)
{
  loaded l = {0};
  recording_init(&l.record, 0);
  add(&l.record, EVENT_ALLOC, 512, 100 * MIB, 0);
  add(&l.record, EVENT_FREE_REQUESTED, 512, 100 * MIB, 0);
  add(&l.record, EVENT_ALLOC, 1024, 100 * MIB, 0);
  add(&l.record, EVENT_FREE, 512, 100 * MIB, 0);
  build(&l);
  replay_result r;
  CHECK_OK(replay_run(&r, &l.steps, &policy_torch_default, &l.options));
  CHECK_U64(r.stats.peak_reserved_bytes, 200 * MIB);
  CHECK_U64(r.stats.retries, 0);
  l.options.limit_bytes = 150 * MIB;
  CHECK_OK(replay_run(&r, &l.steps, &policy_torch_default, &l.options));
  CHECK(r.finishes);
  CHECK_U64(r.stats.retries, 1);
  CHECK_U64(r.stats.peak_reserved_bytes, 100 * MIB);
  unload(&l);
}

/* An empty_cache call in the recorded program is repeated; the allocator freeing its own cache at a
 * limit is not. */
TEST(a_recorded_empty_cache_is_a_step_and_a_retry_is_not)
{
  loaded l = {0};
  recording_init(&l.record, 0);
  add(&l.record, EVENT_SEGMENT_ALLOC, 1 << 30, 100 * MIB, 0);
  add(&l.record, EVENT_ALLOC, 1 << 30, 100 * MIB, 0);
  add(&l.record, EVENT_FREE, 1 << 30, 100 * MIB, 0);
  add(&l.record, EVENT_SEGMENT_FREE, 1 << 30, 100 * MIB, 0);
  add(&l.record, EVENT_SEGMENT_ALLOC, 2 << 20, 20 * MIB, 0);
  add(&l.record, EVENT_ALLOC, 2 << 20, 5 * MIB, 0);
  build(&l);
  CHECK_U64(l.steps.count, 4);
  CHECK(l.steps.list[2].kind == STEP_TRIM);
  replay_result r;
  CHECK_OK(replay_check(&r, &l.steps, &policy_torch_default, &l.options));
  CHECK_U64(r.segment_mismatches + r.address_mismatches, 0);
  unload(&l);

  recording_init(&l.record, 0);
  add(&l.record, EVENT_SEGMENT_ALLOC, 1 << 30, 100 * MIB, 0);
  add(&l.record, EVENT_ALLOC, 1 << 30, 100 * MIB, 0);
  add(&l.record, EVENT_FREE, 1 << 30, 100 * MIB, 0);
  add(&l.record, EVENT_SEGMENT_FREE, 1 << 30, 100 * MIB, 0);
  add(&l.record, EVENT_SEGMENT_ALLOC, 1 << 29, 120 * MIB, 0);
  add(&l.record, EVENT_ALLOC, 1 << 29, 120 * MIB, 0);
  build(&l);
  CHECK_U64(l.steps.count, 3);
  CHECK_OK(replay_check(&r, &l.steps, &policy_torch_default, &l.options));
  CHECK_U64(r.segment_mismatches + r.address_mismatches, 0);
  CHECK_U64(r.stats.retries, 1);
  unload(&l);
}

/* The check must detect a difference. */
TEST(the_check_counts_a_moved_block_and_a_wrong_segment)
{
  loaded l = {0};
  recording_init(&l.record, 0);
  add(&l.record, EVENT_SEGMENT_ALLOC, 1 << 30, 2 * MIB, 0);
  add(&l.record, EVENT_ALLOC, 1 << 30, 1024, 0);
  add(&l.record, EVENT_ALLOC, (1 << 30) + 2048, 1024, 0);    /* would be at + 1024 */
  add(&l.record, EVENT_SEGMENT_ALLOC, 2 << 20, 22 * MIB, 0); /* would be 20 MiB */
  add(&l.record, EVENT_ALLOC, 2 << 20, 5 * MIB, 0);
  add(&l.record, EVENT_SEGMENT_ALLOC, 4 << 20, 2 * MIB, 0); /* unneeded */
  add(&l.record, EVENT_ALLOC, (1 << 30) + 1024, 1024, 0);
  build(&l);
  replay_result r;
  CHECK_OK(replay_check(&r, &l.steps, &policy_torch_default, &l.options));
  CHECK_U64(r.segment_mismatches, 2);
  CHECK_U64(r.address_mismatches, 2);
  unload(&l);
}

/* A file may contain any size: the answer is immediate, and the same from every policy. */
TEST(a_request_that_no_device_can_hold_fails_at_once_under_any_policy)
{
  for (size_t k = 0; policy_at(k) != NULL; k++) {
    loaded l = {0};
    replay_result r;
    recording_init(&l.record, 0);
    add(&l.record, EVENT_ALLOC, 1 << 20, 3 * MIB, 0);
    add(&l.record, EVENT_ALLOC, 1 << 30, UINT64_C(1) << 60, 0);
    add(&l.record, EVENT_FREE, 1 << 30, UINT64_C(1) << 60, 0);
    build(&l);
    CHECK_OK(replay_run(&r, &l.steps, policy_at(k), &l.options));
    CHECK(!r.finishes);
    CHECK_U64(r.failed_at_event, 1);
    CHECK_U64(r.failed_bytes, UINT64_C(1) << 60);
    CHECK_U64(r.peak_live_bytes, 3 * MIB);
    CHECK(r.stats.peak_reserved_bytes >= 3 * MIB && r.stats.peak_reserved_bytes <= 64 * MIB);
    CHECK_OK(replay_min_limit(&r, &l.steps, policy_at(k), &l.options));
    CHECK_U64(r.min_limit_bytes, 0);
    unload(&l);
  }
}

/* One page of 20 MiB costs what a table says; a TiB costs 52,429 times that. */
TEST(pages_of_expandable_segments_are_charged_without_a_loop)
{
  uint64_t calls[2];
  for (int large = 0; large < 2; large++) {
    loaded l = {0};
    replay_result r;
    recording_init(&l.record, 0);
    add(&l.record, EVENT_ALLOC, 1 << 30, large ? UINT64_C(1) << 40 : 20 * MIB, 0);
    build(&l);
    CHECK_OK(replay_run(&r, &l.steps, &policy_torch_expandable, &l.options));
    CHECK(r.finishes);
    calls[large] = r.stats.page_calls;
    unload(&l);
  }
  CHECK_U64(calls[0], 2 + 1);
  CHECK_U64(calls[1], 2 * 52429 + 1);
}

TEST_MAIN
