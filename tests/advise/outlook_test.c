/* Recordings of estimates, explained for a smaller device: what they show after the point of
 * failure, and what each kernel uses. */
#include "advise/fitting.h"
#include "author.h"
#include "replay/tune.h"

#define MIB       (UINT64_C(1) << 20)
#define AUTOGRAD  "site-packages/torch/autograd/__init__.py"
#define OPTIMIZER "site-packages/torch/optim/adamw.py"
#define STEPS     5
#define MADE_MAX  128

/* What one step has made and not freed. */
typedef struct made {
  uint64_t addr[MADE_MAX], bytes[MADE_MAX];
  int count;
} made;

static void open_estimate(author *a, const char *program) {
  *a = (author){.next = UINT64_C(1) << 40};
  recording_init(&a->r, 0);
  CHECK_OK(recording_add_fact(&a->r, "estimated", "1"));
  if (program != NULL) CHECK_OK(recording_add_fact(&a->r, "program", program));
}

static void mark_step(author *a, int number, bool begins) {
  char name[32];
  uint32_t tag_id;
  int length = snprintf(name, sizeof name, "step %d", number);
  CHECK_OK(recording_name(&a->r, &tag_id, name, (size_t)length));
  event e = {.kind = begins ? EVENT_MARK_BEGIN : EVENT_MARK_END};
  CHECK_OK(recording_add_event(&a->r, &e, &(origin){.tag_id = tag_id}));
}

/* A kernel that reads one block and writes another. */
static void kernel(author *a, uint64_t reads, uint64_t writes) {
  add_event(a, EVENT_LAUNCH, writes, 0, 0);
  if (reads != 0) add_event(a, EVENT_TOUCH, reads, 0, 0);
}

static uint64_t keep(author *a, made *m, uint64_t bytes, uint32_t stack_id, uint64_t reads) {
  uint64_t addr = take_at(a, bytes, stack_id);
  kernel(a, reads, addr);
  CHECK(m->count < MADE_MAX);
  m->addr[m->count] = addr;
  m->bytes[m->count++] = bytes;
  return addr;
}

static void drop(author *a, made *m) {
  while (m->count > 0) {
    m->count--;
    give(a, m->addr[m->count], m->bytes[m->count]);
  }
}

static uint32_t backward_stack(author *a) {
  const frame_text frames[] = {{"backward", AUTOGRAD, 1}, {"main", "train.py", 9}};
  return frames_stack(a, frames, 2);
}

/* A batch on line 7 and a model of four layers on line 8; the first layer also reads `state`.
 * Returns the model's output. */
static uint64_t run_pass(author *a, made *m, uint64_t state) {
  uint64_t x = keep(a, m, LAYER_SIZE, line_stack(a, "train.py", 7), 0);
  for (int i = 0; i < 4; i++) {
    uint64_t y = keep(a, m, LAYER_SIZE, layer_stack(a, 8), x);
    if (i == 0 && state != 0) kernel(a, state, y);
    x = y;
  }
  return x;
}

static void run_backward(author *a, made *m) {
  keep(a, m, LAYER_SIZE, backward_stack(a), 0);
}

static void explain_at(explanation *x, const author *a, uint64_t left_bytes) {
  explain_options options = {.device_bytes = left_bytes + REPLAY_CONTEXT_BYTES};
  CHECK_OK(explain_recording(x, &a->r, &options));
  CHECK(x->findings.count > 0 && x->fixes.count > 0);
}

static const char *first(const explanation *x) {
  return cause_name(x->findings.list[0].id);
}

static bool any_fix(const explanation *x, const char *words) {
  for (uint32_t i = 0; i < x->fixes.count; i++)
    if (strstr(x->fixes.list[i].change, words) != NULL) return true;
  return false;
}

static void close_both(explanation *x, author *a) {
  explanation_free(x);
  recording_free(&a->r);
}

/* Six passes, then one backward pass. `sequence`: each pass goes on from the one before. */
static void accumulate(author *a, bool sequence) {
  open_estimate(a, NULL);
  build_layers(a, 4);
  for (int turn = 1; turn <= STEPS; turn++) {
    made m = {.count = 0};
    uint64_t output = 0;
    mark_step(a, turn, true);
    for (int pass = 0; pass < 6; pass++) {
      output = run_pass(a, &m, sequence ? output : 0);
      keep(a, &m, 4, line_stack(a, "train.py", 8), output);
    }
    run_backward(a, &m);
    drop(a, &m);
    mark_step(a, turn, false);
  }
}

