/* Tests what the engine learns of pools and other large blocks, with a program whose kernels use
 * known bytes: in the end, nearly nothing that they use is read on the host unseen.
 *
 * A launch takes its time in vram plus the time to read what it uses on the host, named or not. Its
 * time is reported some launches later, as on a device that runs behind. */
#include <stdlib.h>

#include "harness.h"
#include "residency/engine.h"

#define MIB   (UINT64_C(1) << 20)
#define UNIT  (32 * MIB)
#define BASE  (UINT64_C(1) << 40)
#define DELAY 100

enum { WORDS_MAX = 8, OPS_MAX = 2048, SAMPLES_HELD = 64 };

typedef struct use {
  uint64_t word, bytes;
} use;

typedef struct kernel {
  uint64_t function, size, device_ns;
  uint32_t count;
  use uses[WORDS_MAX];
} kernel;

typedef struct program {
  kernel ops[OPS_MAX];
  uint32_t count;
} program;

typedef struct device {
  residency *engine;
  uint64_t launches, units, host_ns;
  uint64_t unseen_bytes, in_bytes, named_bytes, used_bytes; /* of the last step */
  struct {
    residency_timing timing;
    uint64_t ns, at;
  } samples[SAMPLES_HELD];
  uint32_t first, end;
} device;

static void add(program *p, uint64_t function, uint64_t device_ns, const use *uses,
                uint32_t count) {
  CHECK(p->count < OPS_MAX);
  kernel *k = &p->ops[p->count++];
  *k = (kernel){.function = function, .device_ns = device_ns, .count = count};
  for (uint32_t i = 0; i < count; i++) k->uses[i] = (use){BASE + uses[i].word, uses[i].bytes};
}

static void report_samples(device *d, bool all) {
  while (d->first != d->end) {
    uint32_t i = d->first % SAMPLES_HELD;
    if (!all && d->samples[i].at + DELAY > d->launches) return;
    residency_sampled(d->engine, &d->samples[i].timing, d->samples[i].ns);
    d->first++;
  }
}

static bool is_named(const device *d, uint32_t unit) {
  uint32_t count;
  const uint32_t *named = residency_named(d->engine, &count);
  for (uint32_t i = 0; i < count; i++)
    if (named[i] == unit) return true;
  return false;
}

static void run_kernel(device *d, const kernel *k) {
  uint64_t words[WORDS_MAX], far = 0;
  for (uint32_t i = 0; i < k->count; i++) words[i] = k->uses[i].word;
  d->launches++;
  residency_launch_info l = {.function = k->function,
                             .size = k->size,
                             .words = words,
                             .word_count = k->count,
                             .host_ns = d->host_ns,
                             .now_ns = d->launches * d->host_ns};
  if (residency_launch(d->engine, &l) == RESIDENCY_EXCHANGE) {
    residency_plan_list plan = residency_plan(d->engine);
    for (uint32_t i = 0; i < plan.in_count; i++) d->in_bytes += plan.in[i].bytes;
    residency_exchanged(d->engine, plan.out_count, plan.in_count);
  }
  uint32_t named;
  residency_named(d->engine, &named);
  d->named_bytes += named * UNIT;
  for (uint32_t i = 0; i < k->count; i++) {
    uint64_t end = k->uses[i].word + k->uses[i].bytes;
    d->used_bytes += k->uses[i].bytes / UNIT * UNIT + UNIT;
    for (uint64_t at = k->uses[i].word, next; at < end; at = next) {
      uint32_t unit = residency_find(d->engine, at);
      next = (at / UNIT + 1) * UNIT < end ? (at / UNIT + 1) * UNIT : end;
      CHECK(unit != UINT32_MAX);
      if (residency_in_vram(d->engine, unit)) continue;
      far += next - at;
      if (!is_named(d, unit) && next - at > SPACE_SMALL_BYTES) d->unseen_bytes += next - at;
    }
  }
  uint64_t ns =
      k->device_ns + (uint64_t)((double)far * residency_costs_h200.in_place_ns_per_byte * 4);
  residency_timing t;
  report_samples(d, false);
  if (d->end - d->first == SAMPLES_HELD || !residency_sample(d->engine, &t)) return;
  if (!t.urgent && !t.wait && d->end - d->first > SAMPLES_HELD / 2) return;
  uint32_t i = d->end++ % SAMPLES_HELD;
  d->samples[i].timing = t;
  d->samples[i].ns = ns;
  d->samples[i].at = d->launches;
  if (t.wait) report_samples(d, true);
}

