/* Advice based on what a program reports about itself: recordings made by hand, with the facts that
 * python/stowage/_program.py writes. */
#include <stdlib.h>

#include "advise/explain.h"
#include "harness.h"

#define MIB    (UINT64_C(1) << 20)
#define GIB    (UINT64_C(1) << 30)
#define MODULE "site-packages/torch/nn/modules/module.py"
#define LINEAR "site-packages/torch/nn/modules/linear.py"
#define TRAIN  "train.py"

typedef struct frame_text {
  const char *name, *file;
  uint32_t line;
} frame_text;

typedef struct author {
  recording r;
  uint64_t next;
  explanation x;
} author;

/* Adds a stack, innermost frame first. */
static uint32_t stack_of(author *a, const frame_text *frames, size_t count) {
  uint32_t ids[8], name_id, file_id, stack_id;
  for (size_t i = 0; i < count; i++) {
    CHECK_OK(recording_name(&a->r, &name_id, frames[i].name, strlen(frames[i].name)));
    CHECK_OK(recording_name(&a->r, &file_id, frames[i].file, strlen(frames[i].file)));
    CHECK_OK(recording_frame(&a->r, &ids[i], name_id, file_id, frames[i].line));
  }
  CHECK_OK(recording_stack(&a->r, &stack_id, ids, count));
  return stack_id;
}

static uint32_t build_stack(author *a) {
  return stack_of(a, (frame_text[]){{"_apply", MODULE, 900}, {"main", TRAIN, 3}}, 2);
}

static uint32_t layer_stack(author *a, uint32_t layer) {
  return stack_of(a,
                  (frame_text[]){{"forward", LINEAR, 134},
                                 {"forward", "model.py", 100 + layer},
                                 {"_call_impl", MODULE, 1786},
                                 {"main", TRAIN, 9}},
                  4);
}

static void add_event(author *a, event_kind kind, uint64_t addr, uint64_t bytes, uint32_t from) {
  event e = {.kind = (uint8_t)kind, .addr = addr, .bytes = bytes, .stack_id = from};
  CHECK_OK(recording_add_event(&a->r, &e, &(origin){0}));
}

static uint64_t take(author *a, uint64_t bytes, uint32_t stack_id) {
  uint64_t addr = a->next;
  a->next += (bytes + 511) / 512 * 512;
  add_event(a, EVENT_ALLOC, addr, bytes, stack_id);
  return addr;
}

static void start(author *a, uint64_t limit_bytes, const char *facts) {
  char text[32];
  *a = (author){.next = UINT64_C(1) << 40};
  recording_init(&a->r, 0);
  snprintf(text, sizeof text, "%llu", (unsigned long long)limit_bytes);
  CHECK_OK(recording_add_fact(&a->r, "limit_bytes", text));
  if (facts != NULL) CHECK_OK(recording_add_fact(&a->r, "program", facts));
}

static void fail_with(author *a, uint64_t bytes, uint32_t stack_id) {
  add_event(a, EVENT_FAIL, 0, bytes, stack_id);
  CHECK_OK(explain_recording(&a->x, &a->r, NULL));
  CHECK(a->x.findings.count > 0);
}

static void finish(author *a) {
  explanation_free(&a->x);
  recording_free(&a->r);
}

static const char *first_cause(const author *a) {
  return cause_name(a->x.findings.list[0].id);
}

static const char *fix_at(const author *a, uint32_t index) {
  return index < a->x.fixes.count ? a->x.fixes.list[index].change : "";
}

static bool says(const author *a, const char *words) {
  buffer out = BUFFER_INIT;
  CHECK_OK(explanation_text(&a->x, &out, false));
  bool found = strstr(out.data, words) != NULL;
  buffer_free(&out);
  return found;
}

/* Adds a model of `layers` layers and the outputs of the first `reached` of them. */
static void run_layers(author *a, uint32_t layers, uint64_t weight_bytes, uint32_t reached,
                       uint64_t output_bytes) {
  uint32_t build = build_stack(a);
  for (uint32_t i = 0; i < layers; i++) take(a, weight_bytes, build);
  for (uint32_t i = 0; i < reached; i++) take(a, output_bytes, layer_stack(a, i));
}

