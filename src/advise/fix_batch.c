/* What one iteration takes: smaller batches, recomputing, half precision, a spike in parts. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "advise/fix_case.h"

/* Fraction of the capacity that a smaller batch may use at the failure: the rest is for later
 * requests. */
#define ROOM_LEFT 0.75
/* Factor from a forward pass to the peak of a step: what backward holds in addition, and a loss
 * over many classes (a language model's logits, three times and more). */
#define LOSS_AND_BACKWARD 4.0
#define FIRST_PASS_ROOM   0.9   /* the same if later memory is included */
#define WORK_RECOMPUTED   0.5   /* fraction of the activations: 0.45 to 0.5 were measured */
#define LAYER_LEAST       65536 /* bytes of an output that is counted as a layer's */
#define ITERATIONS_LEAST  3     /* complete iterations without a backward pass: no training */

static bool in_this_iteration(const evidence *e, uint32_t i) {
  uint32_t from = e->iteration_tick > 0 ? e->iteration_tick : e->first_work_tick;
  const lifetime *l = &e->time.lifetimes[i];
  phase p = e->phase_of[i];
  return l->start >= from && l->start < e->fail_tick && (p == PHASE_FORWARD || p == PHASE_USER);
}

void fix_scale_batch(fix_case *m, double factor) {
  whatif_reset(&m->w);
  for (uint32_t i = m->e->time.before_count; i < m->e->time.lifetime_count; i++)
    if (in_this_iteration(m->e, i)) whatif_scale(&m->w, i, factor);
  whatif_scale_failed(&m->w, factor);
}

/* Returns whether it failed before the first backward pass: the loss, and what backward holds, are
 * still to come. */
static bool in_first_pass(const evidence *e) {
  return e->iteration_tick == 0 && (e->fail_phase == PHASE_FORWARD || e->fail_phase == PHASE_USER);
}

/* Returns the same, including what training adds later: gradients, and a state of two numbers per
 * weight. */
static uint32_t parts_of_first_pass(const evidence *e, uint64_t asked, uint64_t capacity) {
  uint64_t weights = e->live_by_phase[PHASE_BUILD] + e->live_by_phase[PHASE_LOAD];
  double pass = (double)(e->live_by_phase[PHASE_FORWARD] + e->live_by_phase[PHASE_USER] + asked) *
                need_whole_pass(e) * LOSS_AND_BACKWARD;
  double room = FIRST_PASS_ROOM * (double)capacity - 4.0 * (double)weights;
  uint32_t parts = 2;
  while (parts < 64 && pass / parts > room) parts *= 2;
  return parts;
}

/* Finds the smallest number of halvings that leaves enough memory for what comes after the failure.
 * If a smaller batch succeeded before, that one is used. */
static stow_status enough_halvings(fix_case *m, uint32_t *parts) {
  uint64_t capacity = evidence_capacity(m->e);
  *parts = 2;
  if (in_first_pass(m->e) && capacity > 0)
    *parts = parts_of_first_pass(m->e, evidence_requested_bytes(m->e), capacity);
  while (*parts < 64 && *parts < m->f->bigger) *parts *= 2;
  for (; *parts < 64; *parts *= 2) {
    whatif_result r;
    fix_scale_batch(m, 1.0 / *parts);
    STOW_TRY(whatif_run(&m->w, &r, false, capacity));
    if (r.finishes && (double)r.failure_bytes <= ROOM_LEFT * (double)capacity) break;
    if (capacity == 0 || r.failure_bytes >= m->base.failure_bytes) break; /* nothing scales */
  }
  fix_scale_batch(m, 1.0 / *parts);
  return STOW_OK;
}

static const char *half_precision(const char *device) {
  static const char *const without[] = {"T4",     "V100",   "P100",   "P4",    "K80",
                                        "GTX 10", "GTX 16", "RTX 20", "TITAN", "Quadro"};
  for (size_t i = 0; i < sizeof without / sizeof *without; i++)
    if (strstr(device, without[i]) != NULL)
      return "run forward under torch.autocast(\"cuda\", dtype=torch.float16) with a "
             "torch.amp.GradScaler (this device has no bfloat16)";
  if (device[0] == '\0')
    return "run forward under torch.autocast(\"cuda\", dtype=torch.bfloat16); on devices without "
           "bfloat16 (T4, V100) dtype=torch.float16 with a torch.amp.GradScaler";
  return "run forward under torch.autocast(\"cuda\", dtype=torch.bfloat16)";
}

/* Sets *on if forward runs under autocast: it then makes 16-bit copies of the weights, allocations
 * of half a weight's size. */