static void run_step(device *d, const program *p) {
  d->unseen_bytes = d->in_bytes = d->named_bytes = d->used_bytes = 0;
  for (uint32_t i = 0; i < p->count; i++) run_kernel(d, &p->ops[i]);
}

/* One block of `units`, of which `vram` are in vram. */
static void open_device(device *d, uint64_t units, uint64_t vram) {
  uint32_t unit;
  *d = (device){.units = units, .host_ns = 5000};
  CHECK_OK(residency_open(&d->engine, &(residency_options){.capacity_bytes = vram * UNIT}));
  for (uint64_t i = 0; i < units; i++)
    CHECK_OK(residency_unit_add(d->engine, BASE + i * UNIT, UNIT, i < vram - 2, &unit));
  CHECK_OK(residency_block_add(d->engine, BASE, units * UNIT));
}

/* A step as XLA makes it: weights, what is kept for the backward pass, and temporary buffers in the
 * same places. A kernel has a workspace of 32 bytes at the start of a place that holds a large
 * buffer at other times, and another one right behind it. */
static void build_pool_step(program *p) {
  enum { LAYERS = 16 };
  const uint64_t buffer = 64 * MIB, kept = LAYERS * buffer + 7 * 4096,
                 temp = kept + LAYERS * buffer;
  *p = (program){.count = 0};
  for (uint64_t i = 0; i < LAYERS; i++) {
    uint64_t work = temp + (i % 3) * buffer, result = temp + ((i + 1) % 3) * buffer;
    add(p, 1, 300000, (use[]){{i * buffer, buffer}, {result, buffer}, {work, 32}, {work + 32, 32}},
        4);
    add(p, 2, 30000, (use[]){{result, buffer}, {kept + i * buffer, buffer}}, 2);
  }
  for (uint64_t i = LAYERS; i-- > 0;) {
    uint64_t work = temp + (i % 3) * buffer, result = temp + ((i + 1) % 3) * buffer;
    add(p, 3, 60000, (use[]){{kept + i * buffer, buffer}, {result, buffer}}, 2);
    add(p, 4, 300000, (use[]){{result, buffer}, {i * buffer, buffer}, {work, 32}, {work + 32, 32}},
        4);
    /* The gradient replaces what was kept. */
    add(p, 5, 60000, (use[]){{result, buffer}, {kept + i * buffer, buffer}}, 2);
  }
  for (uint64_t i = 0; i < LAYERS; i++)
    add(p, 6, 50000, (use[]){{i * buffer, buffer}, {kept + i * buffer, buffer}}, 2);
}

TEST(buffers_that_begin_at_the_same_word_are_kept_apart_by_their_kernels)
{
  enum { STEPS = 8 };
  static program step;
  device d;
  build_pool_step(&step);
  open_device(&d, 200, 56); /* 70 of them are used */
  for (int i = 0; i < STEPS; i++) run_step(&d, &step);
  harness_note(" %llu MiB unseen, %llu in", (unsigned long long)(d.unseen_bytes / MIB),
               (unsigned long long)(d.in_bytes / MIB));
  CHECK(d.unseen_bytes <= 64 * MIB);
  CHECK(d.in_bytes <= 60 * UNIT);
  residency_stats stats;
  residency_get_stats(d.engine, &stats);
  CHECK(stats.needed_bytes >= 68 * UNIT &&
        stats.needed_bytes <= 90 * UNIT); /* not the whole pool */
  residency_close(d.engine);
}

/* Words of a set-up, which are never seen again, do not hide buffers from the third step on. */
TEST(a_setup_is_forgotten_within_steps)
{
  static program setup, step;
  device d;
  setup.count = 0;
  build_pool_step(&step);
  for (uint64_t i = 0; i < 400; i++) {
    uint64_t at = i % 16 * 64 * MIB + 32768;
    add(&setup, 9, 5000, (use[]){{at, 32768}, {at - 32768, 32768}}, 2);
  }
  open_device(&d, 200, 56);
  run_step(&d, &setup);
  for (int i = 0; i < 4; i++) run_step(&d, &step);
  harness_note(" %llu MiB unseen", (unsigned long long)(d.unseen_bytes / MIB));
  CHECK(d.unseen_bytes <= 256 * MIB); /* kernels use 10 GiB in a step */
  residency_close(d.engine);
}

/* A recurrent network: kernels use slices of a layer one by one, and then one kernel uses the whole
 * layer. Its word is that of the first slice. */