#define FULL_TUNING                                                                                \
  "program 1\ntorch 2.11.0\nstep forward\ngrad 1\nautocast off\nparameters 536870912 2147483648\n" \
  "trained 536870912 2147483648\non_device 2147483648\ngradients 0\ndtype float32 2147483648\n"    \
  "module Net\ntraining 1\nwithin Linear\npassed 20 24\nhead 0\n"                                  \
  "optimizer AdamW 536870912 2147483648 0\ninput float32 4x1024\nbatch 4 named\n"

/* 2 GiB of weights, 2 GiB of gradients, 4 GiB of state: 8 GiB in total, and there are 6. */
TEST(training_that_fits_at_no_batch_is_reported_with_its_sum)
{
  author a;
  start(&a, 6 * GIB, FULL_TUNING);
  run_layers(&a, 24, 2 * GIB / 24, 20, 4 * GIB / 20 - MIB);
  fail_with(&a, 200 * MIB, layer_stack(&a, 20));
  CHECK_TEXT(first_cause(&a), "optimizer_state");
  CHECK(says(&a, "no batch size fits"));
  CHECK(says(&a, "2.0 GiB of weights + 2.0 GiB of gradients + 4.0 GiB of AdamW state"));
  CHECK(strstr(fix_at(&a, 0), "8 bits") != NULL);
  CHECK(strstr(fix_at(&a, 0), "batch of 1 instead of 4") != NULL);
  CHECK(a.x.fixes.list[0].fits);
  CHECK(!says(&a, " of the batch at"));
  finish(&a);
}

/* The same on 3 GiB: weights and gradients alone do not fit, but adapters do. */
TEST(where_full_training_is_out_of_reach_adapters_are_named)
{
  author a;
  start(&a, 3 * GIB, FULL_TUNING);
  run_layers(&a, 24, 2 * GIB / 24, 4, 200 * MIB);
  fail_with(&a, 200 * MIB, layer_stack(&a, 4));
  CHECK_TEXT(first_cause(&a), "weights_too_big");
  bool adapters = false;
  for (uint32_t i = 0; i < a.x.fixes.count; i++) adapters |= strstr(fix_at(&a, i), "LoRA") != NULL;
  CHECK(adapters);
  finish(&a);
  start(&a, GIB, FULL_TUNING);
  run_layers(&a, 24, GIB / 24, 0, 0);
  fail_with(&a, GIB, layer_stack(&a, 0));
  CHECK(says(&a, "no batch fits ("));
  finish(&a);
}

/* One image of 4096x4096 through a network, without gradients. */
TEST(inference_of_one_image_reports_its_size)
{
  static const char facts[] =
      "program 1\nstep forward\ngrad 0\nautocast off\nparameters 1000000 4000000\ntrained 1000000 "
      "4000000\non_device 4000000\ngradients 0\ndtype float32 4000000\nmodule UNet\ntraining 0\n"
      "within Conv2d\npassed 3 24\nhead 0\ninput float32 1x3x4096x4096\nbatch 1 first\n";
  author a;
  start(&a, 6 * GIB, facts);
  run_layers(&a, 4, MIB, 2, 2 * GIB);
  fail_with(&a, 4 * GIB, layer_stack(&a, 3));
  CHECK(says(&a, "smaller images: "));
  CHECK(says(&a, "instead of 4096x4096"));
  CHECK(!says(&a, "optimizer"));
  CHECK(!says(&a, "of the batch at"));
  bool size_first = strstr(fix_at(&a, 0), "smaller images") != NULL;
  CHECK(size_first);
  finish(&a);
}

