/* Forecast: estimates the rest of an optimizer's first step from what it did so far. */
#include "advise/forecast.h"

#include <stdio.h>
#include <string.h>

/* Smallest state that counts: smaller ones are step counters and the like. */
#define SIZE_LEAST   4096
#define NUMBERS_MOST 3    /* a weight has, in the optimizers that are common … */
#define NUMBERS_ELSE 2    /* … and if they cannot be distinguished */
#define ROOM         0.97 /* fraction of the capacity: the rest is lost to fragmentation */

static const char mark_stem[] = "Optimizer.step#";

/* Finds the class of the optimizer that stepped last, from PyTorch's mark
 * "Optimizer.step#AdamW.step". Returns false if a step was complete before the failure. */
static bool in_first_step(const evidence *e, char name[64]) {
  bool first = true;
  for (uint32_t tick = 0; tick <= e->fail_tick && tick < e->time.tick_count; tick++) {
    const event *at = timeline_event(&e->time, tick);
    if (at->kind != EVENT_MARK_BEGIN && at->kind != EVENT_MARK_END) continue;
    const char *text = recording_text(e->source, timeline_origin(&e->time, at)->tag_id);
    if (strncmp(text, mark_stem, sizeof mark_stem - 1) != 0) continue;
    if (at->kind == EVENT_MARK_END) first = false;
    text += sizeof mark_stem - 1;
    snprintf(name, 64, "%.*s", (int)strcspn(text, "."), text);
  }
  return first;
}

/* Returns whether the optimizer's step over lists creates a list of temporaries. */
static bool makes_scratch(const char *name) {
  static const char *const names[] = {"Adam",   "AdamW",    "NAdam",   "RAdam",
                                      "Adamax", "Adadelta", "Adagrad", "RMSprop"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(name, names[i]) == 0) return true;
  return false;
}

bool forecast_is_scratch(const forecast *o, const evidence *e, uint32_t stack_id) {
  return makes_scratch(o->optimizer) && evidence_passes(e, stack_id, "_multi_tensor_", "");
}

/* Returns how many numbers of state a weight has: the states of the first weight are allocated in a
 * row, all of its size. */
static uint32_t numbers_each(const forecast *o, const evidence *e) {
  uint32_t run = 0;
  uint64_t bytes = 0;
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    if (e->phase_of[i] != PHASE_OPTIMIZER || l->bytes < SIZE_LEAST || !evidence_live(e, l) ||
        forecast_is_scratch(o, e, l->stack_id))
      continue;
    if (run > 0 && l->bytes != bytes) break;
    bytes = l->bytes;
    run++;
  }
  return run == 0 ? 1 : run > NUMBERS_MOST ? NUMBERS_ELSE : run;
}

/* Returns the most that was live before the step began, without the gradients. */
static uint64_t peak_before_step(const evidence *e) {
  const timeline *t = &e->time;
  int64_t live = 0, most = 0;
  for (uint32_t i = 0; i < t->before_count; i++) live += (int64_t)t->lifetimes[i].bytes;
  for (uint32_t tick = 0; tick < e->fail_tick; tick++) {
    uint32_t n = t->lifetime[tick];
    if (n != TIMELINE_NONE && e->phase_of[n] == PHASE_OPTIMIZER) continue;
    if (n != TIMELINE_NONE && e->phase_of[n] == PHASE_BACKWARD &&
        evidence_live(e, &t->lifetimes[n]))
      continue;
    live += timeline_change(t, tick);
    if (live > most) most = live;
  }
  return (uint64_t)most;
}

void forecast_find(forecast *o, const evidence *e, uint64_t weight_bytes) {
  *o = (forecast){0};
  bool first = in_first_step(e, o->optimizer);
  if (!first || e->fail_phase != PHASE_OPTIMIZER) return;
  uint64_t asked = e->n.asked_bytes != MESSAGE_UNKNOWN ? e->n.asked_bytes : 0;
  uint64_t weights = e->live_by_phase[PHASE_BUILD], gradients = e->live_by_phase[PHASE_BACKWARD];
  if (weight_bytes > 0) weights = weight_bytes;
  uint64_t trained = gradients > 0 && gradients < weights ? gradients : weights;
  bool in_scratch = forecast_is_scratch(o, e, e->fail_stack_id);
  bool one_by_one = evidence_passes(e, e->fail_stack_id, "_single_tensor_", "") ||
                    evidence_passes(e, e->fail_stack_id, "_fused_", "");
  o->known = true;
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    if (e->phase_of[i] != PHASE_OPTIMIZER || !evidence_live(e, l)) continue;
    if (forecast_is_scratch(o, e, l->stack_id))
      o->scratch_live_bytes += l->bytes;
    else
      o->state_bytes += l->bytes;
  }
  if (in_scratch)
    o->scratch_live_bytes += asked;
  else
    o->state_bytes += asked;
  o->whole_state_bytes = in_scratch ? o->state_bytes : numbers_each(o, e) * trained;
  /* Without stacks, what is beyond the state is known from the sum alone. */
  if (!e->has_stacks && makes_scratch(o->optimizer) && o->state_bytes > o->whole_state_bytes) {
    o->scratch_live_bytes = o->state_bytes - o->whole_state_bytes;
    o->state_bytes = o->whole_state_bytes;
  }
  if (o->whole_state_bytes < o->state_bytes) o->whole_state_bytes = o->state_bytes;
  if (makes_scratch(o->optimizer) && !one_by_one) o->scratch_bytes = trained;
  if (o->scratch_bytes < o->scratch_live_bytes) o->scratch_bytes = o->scratch_live_bytes;
  o->pass_bytes = peak_before_step(e) + (gradients < weights ? gradients : weights);
}

bool forecast_fits(const forecast *o, const evidence *e, uint64_t less_bytes, double state,
                   bool scratch) {
  uint64_t capacity = evidence_capacity(e);
  if (!o->known || capacity == 0) return true;
  double asked = e->n.asked_bytes != MESSAGE_UNKNOWN ? (double)e->n.asked_bytes : 0;
  double rest = (double)e->n.live_bytes + asked - (double)less_bytes - (double)o->state_bytes -
                (double)o->scratch_live_bytes;
  double kept = state * (double)o->whole_state_bytes;
  double whole = rest + kept + (scratch ? (double)o->scratch_bytes : 0);
  double next = (double)o->pass_bytes - (double)less_bytes + kept;
  double room = ROOM * (double)capacity;
  return whole <= room && next <= room;
}
