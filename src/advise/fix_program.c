/* Fix program: fixes for a program that reported what it does (program.h): batches in samples,
 * inputs by their size, and changes to training and to the weights that the arithmetic shows to be
 * enough. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "advise/fix_case.h"

#define ROOM       0.97 /* fraction of the capacity, as in need.c */
#define EVEN_FROM  16   /* batches from here on are named in steps of 8 … */
#define SIDE_STEP  32   /* … and the sides of images in steps of 32 */
#define SIDE_LEAST 64
#define ADAPTERS   0.01 /* fraction of the weights that LoRA trains */

bool fix_knows_program(const fix_case *m) {
  return m->f->need.known && evidence_capacity(m->e) > 0;
}

static uint64_t even(uint64_t batch) {
  return batch >= EVEN_FROM ? batch / 8 * 8 : batch;
}

/* ---- the batch ---- */

/* Finds the largest batch that fits by the arithmetic and by a replay; 0: none. */
static stow_status largest_batch(fix_case *m, uint64_t *batch) {
  const need *n = &m->f->need;
  uint64_t capacity = evidence_capacity(m->e) - n->later_bytes;
  uint64_t most = need_batch(n, NEED_AS_IT_IS, 1);
  if (most >= n->batch) most = n->batch > 1 ? n->batch - 1 : 0;
  for (*batch = even(most); *batch > 0; *batch = even(*batch * 7 / 8)) {
    whatif_result r;
    fix_scale_batch(m, (double)*batch / (double)n->batch);
    STOW_TRY(whatif_run(&m->w, &r, false, capacity));
    if (r.finishes) break;
  }
  return STOW_OK;
}

/* Returns how many times smaller one input must be to fit. */
static double shrink_of(const need *n) {
  double fixed = (double)n->weight_bytes, room = ROOM * (double)n->capacity_bytes - fixed;
  double one = (double)n->work_bytes / (n->batch > 0 ? (double)n->batch : 1);
  return room <= 0 || one <= 0 ? 0 : room / one;
}

/* Returns the factor for each side of an image that leaves that fraction of its pixels, in steps of
 * 1/64. */
static double side_of(double part) {
  double side = 1;
  while (side > 0 && side * side > part) side -= 1.0 / 64;
  return side;
}

/* Suggests a smaller image or a shorter sequence, because one sample does not fit. */
static void smaller_input(fix_case *m) {
  const program_facts *p = &m->e->program;
  const program_input *in = &p->inputs[0];
  double part = shrink_of(&m->f->need) * 0.9;
  if (part > 0.9) part = 0.9;
  fix *x = NULL;
  bool image = p->input_count > 0 && in->rank == 4;
  bool sequence = p->input_count > 0 && (in->rank == 2 || in->rank == 3);
  if (image && part > 0) {
    double side = side_of(part);
    uint64_t high = (uint64_t)((double)in->dims[2] * side) / SIDE_STEP * SIDE_STEP,
             wide = (uint64_t)((double)in->dims[3] * side) / SIDE_STEP * SIDE_STEP;
    if (high >= SIDE_LEAST && wide >= SIDE_LEAST)
      x = fix_add(m, "less detail, or seams between tiles",
                  "smaller images: %" PRIu64 "x%" PRIu64 " instead of %" PRIu64 "x%" PRIu64
                  ", or tiles of that size, one after the other",
                  high, wide, in->dims[2], in->dims[3]);
  } else if (sequence && part > 0 && (double)in->dims[1] * part >= 1) {
    x = fix_add(m, "the text that is cut off, or more passes",
                "shorter sequences: %" PRIu64 " instead of %" PRIu64
                ", or the sequence in parts of that length",
                (uint64_t)((double)in->dims[1] * part), in->dims[1]);
  }
  if (x == NULL && part > 0)
    x = fix_add(m, "passes over parts", "smaller inputs: at most %.0f%% of this one at a time",
                part * 100);
  if (x != NULL) {
    uint64_t work = m->f->need.work_now_bytes;
    fix_estimate(x, (uint64_t)((double)work * (1 - part)), true);
  }
}

static stow_status infer_fewer(fix_case *m, uint64_t batch) {
  const program_facts *p = &m->e->program;
  char at[256];
  fix *x = fix_add(m, "none: the results are the same",
                   "run at most %" PRIu64 " %s at a time instead of %" PRIu64
                   " at %s: for part in x.split(%" PRIu64 "): …",
                   batch, program_samples(p), p->batch,
                   fix_place(m, at, m->e->caller_of_stack[m->e->fail_stack_id]), batch);
  fix_scale_batch(m, (double)batch / (double)p->batch);
  return fix_replay(m, x, false);
}