static stow_status autocast_is_on(const evidence *e, bool *on) {
  map halves = {0};
  uint32_t found = 0;
  stow_status status = STOW_OK;
  for (uint32_t i = 0; i < e->time.lifetime_count && status == STOW_OK; i++)
    if (e->phase_of[i] == PHASE_BUILD && e->time.lifetimes[i].bytes >= 65536)
      status = map_put(&halves, e->time.lifetimes[i].bytes / 2, 0);
  for (uint32_t i = 0; i < e->time.lifetime_count; i++) {
    if (e->phase_of[i] != PHASE_FORWARD) continue;
    uint64_t *seen = map_get(&halves, e->time.lifetimes[i].bytes);
    if (seen != NULL && (*seen)++ == 0) found++;
  }
  *on = found >= 3 && found * 2 >= halves.count;
  map_free(&halves);
  return status;
}

/* Computes how much of what is live at a tick autocast halves: outputs of layers (convolutions,
 * products, and elementwise results). Softmax, losses, layer norms and sums with a 32-bit tensor
 * stay in 32 bits; a program's own lines within the model therefore count half. So does the model's
 * output, because the loss makes a copy of it in 32 bits. `work`: everything that grows with the
 * batch. */
static double halved_at(const evidence *e, uint32_t tick, uint32_t output, double *work) {
  uint64_t layers = 0, others = 0, all = 0;
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    phase p = e->phase_of[i];
    if (!lifetime_live(l, tick)) continue;
    if (p == PHASE_FORWARD || p == PHASE_USER || p == PHASE_BACKWARD) all += l->bytes;
    if (p != PHASE_FORWARD || i == output) continue;
    if (e->layer_of_stack[l->stack_id] == LAYER)
      layers += l->bytes;
    else if (e->layer_of_stack[l->stack_id] == LAYER_NONE)
      others += l->bytes;
  }
  *work = (double)all;
  return (double)layers / 2 + (double)others / 8;
}

/* Returns the last allocation of an iteration's forward pass before its backward pass. */
static uint32_t output_of_iteration(const evidence *e, const loop_iteration *r) {
  uint32_t output = UINT32_MAX;
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    if (l->start < r->start || l->start >= r->end || l->bytes < LAYER_LEAST) continue;
    if (e->phase_of[i] == PHASE_BACKWARD) break;
    if (e->phase_of[i] == PHASE_FORWARD) output = i;
  }
  return output;
}

static bool calls_embedding(const evidence *e) {
  for (uint32_t s = 1; s <= e->source->stack_count; s++)
    if (e->phase_of_stack[s] == PHASE_FORWARD && evidence_passes(e, s, "", "nn/modules/sparse.py"))
      return true;
  return false;
}

/* Returns what autocast saves. A failure in the forward pass comes before the loss, which stays in
 * 32 bits: an iteration that ran backward shows which part of the whole autocast halves. Without
 * stacks, four tenths of everything, as measured on convolutions and transformers. */
static uint64_t autocast_saves(const evidence *e) {
  if (!e->has_stacks) return e->live_by_phase[PHASE_FORWARD] * 4 / 10;
  double now, then, saves = halved_at(e, e->fail_tick, UINT32_MAX, &now);
  const loop_iteration *r = e->loop.count < 2 ? NULL : &e->loop.list[e->loop.count - 2];
  if (r == NULL || !r->backward)
    return (uint64_t)(calls_embedding(e) ? saves / 2
                                         : saves); /* a loss over a vocabulary follows */
  double part = halved_at(e, evidence_peak_of(e, r), output_of_iteration(e, r), &then);
  return (uint64_t)(then > 0 && part / then * now < saves ? part / then * now : saves);
}

stow_status fix_pass(fix_case *m) {
  const evidence *e = m->e;
  const program_facts *p = &e->program;
  const need *n = &m->f->need;
  uint64_t batch = n->batch > 0 ? n->batch : 1;
  bool trains = (!n->known || n->trains) && evidence_may_train(e);
  if (!e->recomputes && trains)
    fix_estimate(fix_add(m, "one more forward pass, about a third more time",
                         "recompute activations: torch.utils.checkpoint.checkpoint(block, x, "
                         "use_reentrant=False) around each block of several layers"),
                 e->live_by_phase[PHASE_FORWARD] * 11 / 20,
                 n->known && need_batch(n, NEED_AS_IT_IS, WORK_RECOMPUTED) >= batch);
  bool autocast;
  STOW_TRY(autocast_is_on(e, &autocast));
  if (!trains && !autocast && !p->autocast && !program_is_narrow(p))
    fix_estimate(fix_add(m, "16-bit arithmetic",
                         "run it in 16 bits: model.half() and x.half(), or under "
                         "torch.autocast(\"cuda\", dtype=torch.float16)"),
                 n->known ? n->work_now_bytes / 2 + n->weight_bytes / 2 : e->n.live_bytes / 2,
                 need_batch(n, (need_change){.weights = 0.5, .trained = 1, .state = 1}, 0.5) >=
                     batch);
  else if (!autocast && !p->autocast && !program_is_narrow(p))
    fix_estimate(fix_add(m, "16-bit arithmetic in forward", "%s", half_precision(m->device)),
                 autocast_saves(e), false);
  return STOW_OK;
}