/* Many images: the fix is fewer at a time, with the number. */
TEST(inference_of_many_reports_how_many_fit)
{
  static const char facts[] =
      "program 1\nstep forward\ngrad 0\nautocast off\nparameters 1000000 4000000\ntrained 1000000 "
      "4000000\non_device 4000000\ngradients 0\ndtype float32 4000000\nmodule UNet\ntraining 0\n"
      "within Conv2d\npassed 3 24\nhead 0\ninput float32 32x3x512x512\nbatch 32 named\n";
  author a;
  start(&a, 6 * GIB, facts);
  run_layers(&a, 4, MIB, 2, 2 * GIB);
  fail_with(&a, 4 * GIB, layer_stack(&a, 3));
  const char *at = strstr(fix_at(&a, 0), "at most ");
  CHECK(at != NULL);
  long fits = strtol(at + strlen("at most "), NULL, 10);
  /* 6 of 16 GiB with the next output and one more block, less a tenth: what stays between passes
   * splits a cached block. */
  CHECK(fits >= 10 && fits < 12);
  CHECK(!says(&a, "optimizer"));
  finish(&a);
}

/* nn.Embedding(6000000, 256, device="cuda") */
TEST(an_embedding_table_is_weights_and_not_one_request)
{
  static const char facts[] =
      "program 1\nstep building\ngrad 1\nautocast off\nparameters 0 0\ntrained 0 0\non_device 0\n"
      "gradients 0\nmodule Embedding\ntraining 1\nwithin Embedding\nhead 0\n";
  static const char counted[] =
      "program 1\nstep building\ngrad 1\nautocast off\nparameters 1536000000 6144000000\n"
      "trained 1536000000 6144000000\non_device 0\ngradients 0\ndtype float32 6144000000\n"
      "module Recommender\ntraining 1\nwithin Embedding\nhead 0\n";
  for (int i = 0; i < 2; i++) {
    author a;
    start(&a, 4 * GIB, i == 0 ? facts : counted);
    uint32_t own =
        stack_of(&a, (frame_text[]){{"__init__", "model.py", 12}, {"main", TRAIN, 3}}, 2);
    take(&a, 10 * MIB, own);
    fail_with(&a, 6144000000, own);
    CHECK_TEXT(first_cause(&a), "weights_too_big");
    CHECK(!says(&a, "in parts (for part in"));
    if (i == 1) CHECK(says(&a, "keep the table on the host"));
    finish(&a);
  }
  static const char text[] =
      "Traceback (most recent call last):\n"
      "  File \"train.py\", line 14, in <module>\n"
      "    table = torch.nn.Embedding(6_000_000, 256, device=\"cuda\")\n"
      "  File \"/usr/lib/python3/site-packages/torch/nn/modules/sparse.py\", line 167, in "
      "__init__\n"
      "    torch.empty((num_embeddings, embedding_dim), **factory_kwargs),\n"
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 5.72 GiB. GPU 0 has a total "
      "capacity of 4.00 GiB of which 3.90 GiB is free. Of the allocated memory 10.00 MiB is "
      "allocated by PyTorch, and 2.00 MiB is reserved by PyTorch but unallocated.\n";
  explanation x;
  CHECK_OK(explain_message(&x, text, sizeof text - 1));
  CHECK_TEXT(cause_name(x.findings.list[0].id), "weights_too_big");
  explanation_free(&x);
}

/* 8 GiB of weights in bfloat16 on 6 GiB. */
TEST(weights_in_16_bits_are_not_advised_to_be_halved)
{
  static const char facts[] =
      "program 1\nstep building\ngrad 1\nautocast off\nparameters 4294967296 8589934592\ntrained "
      "4294967296 8589934592\non_device 5368709120\ngradients 0\ndtype bfloat16 8589934592\n"
      "module Llama\ntraining 0\nwithin Linear\nhead 0\n";
  author a;
  start(&a, 6 * GIB, facts);
  run_layers(&a, 20, 256 * MIB, 0, 0);
  fail_with(&a, 2 * GIB, build_stack(&a));
  CHECK_TEXT(first_cause(&a), "weights_too_big");
  CHECK(!says(&a, "half()") && !says(&a, "float16"));
  CHECK(strstr(fix_at(&a, 0), "8 bits") != NULL && a.x.fixes.list[0].fits);
  finish(&a);
}