static stow_status train_fewer(fix_case *m, uint64_t batch) {
  const program_facts *p = &m->e->program;
  uint64_t times = (p->batch + batch - 1) / batch;
  char at[256];
  fix *x =
      fix_add(m, "more, smaller steps",
              "use a batch of %" PRIu64 " instead of %" PRIu64
              " at %s, the largest that fits; for the same training step the optimizer after "
              "every %" PRIu64 " of them",
              batch, p->batch, fix_place(m, at, m->e->caller_of_stack[m->e->fail_stack_id]), times);
  fix_scale_batch(m, (double)batch / (double)p->batch);
  return fix_replay(m, x, false);
}

static void without_graph(fix_case *m) {
  char at[256];
  fix_estimate(fix_add(m, "none, if nothing is trained there",
                       "if nothing is trained there, put `with torch.inference_mode():` around the "
                       "call at %s",
                       fix_place(m, at, m->e->caller_of_stack[m->e->fail_stack_id])),
               m->f->need.work_now_bytes / 2, false);
}

stow_status fix_batch_counted(fix_case *m) {
  const program_facts *p = &m->e->program;
  const need *n = &m->f->need;
  bool graph = !p->grad_known || p->grad;
  uint64_t batch = 0;
  if (n->batch > 1) STOW_TRY(largest_batch(m, &batch));
  if (batch > 0)
    STOW_TRY(n->trains ? train_fewer(m, batch) : infer_fewer(m, batch));
  else if (n->trains)
    STOW_TRY(fix_training(m));
  if (!n->trains && graph) without_graph(m);
  if (batch == 0) smaller_input(m);
  return fix_pass(m);
}

/* ---- training ---- */

typedef struct way {
  const char *words, *cost;
  need_change change;
  bool wide;    /* only for 32-bit weights */
  bool scratch; /* only for optimizers that need temporaries */
} way;

/* Cheapest first. */
static const way ways[] = {
    {"make the optimizer with fused=True: its step then makes no temporaries as large as the "
     "weights",
     "usually none",
     {1, 1, 1, true},
     false,
     true},
    {"keep the optimizer's state in 8 bits: bitsandbytes.optim.AdamW8bit",
     "usually none; needs the bitsandbytes package",
     {1, 1, 0.25, true},
     false,
     false},
    {"keep weights, gradients and state in 16 bits: model.to(torch.bfloat16) before the optimizer "
     "is made",
     "some accuracy of small updates",
     {0.5, 1, 1, true},
     true,
     false},
    {"16-bit weights and an 8-bit optimizer: model.to(torch.bfloat16), then "
     "bitsandbytes.optim.AdamW8bit",
     "some accuracy of small updates; needs the bitsandbytes package",
     {0.5, 1, 0.25, true},
     true,
     false},
    {"keep the optimizer's state on the host: torchao's CPUOffloadOptimizer, or DeepSpeed ZeRO-2 "
     "with offload",
     "the state crosses the bus at every step",
     {1, 1, 0, true},
     false,
     false},
    {"train adapters instead of all weights: LoRA (peft.get_peft_model)",
     "smaller changes to the model",
     {1, ADAPTERS, 1, true},
     false,
     false},
    {"train adapters over 16-bit weights: torch_dtype=torch.bfloat16 and LoRA (peft)",
     "smaller changes to the model",
     {0.5, ADAPTERS, 1, true},
     true,
     false},
};
#define WAYS_SHOWN 3

static bool is_one_of(const char *name, const char *const *names, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(name, names[i]) == 0) return true;
  return false;
}

/* Returns the words of a fix. Only some of PyTorch's optimizers have a fused step, and bitsandbytes
 * has some in 8 bits. */
static const char *words_for(const way *w, const char *optimizer, char text[300]) {
  static const char *const fused[] = {"Adam", "AdamW", "Adagrad", "SGD"};
  static const char *const eight[] = {"Adam", "AdamW", "SGD", "Lion", "Adagrad", "RMSprop"};
  static const char class[] = "AdamW8bit";
  const char *at = strstr(w->words, class);
  if (w->scratch && !is_one_of(optimizer, fused, sizeof fused / sizeof *fused))
    return "make the optimizer with foreach=False: its step then makes no temporaries as large as "
           "the weights";
  if (at == NULL || !is_one_of(optimizer, eight, sizeof eight / sizeof *eight)) return w->words;
  snprintf(text, 300, "%.*s%s8bit%s", (int)(at - w->words), w->words, optimizer,
           at + sizeof class - 1);
  return text;
}

static void add_way(fix_case *m, const way *w, uint64_t batch) {
  const need *n = &m->f->need;
  char text[300];
  uint64_t fixed = need_fixed_bytes(n, w->change), now = need_fixed_bytes(n, NEED_AS_IT_IS);
  fix *x = fix_add(m, w->cost, "%s: %s of %s before the first sample",
                   words_for(w, m->e->program.optimizer, text), cause_size(fixed),
                   cause_size(n->capacity_bytes));
  if (n->batch > 1 && batch < n->batch)
    fix_also(x, "; then a batch of %" PRIu64 " instead of %" PRIu64 " fits", even(batch), n->batch);
  fix_estimate(x, now > fixed ? now - fixed : 0, true);
}