/* Names the part of the batch that fits another device. The recording has whole steps, and the part
 * was replayed through all of them. */
static stow_status part_that_fits(fix_case *m) {
  const evidence *e = m->e;
  uint32_t part = e->fits_part, whole = e->fits_whole, times = (whole + part - 1) / part;
  bool trains = evidence_may_train(e);
  const char *cost = trains ? "more, smaller steps" : "more, smaller passes";
  char at[256];
  fix_place(m, at, e->caller_of_stack[e->fail_stack_id]);
  fix *x = e->fits_samples
               ? fix_add(m, cost, "use a batch of %u instead of %u at %s, the largest that fits",
                         part, whole, at)
               : fix_add(m, cost, "use %u%% of the batch at %s, the most that fits",
                         part * 100 / whole, at);
  if (e->fits_expandable) fix_also(x, ", with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
  if (trains)
    fix_also(x, "; for the same training step the optimizer after every %u of them", times);
  fix_scale_batch(m, (double)part / whole);
  STOW_TRY(fix_replay(m, x, false));
  if (x != NULL) x->fits = true;
  return fix_pass(m);
}

/* Returns whether the program only runs forward: iterations were complete, and nothing ran
 * backward. */
static bool only_infers(const evidence *e) {
  if (!evidence_may_train(e)) return true;
  return e->whole == NULL && e->has_stacks && e->loop.count >= ITERATIONS_LEAST &&
         e->train_end_tick == 0;
}

/* Writes "use 1/4 of the batch", or "use a batch of 8 instead of 32" if its size is known. */
static const char *part_of_batch(const evidence *e, uint32_t parts, char text[64]) {
  uint64_t batch = e->program.batch, part = batch / parts;
  if (batch > 1)
    snprintf(text, 64, "use a batch of %" PRIu64 " instead of %" PRIu64, part > 0 ? part : 1,
             batch);
  else
    snprintf(text, 64, "use 1/%u of the batch", parts);
  return text;
}

stow_status fix_batch(fix_case *m) {
  const evidence *e = m->e;
  char use[64];
  if (e->program.batch == 1) return fix_pass(m); /* there is no smaller one */
  if (e->fits_part > 0 && e->fits_part * 100 >= e->fits_whole) return part_that_fits(m);
  uint32_t parts;
  STOW_TRY(enough_halvings(m, &parts));
  char at[256];
  fix_place(m, at, e->caller_of_stack[e->fail_stack_id]);
  const char *guess =
      in_first_pass(e) ? " (estimated from the part of the forward pass that was reached)" : "";
  fix *x =
      only_infers(e)
          ? fix_add(m, "more, smaller passes", "%s at %s%s", part_of_batch(e, parts, use), at,
                    guess)
          : fix_add(m, "more, smaller steps; accumulate gradients over them for the same training",
                    "%s at %s, and step the optimizer after every %u of them%s",
                    part_of_batch(e, parts, use), at, parts, guess);
  STOW_TRY(fix_replay(m, x, false));
  return fix_pass(m);
}

stow_status fix_eval(fix_case *m) {
  uint32_t parts;
  char at[256];
  STOW_TRY(enough_halvings(m, &parts));
  double share = m->f->eval_bigger > parts ? m->f->eval_bigger : parts;
  fix_scale_batch(m, 1 / share);
  fix *x = fix_add(m, "none: evaluation gives the same result in smaller batches",
                   "evaluate with training's batch size, about 1/%.0f of this one, at %s", share,
                   fix_place(m, at, m->e->caller_of_stack[m->e->fail_stack_id]));
  return fix_replay(m, x, false);
}

stow_status fix_spike(fix_case *m) {
  const spike *s = &m->f->spike;
  char at[256];
  whatif_reset(&m->w);
  if (s->refused)
    whatif_scale_failed(&m->w, 0);
  else
    for (uint32_t i = 0; i < m->e->time.lifetime_count; i++)
      if (m->e->time.lifetimes[i].bytes == s->bytes &&
          m->e->time.lifetimes[i].stack_id == s->stack_id &&
          evidence_live(m->e, &m->e->time.lifetimes[i]))
        whatif_scale(&m->w, i, 0);
  static const char COST[] = "a loop over the parts; the result is the same";
  fix *x;
  if (evidence_plain(m->e))
    x = fix_add(m, COST, "work in parts, so that the %s never exist as a whole",
                cause_size(s->bytes));
  else
    x = fix_add(
        m, COST,
        "at %s: work in parts (for part in x.split(n)) so that the %s never exist as a whole",
        fix_place(m, at, m->e->user_of_stack[s->stack_id]), cause_size(s->bytes));
  return fix_replay(m, x, false);
}