/* 32 samples, of which 22 fit by the arithmetic: far more than 1. */
TEST(the_largest_batch_that_fits_is_named)
{
  static const char facts[] =
      "program 1\nstep forward\ngrad 1\nautocast off\nparameters 25165824 100663296\ntrained "
      "25165824 100663296\non_device 100663296\ngradients 0\ndtype float32 100663296\nmodule Net\n"
      "training 1\nwithin Linear\npassed 18 24\nhead 0\noptimizer AdamW 25165824 100663296 0\n"
      "input float32 32x1024\nbatch 32 named\n";
  author a;
  start(&a, 4 * GIB, facts);
  run_layers(&a, 24, 4 * MIB, 18, 200 * MIB);
  fail_with(&a, 400 * MIB, layer_stack(&a, 18));
  CHECK_TEXT(first_cause(&a), "batch_too_big");
  const char *at = strstr(fix_at(&a, 0), "use a batch of ");
  CHECK(at != NULL);
  long fits = strtol(at + strlen("use a batch of "), NULL, 10);
  CHECK(fits >= 16 && fits < 32);
  CHECK(a.x.fixes.list[0].replayed && a.x.fixes.list[0].fits);
  CHECK(strstr(fix_at(&a, 0), "every 2 of them") != NULL);
  finish(&a);
}

/* After the first forward pass the process loads the kernels of the backward pass and of the
 * optimizer (153 MiB), and cuBLAS gets a second workspace (32 MiB). The named batch leaves that
 * free beside weights, state, half of the gradients, all outputs and two gradients of them. */
TEST(a_named_batch_leaves_memory_for_what_is_loaded_later)
{
  static const char facts[] =
      "program 1\nstep forward\ngrad 1\nautocast off\nparameters 66060288 264241152\ntrained "
      "66060288 264241152\non_device 264241152\ngradients 0\ndtype float32 264241152\nmodule Net\n"
      "training 1\nwithin Linear\npassed 10 24\nhead 0\noptimizer AdamW 66060288 264241152 0\n"
      "input float32 512x1024\nbatch 512 named\n";
  author a;
  start(&a, 1536 * MIB, facts);
  run_layers(&a, 24, 21 * MIB / 2, 10, 120 * MIB);
  fail_with(&a, 120 * MIB, layer_stack(&a, 10));
  const char *at = strstr(fix_at(&a, 0), "use a batch of ");
  CHECK(at != NULL);
  uint64_t fits = strtoul(at + strlen("use a batch of "), NULL, 10);
  uint64_t weights = 252 * MIB, each = (24 + 2) * 120 * MIB / 512;
  CHECK(fits >= 48);
  CHECK(weights * 7 / 2 + fits * each + 185 * MIB <= 1536 * MIB);
  finish(&a);
}

/* model.eval() with gradients on. */
TEST(a_graph_that_nobody_uses_is_named_in_the_first_pass)
{
  static const char facts[] =
      "program 1\nstep forward\ngrad 1\nautocast off\nparameters 25165824 100663296\ntrained "
      "25165824 100663296\non_device 100663296\ngradients 0\ndtype float32 100663296\nmodule Net\n"
      "training 0\nwithin Linear\npassed 18 24\nhead 0\ninput float32 32x1024\nbatch 32 named\n";
  author a;
  start(&a, 4 * GIB, facts);
  run_layers(&a, 24, 4 * MIB, 18, 200 * MIB);
  fail_with(&a, 400 * MIB, layer_stack(&a, 18));
  CHECK_TEXT(first_cause(&a), "no_grad_missing");
  CHECK(strstr(fix_at(&a, 0), "no_grad()") != NULL && a.x.fixes.list[0].fits);
  finish(&a);
}

/* Three layers per block in a loop over blocks look like iterations that keep everything they make,
 * but the model has as many layers as were called. */
#define SERVING                                                                                    \
  "autocast off\nparameters 1000000 4000000\ntrained 1000000 4000000\non_device 4000000\n"         \
  "gradients 0\ndtype float32 4000000\nmodule Net\ntraining 0\nwithin Linear\nhead 0\n"            \
  "input float32 64x1024\nbatch 64 first\n"