stow_status fix_training(fix_case *m) {
  const need *n = &m->f->need;
  uint32_t shown = 0;
  bool narrow = program_is_narrow(&m->e->program);
  for (size_t i = 0; i < sizeof ways / sizeof *ways && shown < WAYS_SHOWN; i++) {
    const way *w = &ways[i];
    if ((w->wide && narrow) || (w->scratch && n->scratch_bytes == 0)) continue;
    if (w->change.state < 1 && n->state_bytes == 0) continue;
    uint64_t batch = need_batch(n, w->change, 1);
    if (batch == 0) continue;
    add_way(m, w, batch);
    shown++;
  }
  if (shown > 0) return STOW_OK;
  char sum[320];
  need_sum(n, m->e->program.optimizer, sum, sizeof sum);
  fix_estimate(fix_add(m, "another device, or another model",
                       "no batch fits (%s): a smaller model, a device with more memory, or several "
                       "with FSDP (torch.distributed.fsdp.fully_shard)",
                       sum),
               MESSAGE_UNKNOWN, false);
  return STOW_OK;
}

/* ---- weights ---- */

static bool weights_fit(const need *n, double part) {
  return (double)n->weight_bytes * part <= ROOM * (double)n->capacity_bytes;
}

/* Returns whether quantized weights fit with what runs them: a layer is unpacked to 16 bits, scaled
 * and multiplied (two copies of the largest one loaded), and kernels take memory when they first
 * run. With 94% of the capacity in such tensors a program still failed (docs/MEASUREMENTS.md,
 * serve_bf16_layers). */
static bool quantized_fit(const fix_case *m, double part) {
  const evidence *e = m->e;
  const need *n = &m->f->need;
  uint64_t largest = 0;
  for (uint32_t i = 0; i < e->time.lifetime_count; i++) {
    bool weight = e->phase_of[i] == PHASE_BUILD || e->phase_of[i] == PHASE_LOAD;
    if (weight && e->time.lifetimes[i].bytes > largest) largest = e->time.lifetimes[i].bytes;
  }
  double unpacked = (program_is_narrow(&e->program) ? 2.0 : 1.0) * (double)largest;
  double room = ROOM * (double)n->capacity_bytes - (double)need_kernels_bytes(n);
  return (double)n->weight_bytes * part + unpacked <= room;
}

static void add_weights(fix_case *m, double part, const char *cost, const char *words) {
  const need *n = &m->f->need;
  uint64_t bytes = (uint64_t)((double)n->weight_bytes * part);
  fix_estimate(fix_add(m, cost, "%s: %s instead of %s, of %s", words, cause_size(bytes),
                       cause_size(n->weight_bytes), cause_size(n->capacity_bytes)),
               n->weight_bytes - bytes, weights_fit(n, part));
}

/* Returns whether it is an embedding table that does not fit, although the rows of a batch do. */
static bool is_table(const program_facts *p) {
  return strncmp(p->within, "Embedding", 9) == 0 &&
         (p->step == PROGRAM_BUILDING || p->step == PROGRAM_LOADING);
}

stow_status fix_weights_counted(fix_case *m) {
  const program_facts *p = &m->e->program;
  const need *n = &m->f->need;
  if (n->trains && p->step != PROGRAM_BUILDING && p->step != PROGRAM_LOADING)
    return fix_training(m);
  bool narrow = program_is_narrow(p);
  if (is_table(p))
    fix_estimate(fix_add(m, "the rows of each batch cross the bus",
                         "keep the table on the host and move only the rows that are looked up: "
                         "table.to(\"cpu\"), then table(ids.cpu()).to(\"cuda\")"),
                 evidence_requested_bytes(m->e), true);
  if (!narrow && weights_fit(n, 0.5))
    add_weights(m, 0.5, "half precision",
                "put the weights on the device in 16 bits: model.to(torch.bfloat16) before it is "
                "moved (torch_dtype=torch.bfloat16 when loading)");
  double eight = narrow ? 0.5 : 0.25, four = eight / 2;
  if (quantized_fit(m, eight))
    add_weights(m, eight, "some accuracy; for running, not for full training",
                "quantize the weights to 8 bits (bitsandbytes load_in_8bit, torchao)");
  else if (quantized_fit(m, four))
    add_weights(m, four, "some accuracy; for running, not for full training",
                "quantize the weights to 4 bits (bitsandbytes load_in_4bit, torchao)");
  fix_estimate(
      fix_add(m, "layers on the host cross the bus at every pass",
              "keep a part of the layers on the host: device_map=\"auto\" (accelerate), or "
              "stowage run --spill auto"),
      MESSAGE_UNKNOWN, true);
  return STOW_OK;
}