static void build_slices_step(program *p) {
  enum { LAYERS = 4, SLICES = 40 };
  const uint64_t slice = 8 * MIB;
  *p = (program){.count = 0};
  for (uint64_t i = 0; i < LAYERS; i++)
    for (uint64_t k = 0; k < SLICES; k++)
      add(p, 1, 30000, (use[]){{(i * SLICES + k) * slice, slice}}, 1);
  for (uint64_t i = LAYERS; i-- > 0;) {
    for (uint64_t k = SLICES; k-- > 0;)
      add(p, 2, 40000, (use[]){{(i * SLICES + k) * slice, slice}}, 1);
  }
  for (uint64_t i = 0; i < LAYERS; i++)
    add(p, 3, 900000, (use[]){{i * SLICES * slice, SLICES * slice}}, 1);
}

TEST(a_kernel_over_a_whole_buffer_is_found_by_its_time)
{
  enum { STEPS = 10 };
  static program step;
  device d;
  build_slices_step(&step);
  open_device(&d, 40, 24);
  uint64_t before = 0;
  for (int i = 0; i < STEPS; i++) {
    run_step(&d, &step);
    if (d.unseen_bytes > before) before = d.unseen_bytes;
  }
  harness_note(" %llu MiB unseen, before %llu", (unsigned long long)(d.unseen_bytes / MIB),
               (unsigned long long)(before / MIB));
  CHECK(before > 256 * MIB);
  CHECK(d.unseen_bytes <= 64 * MIB);
  residency_close(d.engine);
}

/* One size of a kernel uses a whole layer, once in a step. In another size it uses the first slice
 * of each layer, beginning at the same word. */
TEST(a_launch_whose_size_is_unique_is_found_by_the_words_of_other_sizes)
{
  enum { STEPS = 12, SLICES = 40 };
  static program step;
  device d;
  build_slices_step(&step);
  for (uint32_t i = 0; i < step.count; i++)
    if (step.ops[i].function == 3) {
      step.ops[i].size = 1;
      step.ops[i].device_ns = 40000;
      step.ops[i].uses[0].bytes /= SLICES;
    }
  add(&step, 3, 900000, (use[]){{2 * SLICES * 8 * MIB, SLICES * 8 * MIB}}, 1);
  step.ops[step.count - 1].size = 2;
  open_device(&d, 40, 24);
  uint64_t before = 0;
  for (int i = 0; i < STEPS; i++) {
    run_step(&d, &step);
    if (d.unseen_bytes > before) before = d.unseen_bytes;
  }
  harness_note(" %llu MiB unseen, before %llu", (unsigned long long)(d.unseen_bytes / MIB),
               (unsigned long long)(before / MIB));
  CHECK(before > 128 * MIB);
  CHECK(d.unseen_bytes <= 64 * MIB);
  residency_close(d.engine);
}

/* Sixteen launches use each unit, one after another. Reading it in place costs each of them about
 * as much as one exchange, which serves all of them. */
TEST(an_exchange_is_weighed_against_all_launches_that_it_serves)
{
  enum { STEPS = 12, SLICES = 120, EACH = 4 };
  const uint64_t slice = 8 * MIB;
  static program step;
  device d;
  step.count = 0;
  for (uint64_t k = 0; k < SLICES * EACH; k++)
    add(&step, 1 + k % EACH, 30000, (use[]){{k / EACH * slice, slice}}, 1);
  for (uint64_t k = SLICES * EACH; k-- > 0;)
    add(&step, 5 + k % EACH, 30000, (use[]){{k / EACH * slice, slice}}, 1);
  open_device(&d, SLICES / 4, SLICES / 8);
  d.host_ns = 290000;
  uint32_t still = 0; /* launches */
  for (uint32_t i = 0; i < STEPS * step.count; i++) {
    residency_stats stats;
    run_kernel(&d, &step.ops[i % step.count]);
    residency_get_stats(d.engine, &stats);
    still += !stats.moving;
  }
  harness_note(" %u of %u launches while nothing moves", still, STEPS * step.count);
  CHECK(still <= 128); /* at the start, when little is known */
  CHECK(d.in_bytes > 0);
  residency_close(d.engine);
}

