/* Need: counts what is still to come from the optimizer's class and the model's size. */
#include "advise/need.h"

#include <string.h>

#define ROOM      0.97 /* fraction of the capacity: the rest is lost to fragmentation */
#define WORK_MORE 1.1  /* times the activations: workspaces, pieces */
/* Fraction of the gradients that exist when activations peak. */
#define GRADIENTS_THEN 0.5
#define PASSED_LEAST   (1.0 / 64)
/* Kernels of the backward pass and of the optimizer are loaded when they first run: a context of
 * 527 MiB grew to 680 MiB (H200, driver 580, PyTorch 2.11). cuBLAS gets a second workspace of 32
 * MiB in autograd's thread. */
#define LATER_BYTES  ((UINT64_C(153) + 32) << 20)
#define HEAD_LEAST   4096  /* outputs of a last layer from which on the loss is counted apart */
#define OUTPUT_LEAST 65536 /* bytes of an output that is counted as a layer's */
#define LOSS_NUMBER  12 /* bytes an output takes: logits, log-softmax, and the gradient of both */

/* State in bytes for each byte of a trained weight. */
typedef struct optimizer_kind {
  const char *name;
  double each;
  uint32_t more; /* one more for each PROGRAM_… flag that is set */
  bool scratch;  /* its step over lists makes temporaries as large as the weights */
} optimizer_kind;

/* As PyTorch 2.11 and bitsandbytes 0.48 make them. */
static const optimizer_kind kinds[] = {
    {"Adam", 2, PROGRAM_AMSGRAD, true},
    {"AdamW", 2, PROGRAM_AMSGRAD, true},
    {"NAdam", 2, 0, true},
    {"RAdam", 2, 0, true},
    {"Adamax", 2, 0, true},
    {"Adadelta", 2, 0, true},
    {"Rprop", 2, 0, true},
    {"Adagrad", 1, 0, true},
    {"RMSprop", 1, PROGRAM_MOMENTUM | PROGRAM_CENTERED, true},
    {"SGD", 0, PROGRAM_MOMENTUM, false},
    {"ASGD", 1, 0, true},
    {"Lion", 1, 0, false},
    {"Muon", 1, 0, false},
    {"Adafactor", 0.02, 0, false},
};

static const optimizer_kind *kind_of(const char *name) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(name, kinds[i].name) == 0) return &kinds[i];
  return NULL;
}

static uint32_t bits_of(uint32_t flags) {
  uint32_t count = 0;
  for (; flags != 0; flags &= flags - 1) count++;
  return count;
}

static void find_state(need *n, const program_facts *p) {
  uint64_t trained = n->gradient_bytes;
  const optimizer_kind *k = kind_of(p->optimizer);
  if (k != NULL) {
    double each = k->each + bits_of(k->more & p->optimizer_flags);
    n->state_known = true;
    n->state_bytes = (uint64_t)(each * (double)trained);
    if (k->scratch && (p->optimizer_flags & (PROGRAM_FUSED | PROGRAM_SINGLE)) == 0)
      n->scratch_bytes = trained;
  } else if (strstr(p->optimizer, "8bit") != NULL) { /* one byte a number, two numbers in Adam's */
    n->state_known = true;
    n->state_bytes = p->optimizer_numbers * (strstr(p->optimizer, "Adam") != NULL ? 2 : 1);
    if (strncmp(p->optimizer, "Paged", 5) == 0) n->state_bytes = 0;
  }
  if (n->state_bytes < p->state_bytes) n->state_bytes = p->state_bytes;
}

/* Tokens of a language model's input, samples of others: each gets a row of the last layer. */
static uint64_t rows_of(const program_facts *p) {
  const program_input *in = &p->inputs[0];
  if (p->input_count == 0 || in->rank == 0) return p->batch;
  bool tokens = strncmp(in->dtype, "int", 3) == 0 && in->rank >= 2;
  return tokens && in->dims[1] < PROGRAM_BYTES_MAX / (in->dims[0] + 1) ? in->dims[0] * in->dims[1]
                                                                       : in->dims[0];
}

uint32_t need_layer_calls(const evidence *e) {
  uint32_t called = 0, last = 0;
  for (uint32_t i = 0; i < e->time.lifetime_count; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    if (e->phase_of[i] != PHASE_FORWARD || l->start < e->first_work_tick) continue;
    if (!e->has_stacks) called += l->bytes >= OUTPUT_LEAST;
    if (l->stack_id == 0) continue;
    if (l->stack_id != last && e->layer_of_stack[l->stack_id] != LAYER_NONE) called++;
    last = l->stack_id;
  }
  return called;
}

double need_whole_pass(const evidence *e) {
  uint32_t weights = 0, called = need_layer_calls(e);
  for (uint32_t i = 0; i < e->time.lifetime_count; i++)
    weights += e->phase_of[i] == PHASE_BUILD && evidence_live(e, &e->time.lifetimes[i]);
  double times = called > 0 ? weights / 2.0 / called : 1;
  return times < 1 ? 1 : times > 64 ? 64 : times;
}

/* Returns the largest output of the pass, including the refused one. */
static uint64_t largest_output(const evidence *e) {
  uint64_t largest = evidence_requested_bytes(e);
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    bool pass = e->phase_of[i] == PHASE_FORWARD || e->phase_of[i] == PHASE_USER;
    if (pass && l->start < e->fail_tick && l->bytes > largest) largest = l->bytes;
  }
  return largest;
}

