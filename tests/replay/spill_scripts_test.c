/* replay --spill of PyTorch programs: small steps whose bytes and times can be computed by hand. */
#include "harness.h"
#include "recordings/recording.h"
#include "replay/spill.h"

#define MIB             (UINT64_C(1) << 20)
#define COPY_NS_PER_MIB (19.4e6 / 1024)
#define BOTH_NS_PER_MIB (21.4e6 / 1024)

enum { STEPS = 3, BLOCKS_MAX = 64 };

/* ---- recordings ---- */

typedef struct script {
  recording r;
  uint64_t now_ns, next_addr;
} script;

static void add(script *s, event_kind kind, uint64_t addr, uint64_t bytes) {
  event e = {.kind = kind, .time_ns = s->now_ns, .addr = addr, .bytes = bytes};
  CHECK_OK(recording_add_event(&s->r, &e, &(origin){.thread = 1}));
}

static void begin(script *s, bool torch) {
  *s = (script){.next_addr = UINT64_C(1) << 40};
  recording_init(&s->r, 0);
  if (torch) CHECK_OK(recording_add_fact(&s->r, "framework", "pytorch"));
}

/* Allocates blocks that outlive the steps. */
static uint64_t reserve(script *s, uint64_t bytes) {
  uint64_t addr = s->next_addr;
  s->next_addr += (bytes + 64 * MIB - 1) / (64 * MIB) * 64 * MIB;
  return addr;
}

static void launch(script *s, uint64_t device_ns, const uint64_t *addrs, size_t count) {
  s->now_ns += 1000;
  add(s, EVENT_LAUNCH, addrs[0], device_ns);
  for (size_t i = 1; i < count; i++) add(s, EVENT_TOUCH, addrs[i], 0);
}

static spill_result finish(script *s, uint64_t vram_mib, bool pages_only) {
  spill_program p;
  spill_result result;
  CHECK_OK(spill_program_build(&p, &s->r, 0));
  CHECK(p.how == SPILL_STEP_PERIOD);
  spill_options o = {.vram_bytes = vram_mib * MIB, .pages_only = pages_only};
  CHECK_OK(spill_run(&result, &p, &o));
  spill_program_free(&p);
  return result;
}

/* A network of `layers`: each has a weight, saves a tensor, and has a gradient. With `state`, an
 * update at the end uses twice the bytes of the weights. */
typedef struct network {
  uint32_t layers;
  uint64_t weight_mib, saved_mib, kernel_ns;
  bool state, frozen;
} network;

static void record(script *s, const network *n) {
  uint64_t start = reserve(s, MIB), weights[BLOCKS_MAX], states[BLOCKS_MAX], saved[BLOCKS_MAX],
           gradients[BLOCKS_MAX], all[3 * BLOCKS_MAX];
  size_t count = 0;
  add(s, EVENT_ALLOC, start, MIB);
  for (uint32_t i = 0; i < n->layers; i++) {
    add(s, EVENT_ALLOC, weights[i] = reserve(s, n->weight_mib * MIB), n->weight_mib * MIB);
    states[i] = reserve(s, 2 * n->weight_mib * MIB);
    if (n->state) add(s, EVENT_ALLOC, states[i], 2 * n->weight_mib * MIB);
    saved[i] = reserve(s, n->saved_mib * MIB);
    gradients[i] = reserve(s, n->weight_mib * MIB);
    all[count++] = weights[i];
    all[count++] = gradients[i];
    if (n->state) all[count++] = states[i];
  }
  for (uint32_t step = 0; step < STEPS; step++) {
    launch(s, 1000, &start, 1);
    for (uint32_t i = 0; i < n->layers; i++) {
      add(s, EVENT_ALLOC, saved[i], n->saved_mib * MIB);
      launch(s, n->kernel_ns, (uint64_t[]){weights[i], saved[i]}, 2);
    }
    for (uint32_t i = n->layers; i-- > 0;) {
      if (!n->frozen) add(s, EVENT_ALLOC, gradients[i], n->weight_mib * MIB);
      launch(s, n->kernel_ns, (uint64_t[]){saved[i], weights[i], n->frozen ? start : gradients[i]},
             3);
      add(s, EVENT_FREE, saved[i], n->saved_mib * MIB);
    }
    if (!n->frozen) launch(s, n->kernel_ns, all, count);
    for (uint32_t i = 0; i < n->layers && !n->frozen; i++)
      add(s, EVENT_FREE, gradients[i], n->weight_mib * MIB);
  }
}