TEST(passes_that_wait_for_one_backward_pass_get_one_each)
{
  author a;
  explanation x;
  accumulate(&a, false);
  explain_at(&x, &a, 700 * MIB);
  CHECK_TEXT(first(&x), "graph_kept");
  CHECK(strstr(x.headline.data, "6 passes at train.py:8") != NULL);
  CHECK(strstr(x.fixes.list[0].change, "call backward() on the loss of each pass") != NULL);
  CHECK(strstr(x.fixes.list[0].change, "(loss / 6).backward()") != NULL);
  CHECK(x.fixes.list[0].fits);
  CHECK(!any_fix(&x, "no_grad"));
  close_both(&x, &a);
  /* The steps of a sequence have one backward pass together. */
  accumulate(&a, true);
  explain_at(&x, &a, 700 * MIB);
  CHECK_TEXT(first(&x), "batch_too_big");
  CHECK(!any_fix(&x, "call backward() on the loss of each pass"));
  CHECK(!any_fix(&x, "no_grad"));
  close_both(&x, &a);
}

/* Steps of one pass through twelve layers that holds all its results; with a backward pass or
 * without any. */
static void pass_only(author *a, const char *program, bool trains) {
  open_estimate(a, program);
  build_layers(a, 4);
  for (int turn = 1; turn <= STEPS; turn++) {
    made m = {.count = 0};
    mark_step(a, turn, true);
    uint64_t output = 0;
    for (int i = 0; i < 3; i++) output = run_pass(a, &m, output);
    if (trains) run_backward(a, &m);
    drop(a, &m);
    mark_step(a, turn, false);
  }
}

TEST(a_program_without_any_backward_pass_needs_no_graph)
{
  author a;
  explanation x;
  pass_only(&a, "program 1\ninput float32 1x3x64x64\nbatch 1 first\n", false);
  explain_at(&x, &a, 300 * MIB);
  CHECK_TEXT(first(&x), "no_grad_missing");
  CHECK(strstr(x.fixes.list[0].change, "torch.no_grad()") != NULL);
  static const char *const none[] = {"batch", "optimizer", "checkpoint", "autocast"};
  for (size_t i = 0; i < 3; i++) CHECK(!any_fix(&x, none[i]));
  close_both(&x, &a);
}

/* Explain and tune name the same number of samples. */
TEST(the_batch_that_fits_is_a_whole_number_and_the_same_everywhere)
{
  static const struct {
    const char *program;
    uint64_t batch;
  } all[] = {{"program 1\ninput float32 96x3x64x64\nbatch 96 first\n", 96},
             {"program 1\ninput float32 2x3x64x64\nbatch 2 first\n", 2}};
  for (size_t i = 0; i < 2; i++) {
    author a;
    explanation x;
    unsigned part = 0, whole = 0;
    pass_only(&a, all[i].program, true);
    explain_at(&x, &a, 400 * MIB);
    CHECK_TEXT(first(&x), "batch_too_big");
    const char *use = "use a batch of %u instead of %u";
    CHECK(sscanf(x.fixes.list[0].change, use, &part, &whole) == 2);
    CHECK_U64(whole, all[i].batch);
    CHECK(part >= 1 && part < whole);
    CHECK(strstr(x.fixes.list[0].change, "step the optimizer after") != NULL ||
          strstr(x.fixes.list[0].change, "the optimizer after every") != NULL);
    replay_job job;
    tuning settings;
    fitting fit;
    replay_job_options options = {.device_bytes = 400 * MIB + REPLAY_CONTEXT_BYTES};
    CHECK_OK(replay_job_open(&job, &a.r, "made", &options));
    CHECK_OK(tune_run(&settings, &job, NULL, NULL));
    CHECK_OK(fitting_find(&fit, &job, &settings));
    CHECK(fit.answer == FITTING_PART);
    CHECK_U64(fit.part, part);
    CHECK_U64(fit.whole, whole);
    replay_job_close(&job);
    close_both(&x, &a);
  }
}

TEST(one_sample_that_is_too_large_gets_no_smaller_batch)
{
  author a;
  explanation x;
  pass_only(&a, "program 1\ninput float32 1x3x64x64\nbatch 1 first\n", true);
  explain_at(&x, &a, 300 * MIB);
  CHECK_TEXT(first(&x), "batch_too_big");
  CHECK(strstr(x.headline.data, "one sample") != NULL);
  CHECK(!any_fix(&x, "of the batch") && !any_fix(&x, "use a batch of"));
  close_both(&x, &a);
}

/* One object is made again in each step, 32 MiB larger: inside the model, or on the program's own
 * line beside training. */