/* Returns whether convolutions make the large outputs. Their workspaces, operands in another order,
 * are as large again. A first pass that runs out does not show them: cuDNN is refused one and takes
 * another kernel. */
static bool convolves(const evidence *e, uint64_t largest) {
  static const char file[] = "torch/nn/modules/conv.py";
  if (e->fail_stack_id != 0 && evidence_passes(e, e->fail_stack_id, "", file)) return true;
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    if (e->phase_of[i] == PHASE_FORWARD && l->bytes >= largest / 2 && l->stack_id != 0 &&
        evidence_passes(e, l->stack_id, "", file))
      return true;
  }
  return false;
}

/* Returns what backward needs in addition to everything that was saved: it computes an output's
 * gradient from the next one's. If the last output is that of many classes, the loss is still to
 * come: log-softmax, its gradient and the output's. */
static double backward_bytes(const evidence *e, uint64_t largest) {
  const program_facts *p = &e->program;
  uint64_t rows = rows_of(p);
  bool loss = p->step == PROGRAM_FORWARD && p->head >= HEAD_LEAST && p->passed_known &&
              p->passed + 1 >= p->modules && rows < PROGRAM_BYTES_MAX / p->head &&
              largest / 2 <= rows * p->head * sizeof(float);
  bool first = p->step == PROGRAM_FORWARD && p->gradient_bytes == 0;
  return (loss || (first && convolves(e, largest)) ? 3.0 : 2.0) * (double)largest;
}

/* Estimates the whole pass from the part that was reached. Without a graph nothing accumulates. */
static void find_work(need *n, const evidence *e) {
  const program_facts *p = &e->program;
  uint64_t asked = evidence_requested_bytes(e), all = e->n.live_bytes + asked;
  uint64_t fixed = p->device_bytes + p->gradient_bytes + p->state_bytes;
  n->work_now_bytes = all > fixed + asked ? all - fixed : asked;
  double work = (double)n->work_now_bytes;
  bool graph = !p->grad_known || p->grad;
  if (p->step == PROGRAM_FORWARD && graph) {
    double part = p->passed_known ? (p->passed + 0.5) / p->modules : 1 / need_whole_pass(e);
    if (part < 1) work /= part > PASSED_LEAST ? part : PASSED_LEAST;
    uint64_t rows = rows_of(p);
    if (p->head >= HEAD_LEAST && (!p->passed_known || p->passed + 1 < p->modules) &&
        rows < PROGRAM_BYTES_MAX / p->head)
      work += (double)(rows * p->head) * LOSS_NUMBER;
  }
  /* Without a graph, the next layer's output is live together with its input and this one. What is
   * kept between passes splits one of the cached blocks, so later passes need one more. */
  if (!graph) work += 2.0 * (double)largest_output(e);
  if (n->trains && p->step != PROGRAM_OPTIMIZER) work += backward_bytes(e, largest_output(e));
  n->work_bytes = work < 0x1p60 ? (uint64_t)work : UINT64_C(1) << 60;
}

uint64_t need_kernels_bytes(const need *n) {
  uint64_t eighth = n->capacity_bytes / 8;
  return LATER_BYTES < eighth ? LATER_BYTES : eighth;
}

void need_find(need *n, const evidence *e) {
  const program_facts *p = &e->program;
  *n = (need){0};
  if (!p->known || p->parameter_bytes == 0) return;
  n->known = true;
  n->trains = program_trains(p);
  n->capacity_bytes = evidence_capacity(e);
  n->weight_bytes = p->parameter_bytes;
  n->batch = p->batch;
  if (n->trains) {
    n->gradient_bytes = p->optimizer_bytes > 0 && p->optimizer_bytes < p->trained_bytes
                            ? p->optimizer_bytes
                            : p->trained_bytes;
    find_state(n, p);
  }
  if (p->autocast) n->copy_bytes = (p->parameter_bytes - p->narrow_bytes) / 2;
  if (p->narrow_bytes > p->parameter_bytes) n->copy_bytes = 0;
  bool first = n->trains && p->step == PROGRAM_FORWARD && p->gradient_bytes + p->state_bytes == 0;
  if (first) n->later_bytes = need_kernels_bytes(n);
  find_work(n, e);
}

static double state_of(const need *n, need_change c) {
  return (double)n->state_bytes * c.weights * c.trained * c.state;
}

uint64_t need_fixed_bytes(const need *n, need_change c) {
  double gradients = (double)n->gradient_bytes * c.weights * c.trained;
  double scratch = c.no_scratch ? 0 : (double)n->scratch_bytes * c.weights * c.trained;
  return (uint64_t)((double)n->weight_bytes * c.weights + gradients + state_of(n, c) + scratch);
}

uint64_t need_batch(const need *n, need_change c, double work) {
  double room = ROOM * (double)(n->capacity_bytes - n->later_bytes);
  if (!n->known || n->capacity_bytes == 0 || (double)need_fixed_bytes(n, c) > room) return 0;
  double beside = (double)n->weight_bytes * c.weights + state_of(n, c) +
                  GRADIENTS_THEN * (double)n->gradient_bytes * c.weights * c.trained +
                  (c.weights < 1 ? 0 : (double)n->copy_bytes);
  double left = room - beside, all = (double)n->work_bytes * WORK_MORE * work;
  uint64_t batch = n->batch > 0 ? n->batch : 1;
  if (left <= 0) return 0;
  if (all <= left) return batch;
  return (uint64_t)((double)batch * left / all);
}