/* Five passes hold all they compute to their end, as a cache of keys and values does. */
static const char *cause_of_held_passes(const char *facts) {
  author a;
  start(&a, 920 * MIB, facts);
  run_layers(&a, 8, MIB, 0, 0);
  uint32_t own = stack_of(&a, (frame_text[]){{"main", TRAIN, 9}}, 1);
  for (uint32_t pass = 0; pass < 5; pass++) {
    uint64_t made[9];
    made[0] = take(&a, 100 * MIB, own);
    for (uint32_t i = 0; i < 8; i++) made[1 + i] = take(&a, 100 * MIB, layer_stack(&a, i));
    for (uint32_t i = 0; i < 9; i++) add_event(&a, EVENT_FREE, made[i], 100 * MIB, 0);
  }
  take(&a, 100 * MIB, own);
  for (uint32_t i = 0; i < 7; i++) take(&a, 100 * MIB, layer_stack(&a, i));
  fail_with(&a, 200 * MIB, layer_stack(&a, 7));
  const char *first = first_cause(&a);
  finish(&a);
  return first;
}

TEST(a_pass_without_gradients_is_not_a_missing_no_grad)
{
  CHECK_TEXT(cause_of_held_passes("program 1\nstep forward\ngrad 1\n" SERVING), "no_grad_missing");
  CHECK_TEXT(cause_of_held_passes("program 1\nstep forward\ngrad 0\n" SERVING), "batch_too_big");
}

/* features.append(model(x)): two outputs of each pass stay, and the batch. */
static void keep_features(author *a, const char *facts) {
  start(a, 2 * GIB, facts);
  run_layers(a, 3, MIB, 0, 0);
  uint32_t own = stack_of(a, (frame_text[]){{"main", TRAIN, 8}}, 1);
  for (uint32_t iteration = 0; iteration < 12; iteration++) {
    take(a, 10 * MIB, own);
    for (uint32_t i = 0; i < 6; i++) {
      uint64_t made = take(a, 40 * MIB, layer_stack(a, i));
      if (i % 3 != 0) add_event(a, EVENT_FREE, made, 40 * MIB, 0);
    }
  }
  take(a, 10 * MIB, own);
  take(a, 40 * MIB, layer_stack(a, 0));
  fail_with(a, GIB, layer_stack(a, 1));
}

TEST(graphs_that_a_model_in_eval_mode_leaves_are_unnecessary)
{
  author a;
  keep_features(&a, "program 1\nstep forward\ngrad 1\n" SERVING);
  CHECK_TEXT(first_cause(&a), "no_grad_missing");
  CHECK(strstr(fix_at(&a, 0), "torch.no_grad()") != NULL);
  CHECK(says(&a, "in eval() mode, and nothing trains it"));
  finish(&a);
  keep_features(&a, "program 1\nstep forward\ngrad 0\n" SERVING);
  CHECK_TEXT(first_cause(&a), "leak");
  finish(&a);
}

TEST(the_layers_of_a_first_pass_are_not_iterations_of_a_loop)
{
  static const char facts[] =
      "program 1\nstep forward\ngrad 1\nautocast off\nparameters 25165824 100663296\ntrained "
      "25165824 100663296\non_device 100663296\ngradients 0\ndtype float32 100663296\nmodule Net\n"
      "training 1\nwithin Linear\npassed 30 34\nmodules 34\nhead 0\noptimizer SGD 25165824 "
      "100663296 0\ninput float32 32x1024\nbatch 32 named\n";
  author a;
  for (int informed = 0; informed < 2; informed++) {
    start(&a, 4 * GIB, informed ? facts : NULL);
    run_layers(&a, 34, 3 * MIB, 0, 0);
    for (int iteration = 0; iteration < 10; iteration++)
      for (uint32_t layer = 0; layer < 3; layer++) take(&a, 128 * MIB, layer_stack(&a, layer));
    fail_with(&a, 300 * MIB, layer_stack(&a, 0));
    if (informed) CHECK_TEXT(first_cause(&a), "batch_too_big");
    if (informed) CHECK(strstr(fix_at(&a, 0), "use a batch of ") != NULL);
    if (!informed) CHECK(strcmp(first_cause(&a), "batch_too_big") != 0);
    finish(&a);
  }
}