static void swell(author *a, bool cache) {
  const frame_text inside[] = {
      {"forward", "train.py", 16}, {"_call_impl", MODULE, 1786}, {"main", "train.py", 8}};
  uint64_t before = 0, bytes = LAYER_SIZE;
  open_estimate(a, NULL);
  build_layers(a, 4);
  uint32_t line = cache ? frames_stack(a, inside, 3) : line_stack(a, "train.py", 16);
  for (int turn = 1; turn <= 12; turn++, bytes += LAYER_SIZE) {
    made m = {.count = 0};
    mark_step(a, turn, true);
    uint64_t now = 0, output = run_pass(a, &m, 0);
    if (!cache) {
      run_backward(a, &m);
      drop(a, &m);
    }
    now = take_at(a, bytes, line);
    kernel(a, before != 0 ? before : output, now);
    if (before != 0) give(a, before, bytes - LAYER_SIZE);
    before = now;
    drop(a, &m);
    mark_step(a, turn, false);
  }
}

TEST(what_is_made_again_larger_in_each_step_is_a_leak_even_if_it_fails_early)
{
  author a;
  explanation x;
  swell(&a, false);
  explain_at(&x, &a, 380 * MIB);
  CHECK_TEXT(first(&x), "leak");
  CHECK(strstr(x.headline.data, "32.0 MiB each iteration, from train.py:16") != NULL);
  CHECK(strstr(x.fixes.list[0].change, "keep only the last N rows") != NULL);
  CHECK(x.fixes.list[0].fits && x.fixes.list[0].saves_bytes >= 300 * MIB);
  close_both(&x, &a);
}

TEST(a_cache_that_a_model_extends_needs_a_bound_and_no_gradient_advice)
{
  author a;
  explanation x;
  swell(&a, true);
  explain_at(&x, &a, 480 * MIB);
  CHECK_TEXT(first(&x), "leak");
  CHECK(strstr(x.fixes.list[0].change, "bound the cache at train.py:16") != NULL);
  static const char *const none[] = {"no_grad", "optimizer", "checkpoint"};
  for (size_t i = 0; i < 3; i++) CHECK(!any_fix(&x, none[i]));
  close_both(&x, &a);
}

/* Each step keeps the graph of its three passes although backward runs. `carried`: a step goes on
 * from the output of the step before. */
static void retain(author *a, bool carried) {
  made kept = {.count = 0};
  uint64_t state = 0;
  open_estimate(a, NULL);
  build_layers(a, 4);
  for (int turn = 1; turn <= 6; turn++) {
    made m = {.count = 0};
    mark_step(a, turn, true);
    for (int i = 0; i < 3; i++) state = run_pass(a, &kept, carried ? state : 0);
    run_backward(a, &m);
    keep(a, &kept, 4, line_stack(a, "train.py", 8), state);
    drop(a, &m);
    mark_step(a, turn, false);
  }
}

TEST(a_state_that_is_carried_with_its_graph_is_detached)
{
  author a;
  explanation x;
  retain(&a, true);
  explain_at(&x, &a, 2000 * MIB);
  CHECK_TEXT(first(&x), "graph_kept");
  CHECK(strstr(x.headline.data, "480.0 MiB more each iteration") != NULL); /* steps, not passes */
  CHECK(strstr(x.fixes.list[0].change, "h = h.detach()") != NULL);
  CHECK(strstr(x.fixes.list[0].change, "train.py:8 in main makes it") != NULL);
  CHECK(!any_fix(&x, ".item()"));
  explanation_free(&x);
  /* In the second step no two are complete; the passes of a step are not its iterations. */
  explain_at(&x, &a, 900 * MIB);
  CHECK(strcmp(first(&x), "graph_kept") != 0 || any_fix(&x, "h = h.detach()"));
  CHECK(!any_fix(&x, ".item()") && !any_fix(&x, "no_grad"));
  close_both(&x, &a);
  retain(&a, false);
  explain_at(&x, &a, 2000 * MIB);
  CHECK_TEXT(first(&x), "graph_kept");
  CHECK(any_fix(&x, ".item()") && !any_fix(&x, "h.detach()"));
  close_both(&x, &a);
}

/* Reads the weights of build_layers, which are the first blocks. */
static void use_weights(author *a, uint64_t writes) {
  uint64_t at = UINT64_C(1) << 40;
  for (int i = 0; i < 4; i++, at += (16 << 20) + 8192) {
    kernel(a, at, writes);
    kernel(a, at + (16 << 20), writes);
  }
}

static void copy_weights(author *a, uint32_t line, uint64_t addr[8]) {
  const frame_text frames[] = {{"deepcopy", "copy.py", 146}, {"main", "train.py", line}};
  for (int i = 0; i < 8; i++) {
    addr[i] = take_at(a, i % 2 == 0 ? 16 << 20 : 8192, frames_stack(a, frames, 2));
    kernel(a, 0, addr[i]);
  }
}

