/* Need: causes from what the program reported about itself (program.h): training that does not fit
 * at any batch size, and a pass that builds an unnecessary graph.
 *
 * The recording ends before gradients and the optimizer's state are allocated, so it cannot show
 * that they do not fit. */
#include <stdio.h>
#include <string.h>

#include "advise/causes.h"

#define FIXED_SURE  0.94
#define ROOM        0.97 /* fraction of the capacity, as in need.c */
#define BESIDE_NEED 0.5  /* what a batch counts where none fits */
#define EVAL_SURE   0.88 /* model.eval(), gradients on, nothing that trains */
#define WORK_LEAST  0.3  /* least fraction of the live memory that a graph must be */

void need_sum(const need *n, const char *optimizer, char *text, size_t size) {
  char state[96] = "", scratch[64] = "";
  if (n->state_bytes > 0)
    snprintf(state, sizeof state, " + %s of %.40s state", cause_size(n->state_bytes), optimizer);
  if (n->scratch_bytes > 0)
    snprintf(scratch, sizeof scratch, " + %s of temporaries", cause_size(n->scratch_bytes));
  snprintf(text, size, "%s of weights + %s of gradients%s%s = %s", cause_size(n->weight_bytes),
           cause_size(n->gradient_bytes), state, scratch,
           cause_size(need_fixed_bytes(n, NEED_AS_IT_IS)));
}

static void say_sum(cause *c, const evidence *e, const need *n) {
  char sum[320];
  need_sum(n, e->program.optimizer, sum, sizeof sum);
  cause_say(c, "a training step needs %s before the first sample; %s is available", sum,
            cause_size(n->capacity_bytes));
}

/* Weights, gradients and state alone exceed the capacity: no batch fits. */
static void training_does_not_fit(cause *all, const evidence *e, const need *n) {
  uint64_t fixed = need_fixed_bytes(n, NEED_AS_IT_IS);
  double room = ROOM * (double)n->capacity_bytes;
  if (!n->trains || n->capacity_bytes == 0 || (double)fixed <= room) return;
  bool model = (double)n->weight_bytes + (double)n->gradient_bytes > room;
  cause *c = &all[model ? CAUSE_WEIGHTS_TOO_BIG : CAUSE_OPTIMIZER_STATE];
  if (c->confidence < FIXED_SURE) {
    c->confidence = FIXED_SURE;
    cause_head(
        c,
        "Training needs %s before the first sample, but only %s is available: no batch size fits",
        cause_size(fixed), cause_size(n->capacity_bytes));
  }
  say_sum(c, e, n);
  all[CAUSE_BATCH_TOO_BIG].confidence *= BESIDE_NEED;
  all[CAUSE_ONE_SPIKE].confidence *= BESIDE_NEED;
  if (!model) all[CAUSE_WEIGHTS_TOO_BIG].confidence *= BESIDE_NEED;
}

/* model.eval() was called and nothing trains, so the graph is unnecessary. */
static void graph_for_nothing(cause *c, const evidence *e, const need *n) {
  const program_facts *p = &e->program;
  if (!program_needs_no_graph(p)) return;
  if (p->step != PROGRAM_FORWARD && p->step != PROGRAM_OTHER) return;
  if (evidence_share(n->work_now_bytes, e->n.live_bytes + evidence_requested_bytes(e)) < WORK_LEAST)
    return;
  if (c->confidence >= EVAL_SURE || p->trained_bytes == 0) return;
  c->confidence = EVAL_SURE;
  cause_head(c, "%s is in eval() mode and nothing trains it, but its pass builds a graph: %s",
             p->module[0] != '\0' ? p->module : "The model", cause_size(n->work_now_bytes));
  cause_say(c, "gradients are recorded (torch.is_grad_enabled()), and there is no optimizer, no "
               "gradient and no backward pass");
}

void cause_of_program(cause *all, const evidence *e, const findings *f) {
  const need *n = &f->need;
  const program_facts *p = &e->program;
  if (!n->known || f->growth.found) return;
  training_does_not_fit(all, e, n);
  graph_for_nothing(&all[CAUSE_NO_GRAD_MISSING], e, n);
  if (p->step == PROGRAM_BUILDING && p->parameter_bytes > p->device_bytes)
    cause_say(&all[CAUSE_WEIGHTS_TOO_BIG], "%s has %s of weights; %s of that is on the device",
              p->module[0] != '\0' ? p->module : "the model", cause_size(p->parameter_bytes),
              cause_size(p->device_bytes));
  if (program_infers(p) && p->batch == 1)
    cause_head(&all[CAUSE_BATCH_TOO_BIG],
               "One of the %s is too large to run at once: %s live, %s more requested",
               program_samples(p), cause_size(e->n.live_bytes),
               cause_size(evidence_requested_bytes(e)));
  if (p->batch > 1 && p->input_count > 0)
    cause_say(&all[CAUSE_BATCH_TOO_BIG], "the batch: %llu %s", (unsigned long long)p->batch,
              program_samples(p));
}