/* The driver's context counts against a run's limit: 2 GiB leave 1.5 for the allocator. */
TEST(what_the_driver_holds_of_a_limit_is_not_the_allocator_s)
{
  static const char text[] =
      "CUDA out of memory. Tried to allocate 600.00 MiB. GPU 0 has a total capacity of 2048.00 MiB "
      "of "
      "which 512.00 MiB is free. Of the allocated memory 1000.00 MiB is allocated by PyTorch, and "
      "24.00 MiB is reserved by PyTorch but unallocated.";
  author a;
  start(&a, 2 * GIB, NULL);
  CHECK_OK(recording_name(&a.r, &a.r.error_id, text, sizeof text - 1));
  add_event(&a, EVENT_SEGMENT_ALLOC, a.next, GIB, 0);
  take(&a, 1000 * MIB, build_stack(&a));
  fail_with(&a, 600 * MIB, build_stack(&a));
  CHECK_U64(evidence_capacity(&a.x.evidence), 1536 * MIB);
  finish(&a);
}

TEST(a_damaged_text_leaves_its_fields_unknown)
{
  program_facts p;
  static const char *const bad[] = {
      "",           "program",      "program 2\nbatch 4\n", "batch 4\nprogram 1\n",
      "program 1x", "program -1\n", "\nprogram 1\n",
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    program_read(&p, bad[i], strlen(bad[i]));
    CHECK_U64(p.batch, 0);
  }
  static const char odd[] =
      "program 1\nbatch 99999999999999999999999999\nparameters 18446744073709551615 "
      "18446744073709551615\ninput x 1x2x3x4x5x6x7x8x9x10\ninput\ninput \ninput float32 "
      "xxxx\ninput a 1\ninput b 2\noptimizer\noptimizer "
      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 1 2 3 "
      "fused fused\npassed 5000000 1\nmodule\nstep nowhere\ndtype float16\ngrad";
  program_read(&p, odd, sizeof odd - 1);
  CHECK(p.known && p.step == PROGRAM_UNKNOWN);
  CHECK_U64(p.batch, 0);
  CHECK_U64(p.parameter_bytes, 0);
  CHECK_U64(p.input_count, PROGRAM_INPUTS_MAX);
  CHECK_U64(p.inputs[0].rank, PROGRAM_DIMS_MAX);
  CHECK_U64(strlen(p.optimizer) < sizeof p.optimizer, 1);
  for (size_t cut = 0; cut < sizeof FULL_TUNING; cut++) program_read(&p, FULL_TUNING, cut);
}

/* The last layer makes 2 GiB of logits for 24 sequences. The loss needs as much three times more:
 * log-softmax and two gradients. 4 of the 24 fit, not 5. */
TEST(the_loss_of_a_vocabulary_is_still_to_come)
{
  static const char facts[] =
      "program 1\nstep forward\ngrad 1\nautocast off\nparameters 73400320 293601280\ntrained "
      "73400320 293601280\non_device 293601280\ngradients 0\ndtype float32 293601280\nmodule GPT\n"
      "training 1\nwithin Linear\npassed 23 24\nhead 50257\noptimizer AdamW 73400320 293601280 0\n"
      "input int64 24x512\nbatch 24 named\n";
  author a;
  start(&a, 3500 * MIB, facts);
  run_layers(&a, 24, 12 * MIB, 23, 96 * MIB);
  fail_with(&a, 2352 * MIB, layer_stack(&a, 23));
  CHECK_TEXT(first_cause(&a), "batch_too_big");
  CHECK(strstr(fix_at(&a, 0), "use a batch of 4 instead of 24") != NULL);
  finish(&a);
}

#define IMAGES                                                                                     \
  "program 1\ntorch 2.11.0\nstep forward\ngrad 1\nautocast off\nparameters 262144 1048576\n"       \
  "trained 262144 1048576\non_device 1048576\ngradients 0\ndtype float32 1048576\nmodule Net\n"    \
  "training 1\nwithin Sequential\npassed 5 8\nhead 0\noptimizer AdamW 262144 1048576 0\n"          \
  "input float32 256x3x128x128\nbatch 256 named\n"