static spill_result simulate(const network *n, uint64_t vram_mib, bool torch, bool pages_only) {
  script s;
  begin(&s, torch);
  record(&s, n);
  spill_result result = finish(&s, vram_mib, pages_only);
  recording_free(&s.r);
  return result;
}

/* ---- saved tensors ---- */

/* 40 layers that save 64 MiB each: 2560 MiB, and 40 MiB of weights. Of 1920 MiB, the target is
 * 23/24: 1840. So 760 MiB have to leave and come back, and at most an eighth of the target, 230
 * MiB, leaves ahead of that. */
static const network saving = {.layers = 40, .weight_mib = 1, .saved_mib = 64, .kernel_ns = 1000};
enum { SAVING_MIB = 1920, TARGET_MIB = 1840, LEAVES_MIB = 2560 + 41 - TARGET_MIB };

TEST(a_slow_bus_takes_as_long_as_the_copies)
{
  spill_result r = simulate(&saving, SAVING_MIB, true, false);
  uint64_t out = r.scripts.saved_out_bytes / MIB, in = r.scripts.saved_in_bytes / MIB;
  CHECK(r.scripts.used);
  CHECK(out >= LEAVES_MIB && out <= LEAVES_MIB + TARGET_MIB / 8 + 64);
  CHECK_U64(in, out);
  CHECK_U64(r.scripts.state_bytes + r.scripts.weight_bytes, 0);
  /* What has to leave does so before the turn, and comes back after it. */
  double ns = (double)r.steady.step_ns;
  CHECK(ns >= 2 * LEAVES_MIB * COPY_NS_PER_MIB);
  CHECK(ns <= (double)(in + out) * BOTH_NS_PER_MIB + (double)r.bare_ns);
  /* The host takes 20 us per tensor at most. */
  CHECK(r.scripts.saved_wait_ns + r.bare_ns + 40 * 20000 >= r.steady.step_ns);
}

TEST(a_fast_bus_is_hidden_behind_the_kernels)
{
  network n = saving;
  n.kernel_ns = 10000000; /* 64 MiB cross the bus in 1.2 ms */
  spill_result r = simulate(&n, SAVING_MIB, true, false);
  CHECK(r.scripts.used && r.scripts.saved_out_bytes >= LEAVES_MIB * MIB);
  CHECK(r.steady.step_ns <= r.bare_ns * 102 / 100);
  CHECK(r.scripts.saved_wait_ns <= r.bare_ns / 50);
}

/* ---- state ---- */

/* 16 weights of 64 MiB and 2 GiB of state: the update has 16 parts, each with 128 MiB of state. Its
 * copies run in both directions; only the first part in and the last one out have the bus alone. */
TEST(state_crosses_the_bus_once_in_each_direction)
{
  network n = {.layers = 16, .weight_mib = 64, .saved_mib = 2, .kernel_ns = 50000, .state = true};
  spill_result r = simulate(&n, 3072, true, false);
  CHECK(r.scripts.used);
  CHECK_U64(r.scripts.state_bytes, 2048 * MIB);
  CHECK_U64(r.scripts.saved_out_bytes + r.scripts.weight_bytes, 0);
  CHECK_U64(r.steady.in_bytes, 2048 * MIB);
  CHECK_U64(r.steady.out_bytes, 2048 * MIB);
  double least = 17 * 128 * COPY_NS_PER_MIB, most = 18 * 128 * BOTH_NS_PER_MIB + 50000;
  double update = (double)(r.steady.step_ns - r.bare_ns + n.kernel_ns);
  CHECK(update >= least && update <= most);
}

/* With space for all state and saved tensors beside it, nothing is passed in parts. */
TEST(state_that_fits_beside_saved_tensors_stays)
{
  network n = {.layers = 16, .weight_mib = 64, .saved_mib = 256, .kernel_ns = 50000, .state = true};
  spill_result r = simulate(&n, 7168, true, false);
  CHECK(r.scripts.used);
  CHECK_U64(r.scripts.state_bytes, 0);
  CHECK(r.scripts.saved_out_bytes > 0);
}

/* ---- weights ---- */

/* 32 weights of 64 MiB, each used by one kernel: 2048 MiB and 1 MiB beside them. 1024 MiB of vram
 * leave 896 for pages. A twelfth of the limit, 85 MiB, holds one copy ahead beside the one in use.
 * So 2049 + 128 - 896 MiB are on the host. */
static void record_inference(script *s, uint64_t kernel_ns) {
  uint64_t start = reserve(s, MIB), weights[32];
  add(s, EVENT_ALLOC, start, MIB);
  for (size_t i = 0; i < 32; i++) add(s, EVENT_ALLOC, weights[i] = reserve(s, 64 * MIB), 64 * MIB);
  for (uint32_t step = 0; step < STEPS; step++)
    for (size_t i = 0; i < 32; i++) launch(s, kernel_ns, (uint64_t[]){weights[i], start}, 2);
}