/* Random programs: buffers of random sizes in random places, kernels that use whole buffers. */
TEST(random_pools_are_learned)
{
  enum { PROGRAMS = 30, BUFFERS = 24, KERNELS = 60, STEPS = 6 };
  static program step;
  uint64_t seed = 20261117, unseen = 0, used = 0;
  for (int n = 0; n < PROGRAMS; n++) {
    use buffers[BUFFERS];
    uint64_t at = 0;
    device d;
    step.count = 0;
    for (int i = 0; i < BUFFERS; i++) {
      buffers[i] = (use){at, (1 + harness_random(&seed) % 96) * MIB + 256};
      at += buffers[i].bytes + harness_random(&seed) % 4 * 4096;
    }
    for (uint64_t i = 0; i < KERNELS; i++) {
      use u[3];
      for (int k = 0; k < 3; k++) u[k] = buffers[harness_random(&seed) % BUFFERS];
      add(&step, 1 + i, 50000, u, 1 + harness_random(&seed) % 3);
    }
    uint64_t units = at / UNIT + 2;
    open_device(&d, units, units * 3 / 4 + 4);
    for (int i = 0; i < STEPS; i++) run_step(&d, &step);
    unseen += d.unseen_bytes;
    used += at;
    CHECK(residency_valid(d.engine));
    residency_close(d.engine);
  }
  harness_note(" %llu of %llu MiB unseen", (unsigned long long)(unseen / MIB),
               (unsigned long long)(used / MIB));
  CHECK(unseen < used / 20);
}

/* A deep network as XLA lays it out: layers keep two buffers each, which are larger than weights,
 * and the first layers use one above all of them. */
static void build_deep_step(program *p, uint64_t layers, uint64_t weight, uint64_t kept) {
  const uint64_t grads = layers * weight + 7 * 4096, work = grads + layers * weight,
                 first = work + weight, top = first + 2 * layers * kept;
  uint64_t x = top + kept;
  *p = (program){.count = 0};
  for (uint64_t i = 0; i < layers; i++) {
    uint64_t product = first + (2 * i + (i % 2 == 0)) * kept;
    uint64_t slope = first + (2 * i + i % 2) * kept, next = i < 2 ? top : product;
    add(p, 1, 700000, (use[]){{i * weight, weight}, {x, kept}, {product, kept}, {work, 32}}, 4);
    add(p, 2, 60000, (use[]){{product, kept}, {slope, kept}}, 2);
    add(p, 3, 90000, (use[]){{x, kept}, {slope, kept}, {next, kept}}, 3);
    x = next;
  }
  for (uint64_t i = layers; i-- > 0;) {
    uint64_t product = first + (2 * i + (i % 2 == 0)) * kept;
    uint64_t slope = first + (2 * i + i % 2) * kept;
    add(p, 4, 700000, (use[]){{slope, kept}, {i * weight, weight}, {top, kept}, {work, 32}}, 4);
    add(p, 5, 120000, (use[]){{slope, kept}, {top, kept}, {product, kept}}, 3);
    add(p, 6, 1200000,
        (use[]){{product, kept}, {slope, kept}, {grads + i * weight, weight}, {work, 32}}, 4);
  }
  for (uint64_t i = 0; i < layers; i++)
    add(p, 7, 50000, (use[]){{i * weight, weight}, {grads + i * weight, weight}}, 2);
}

/* In the first step many words are not known yet, so kernels name too little of their buffers and
 * take long. That must not make them name everything up to the next word of their own, forever. */
TEST(what_a_first_step_does_not_know_is_not_held_against_its_kernels)
{
  enum { PROGRAMS = 60 };
  static program setup, step;
  uint64_t seed = 20261118, named = 0, used = 0, worst = 0;
  for (int n = 0; n < PROGRAMS; n++) {
    uint64_t layers = 12 + harness_random(&seed) % 12, weight = 64 * MIB;
    uint64_t kept = (1 + harness_random(&seed) % 3) * 64 * MIB;
    device d;
    build_deep_step(&step, layers, weight, kept);
    setup.count = 0;
    uint64_t tries = harness_random(&seed) % 800, places = 20 + harness_random(&seed) % 60;
    for (uint64_t i = 0; i < tries; i++) {
      uint64_t at = harness_random(&seed) % places * 35 * MIB;
      add(&setup, 8 + i % 3, 30000, (use[]){{at, 4096}, {at + 8 * MIB, 4096}}, 2);
    }
    uint64_t units = (2 * layers * weight + weight + (2 * layers + 3) * kept) / UNIT + 1;
    if (units < 100) units = 100;
    open_device(&d, units, units / 2);
    run_step(&d, &setup);
    for (int i = 0; i < 8; i++) run_step(&d, &step);
    named += d.named_bytes;
    used += d.used_bytes;
    uint64_t percent = d.named_bytes * 100 / d.used_bytes;
    if (percent > worst) worst = percent;
    residency_close(d.engine);
  }
  harness_note(" named %llu%% of what is used, at most %llu%%",
               (unsigned long long)(named * 100 / used), (unsigned long long)worst);
  CHECK(named <= used * 5 / 4);
  CHECK(worst <= 200);
}

TEST_MAIN