/* Returns the batch that the first fix names, for a first pass through layers of this file. */
static unsigned batch_for(const char *file) {
  author a;
  unsigned batch = 0;
  start(&a, 3 * GIB, IMAGES);
  run_layers(&a, 8, MIB / 8, 0, 0);
  frame_text frames[] = {{"forward", file, 548},
                         {"forward", "model.py", 7},
                         {"_call_impl", MODULE, 1786},
                         {"main", TRAIN, 9}};
  for (uint32_t i = 0; i < 5; i++) {
    frames[1].line++;
    take(&a, 512 * MIB, stack_of(&a, frames, 4));
  }
  frames[1].line++;
  fail_with(&a, 512 * MIB, stack_of(&a, frames, 4));
  const char *named = strstr(fix_at(&a, 0), "a batch of ");
  CHECK(named != NULL);
  if (named != NULL) batch = (unsigned)strtoul(named + strlen("a batch of "), NULL, 10);
  finish(&a);
  return batch;
}

/* cuDNN's workspaces are not in a first pass that ran out: the backward pass needs them too. */
TEST(a_batch_for_convolutions_leaves_room_for_workspaces)
{
  unsigned dense = batch_for(LINEAR), images = batch_for("site-packages/torch/nn/modules/conv.py");
  CHECK(images < dense && images > dense / 2);
}

#define LOADING_LAYERS                                                                             \
  "program 1\ntorch 2.11.0\nstep loading\ngrad 0\nautocast off\nparameters 1610612736 "            \
  "3221225472\ntrained 0 0\non_device 0\ngradients 0\ndtype bfloat16 3221225472\nmodule Net\n"     \
  "training 0\nwithin Linear\n"

/* 3 GiB of 16-bit weights in layers of 128 MiB. In 8 bits they take 1.5 GiB, and running them takes
 * two unpacked layers and kernels. */
TEST(quantized_weights_leave_room_for_unpacked_layers)
{
  static const struct {
    uint64_t limit_bytes;
    const char *words;
  } cases[] = {{2400 * MIB, "to 8 bits"}, {2000 * MIB, "to 4 bits"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    author a;
    start(&a, cases[i].limit_bytes, LOADING_LAYERS);
    uint32_t build = build_stack(&a);
    uint64_t layers = cases[i].limit_bytes / (128 * MIB);
    for (uint64_t layer = 0; layer < layers; layer++) take(&a, 128 * MIB, build);
    fail_with(&a, 128 * MIB, build);
    CHECK_TEXT(first_cause(&a), "weights_too_big");
    CHECK(strstr(fix_at(&a, 0), cases[i].words) != NULL);
    finish(&a);
  }
}

#define ADVICE(kind, change) "advice " kind " 0\t" change "\tnone\n"
#define KEPT                 "at train.py:11: losses.append(loss.detach())"
#define TRAINS               "program 1\nstep forward\ngrad 1\noptimizer SGD 100 400 0\n"

/* A loop whose turns each leave a pass and a number: what losses.append(loss) does. */
static void keep_graphs(author *a, const char *facts) {
  start(a, 2 * GIB, facts);
  uint32_t batch = stack_of(a, (frame_text[]){{"main", TRAIN, 8}}, 1);
  uint32_t loss = stack_of(a, (frame_text[]){{"main", TRAIN, 10}}, 1);
  run_layers(a, 4, MIB, 0, 0);
  for (uint32_t i = 0; i < 12; i++) {
    take(a, 8 * MIB, batch);
    for (uint32_t layer = 0; layer < 4; layer++) take(a, 32 * MIB, layer_stack(a, layer));
    take(a, 4, loss);
  }
  fail_with(a, 512 * MIB, layer_stack(a, 0));
}

TEST(the_line_that_the_program_reports_is_the_first_fix)
{
  author a;
  keep_graphs(&a, TRAINS ADVICE("kept 12", KEPT));
  CHECK_TEXT(first_cause(&a), "graph_kept");
  CHECK_TEXT(fix_at(&a, 0), KEPT);
  CHECK(a.x.fixes.list[0].replayed);
  finish(&a);
}

TEST(a_graph_that_a_backward_pass_needs_is_never_cut)
{
  author a;
  keep_graphs(&a, TRAINS ADVICE("needed 12", "fewer turns for each backward pass"));
  CHECK_TEXT(first_cause(&a), "graph_kept");
  CHECK_TEXT(fix_at(&a, 0), "fewer turns for each backward pass");
  for (uint32_t i = 0; i < a.x.fixes.count; i++) CHECK(strstr(fix_at(&a, i), "detach") == NULL);
  finish(&a);
}

TEST(advice_that_cannot_be_read_is_left_out)
{
  static const char *const wrong[] = {"advice\n", "advice kept\n", "advice kept 3 0\tat x.py:1\n",
                                      "advice other 3 0\tat x.py:1: x\tnone\n",
                                      "advice kept 3 0\t\tnone\n"};
  char facts[1200], text[600];
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    program_facts p;
    snprintf(facts, sizeof facts, "%s%s", TRAINS, wrong[i]);
    program_read(&p, facts, strlen(facts));
    CHECK(p.known && p.advice_count == 0);
  }
  program_facts p;
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  snprintf(facts, sizeof facts, "%sadvice kept 1 0\t%s\tnone\n", TRAINS, text);
  program_read(&p, facts, strlen(facts));
  CHECK(p.advice_count == 0);
  text[sizeof p.advice[0].change - 1] = '\0';
  snprintf(facts, sizeof facts, "%sadvice kept 1 0\t%s\tnone\n", TRAINS, text);
  program_read(&p, facts, strlen(facts));
  CHECK(p.advice_count == 1 && strcmp(p.advice[0].change, text) == 0);
}