/* Two copies of the weights: the steps use the first, or both. */
static void copy_twice(author *a, bool both) {
  uint64_t copy[2][8];
  open_estimate(a, NULL);
  build_layers(a, 4);
  copy_weights(a, 4, copy[0]);
  copy_weights(a, 5, copy[1]);
  for (int turn = 1; turn <= STEPS; turn++) {
    made m = {.count = 0};
    mark_step(a, turn, true);
    uint64_t y = keep(a, &m, MIB, layer_stack(a, 8), 0);
    use_weights(a, y);
    for (int of = 0; of <= both; of++)
      for (int i = 0; i < 8; i++) kernel(a, copy[of][i], y);
    drop(a, &m);
    mark_step(a, turn, false);
  }
}

TEST(the_copy_that_no_kernel_uses_is_named)
{
  author a;
  explanation x;
  copy_twice(&a, false);
  explain_at(&x, &a, 180 * MIB);
  CHECK_TEXT(first(&x), "loaded_twice");
  CHECK(strstr(x.headline.data, "train.py:5") != NULL);
  CHECK(strstr(x.fixes.list[0].change, "at train.py:5") != NULL);
  CHECK_U64(x.fixes.list[0].saves_bytes >> 20, 64);
  close_both(&x, &a);
  /* A copy in use cannot go to the host. */
  copy_twice(&a, true);
  explain_at(&x, &a, 180 * MIB);
  CHECK_TEXT(first(&x), "loaded_twice");
  CHECK(!any_fix(&x, "v.cpu()"));
  close_both(&x, &a);
}

/* The program's own line makes results of a weight's size, which the backward pass frees. */
TEST(results_as_large_as_a_weight_are_no_copies)
{
  author a;
  explanation x;
  open_estimate(&a, NULL);
  build_layers(&a, 4);
  for (int turn = 1; turn <= STEPS; turn++) {
    made m = {.count = 0};
    mark_step(&a, turn, true);
    for (int i = 0; i < 24; i++) {
      uint64_t y = keep(&a, &m, MIB, layer_stack(&a, 8), 0);
      use_weights(&a, y);
      keep(&a, &m, 16 * MIB, line_stack(&a, "train.py", 8), y);
    }
    run_backward(&a, &m);
    drop(&a, &m);
    mark_step(&a, turn, false);
  }
  explain_at(&x, &a, 350 * MIB);
  CHECK(strcmp(first(&x), "leak") != 0 && strcmp(first(&x), "loaded_twice") != 0);
  close_both(&x, &a);
}

TEST(a_data_set_on_the_device_stays_on_the_host)
{
  author a;
  explanation x;
  open_estimate(&a, NULL);
  uint64_t data = take(&a, 800 * MIB, 4);
  kernel(&a, 0, data);
  build_layers(&a, 4);
  for (int turn = 1; turn <= STEPS; turn++) {
    made m = {.count = 0};
    mark_step(&a, turn, true);
    kernel(&a, data, run_pass(&a, &m, data));
    run_backward(&a, &m);
    drop(&a, &m);
    mark_step(&a, turn, false);
  }
  explain_at(&x, &a, 600 * MIB);
  CHECK_TEXT(first(&x), "one_spike");
  CHECK(strstr(x.fixes.list[0].change, "at train.py:4 in main: keep the data set") != NULL);
  CHECK(strstr(x.fixes.list[0].change, "x = data[i:i + n].to(\"cuda\")") != NULL);
  close_both(&x, &a);
}

/* The state is created weight by weight; the request for the second weight's is refused. */
TEST(the_state_of_an_optimizer_is_counted_as_it_will_be)
{
  author a;
  explanation x;
  const frame_text state[] = {{"_init_group", OPTIMIZER, 140}, {"main", "train.py", 10}};
  open_estimate(&a, NULL);
  build_layers(&a, 4);
  for (int turn = 1; turn <= STEPS; turn++) {
    made m = {.count = 0};
    mark_step(&a, turn, true);
    keep(&a, &m, MIB, layer_stack(&a, 8), UINT64_C(1) << 40);
    for (int i = 0; i < 4; i++) keep(&a, &m, 16 * MIB, backward_stack(&a), 0);
    for (int i = 0; i < 8 && turn == 1; i++)
      kernel(&a, 0, take_at(&a, 16 * MIB, frames_stack(&a, state, 2)));
    drop(&a, &m);
    mark_step(&a, turn, false);
  }
  explain_at(&x, &a, 200 * MIB);
  CHECK_TEXT(first(&x), "optimizer_state");
  CHECK(strstr(x.headline.data, "state does not fit: 128.0 MiB beside 64.0 MiB") != NULL);
  close_both(&x, &a);
}

TEST_MAIN