TEST(weights_on_the_host_cross_the_bus_once_per_use)
{
  static const uint64_t kernels[] = {40000, 4000000};
  const uint64_t host = 2049 + 128 - 896;
  for (size_t i = 0; i < 2; i++) {
    script s;
    begin(&s, true);
    record_inference(&s, kernels[i]);
    spill_result r = finish(&s, 1024, false);
    CHECK(r.scripts.used);
    CHECK(r.scripts.weight_bytes / MIB >= host - 1 && r.scripts.weight_bytes / MIB <= host);
    CHECK_U64(r.steady.out_bytes, 0);
    double copies = (double)host * COPY_NS_PER_MIB, step = (double)r.steady.step_ns;
    if (i == 0) CHECK(step >= copies * .999 && step <= copies * 1.05 + (double)r.bare_ns);
    if (i == 1) CHECK(step <= (double)r.bare_ns * 1.02);
    recording_free(&s.r);
  }
}

/* Rows of a table of 512 MiB are read in place, so the weights get its vram. */
TEST(tables_leave_before_weights)
{
  uint64_t crossed[2];
  for (int table = 0; table < 2; table++) {
    script s;
    begin(&s, true);
    uint64_t at = reserve(&s, 512 * MIB);
    add(&s, EVENT_ALLOC, at, 512 * MIB);
    uint64_t start = reserve(&s, MIB), weights[32];
    add(&s, EVENT_ALLOC, start, MIB);
    for (size_t i = 0; i < 32; i++)
      add(&s, EVENT_ALLOC, weights[i] = reserve(&s, 64 * MIB), 64 * MIB);
    for (uint32_t step = 0; step < STEPS; step++) {
      launch(&s, table ? 5000 : 500000, (uint64_t[]){at, start}, 2);
      for (size_t i = 0; i < 32; i++) launch(&s, 40000, (uint64_t[]){weights[i], start}, 2);
    }
    spill_result r = finish(&s, 1024, false);
    CHECK(r.scripts.used);
    crossed[table] = r.scripts.weight_bytes / MIB;
    recording_free(&s.r);
  }
  CHECK(crossed[1] >= 2049 + 128 - 896 - 1 && crossed[1] <= 2049 + 128 - 896);
  CHECK(crossed[0] >= crossed[1] + 500);
}

/* A frozen weight is needed by the forward and by the backward pass. */
TEST(frozen_weights_cross_the_bus_twice)
{
  network n = {.layers = 32, .weight_mib = 64, .saved_mib = 2, .kernel_ns = 40000, .frozen = true};
  spill_result r = simulate(&n, 1536, true, false);
  CHECK(r.scripts.used);
  uint64_t least = 2048 - (1536 - 128), most = least + 2 * 32 + 4 * 64 + 1;
  CHECK(r.scripts.weight_bytes / MIB >= 2 * least && r.scripts.weight_bytes / MIB <= 2 * most);
  CHECK_U64(r.scripts.state_bytes, 0);
}

/* ---- none of them ---- */

static void check_same(const spill_result *a, const spill_result *b) {
  CHECK(!a->scripts.used && a->scripts.saved_out_bytes == 0 && a->scripts.weight_bytes == 0);
  CHECK_U64(a->steady.step_ns, b->steady.step_ns);
  CHECK_U64(a->steady.in_bytes, b->steady.in_bytes);
  CHECK_U64(a->steps, b->steps);
}

TEST(other_programs_move_pages)
{
  spill_result other = simulate(&saving, SAVING_MIB, false, false);
  spill_result pages = simulate(&saving, SAVING_MIB, true, true);
  check_same(&other, &pages);
}

/* Weights and gradients alone exceed the device: the scripts move neither. */
TEST(where_the_scripts_are_not_enough_pages_move)
{
  network n = {.layers = 16, .weight_mib = 64, .saved_mib = 2, .kernel_ns = 50000, .state = true};
  spill_result r = simulate(&n, 1536, true, false), pages = simulate(&n, 1536, true, true);
  check_same(&r, &pages);
}

TEST(the_same_step_gives_the_same_times)
{
  spill_result a = simulate(&saving, SAVING_MIB, true, false);
  spill_result b = simulate(&saving, SAVING_MIB, true, false);
  CHECK_U64(a.steady.step_ns, b.steady.step_ns);
  CHECK_U64(a.scripts.saved_out_bytes, b.scripts.saved_out_bytes);
}

TEST_MAIN