/* Nothing stays from step to step, but each step sums the losses of several passes. */
TEST(losses_that_are_summed_before_one_backward_pass)
{
  author a;
  start(&a, GIB, TRAINS ADVICE("summed 2", "at train.py:11: (loss / 8).backward()"));
  run_layers(&a, 4, MIB, 0, 0);
  for (uint32_t i = 0; i < 14; i++) take(&a, 64 * MIB, layer_stack(&a, i));
  fail_with(&a, 200 * MIB, layer_stack(&a, 15));
  CHECK_TEXT(first_cause(&a), "graph_kept");
  CHECK_TEXT(fix_at(&a, 0), "at train.py:11: (loss / 8).backward()");
  CHECK(says(&a, "The graphs of 2 passes wait for one backward pass"));
  finish(&a);
}

/* A program that says how many bytes a container of its has, and replaces entries by larger ones.
 */
static void fill_container(author *a, const char *facts) {
  start(a, GIB, facts);
  run_layers(a, 4, MIB, 0, 0);
  for (uint32_t i = 0; i < 12; i++) take(a, 64 * MIB + i * MIB, layer_stack(a, i));
  fail_with(a, 200 * MIB, layer_stack(a, 15));
}

#define SERVES "program 1\nstep forward\ngrad 0\ntraining 0\n"

/* A cache of a server: entries are replaced by larger ones, so no two iterations add the same. */
TEST(a_container_that_holds_most_is_named)
{
  author a;
  fill_container(&a, SERVES "advice values 0 805306368\tkeep fewer of the tensors\tnone\n");
  CHECK_TEXT(first_cause(&a), "leak");
  CHECK_TEXT(fix_at(&a, 0), "keep fewer of the tensors");
  CHECK(says(&a, "One container of the program holds about 768.0 MiB"));
  finish(&a);
}

/* Views of the same memory count once for each of them: more than is live says nothing. */
TEST(a_container_of_views_is_not_what_fills_memory)
{
  author a;
  fill_container(&a, SERVES "advice values 0 1805306368\tkeep fewer of the tensors\tnone\n");
  CHECK(!says(&a, "One container of the program"));
  finish(&a);
}

TEST_MAIN
