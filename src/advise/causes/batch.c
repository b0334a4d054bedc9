/* Batch: causes within one iteration: the batch, an evaluation's larger batch, one request that is
 * far larger than the rest.
 *
 * Bytes in proportion to the batch are those a forward pass keeps, the batch itself and what
 * backward holds beyond the gradients. A batch has siblings: every layer requests about as much. A
 * spike has none. If the same place in the model requests more than ever before, the batch is
 * larger: an evaluation's, if the call comes from a line that training does not use. */
#include <stdlib.h>

#include "advise/causes.h"

#define BIGGER_LEAST 1.3 /* times what the same place requested before */
#define EVAL_BIGGER  1.5
/* Training steps, before another call path to the same line counts as an evaluation. */
#define STEPS_LEAST 3
#define FIRST_LAYER 4   /* allocations of forward passes before it, at most */
#define SPIKE_USER  1.5 /* times the next largest, on a line of the program's own */
#define SPIKE_MODEL 4.0 /* inside a model, where layers differ */

static bool is_work(phase p) {
  return p == PHASE_FORWARD || p == PHASE_USER || p == PHASE_BACKWARD;
}

/* Returns the most that the place of the failure requested before, up to `until`. */
static uint64_t most_before(const evidence *e, uint32_t until) {
  uint64_t inner = e->inner_of_stack[e->fail_stack_id], most = 0;
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    if (l->start < until && l->stack_id != 0 && e->inner_of_stack[l->stack_id] == inner &&
        l->bytes > most)
      most = l->bytes;
  }
  return most;
}

static void find_spike(spike *s, const evidence *e) {
  uint64_t asked = evidence_requested_bytes(e), largest = 0, second = 0;
  uint32_t stack_id = 0, current = e->iteration_tick;
  for (uint32_t i = 0; i < e->time.lifetime_count; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    if ((e->has_stacks && !is_work(e->phase_of[i])) || l->start > e->fail_tick) continue;
    if (l->bytes > largest && l->start >= current && evidence_live(e, l)) {
      second = largest;
      largest = l->bytes;
      stack_id = l->stack_id;
    } else if (l->bytes > second) {
      second = l->bytes;
    }
  }
  uint64_t other = largest > second ? largest : second;
  if (asked >= largest)
    *s =
        (spike){.bytes = asked, .next_bytes = other, .stack_id = e->fail_stack_id, .refused = true};
  else
    *s = (spike){
        .bytes = largest, .next_bytes = second > asked ? second : asked, .stack_id = stack_id};
}

/* Computes how many times more the last iteration requests than any iteration before, summed over
 * the places it reached: each counts with its largest request. */
static stow_status iteration_ratio(const evidence *e, double *ratio) {
  map most[2] = {{0}, {0}}; /* before the iteration, and in it */
  stow_status status = STOW_OK;
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count && status == STOW_OK; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    if (e->phase_of[i] != PHASE_FORWARD || l->start >= e->fail_tick || l->bytes < 65536) continue;
    map *of = &most[l->start >= e->iteration_tick];
    uint64_t inner = e->inner_of_stack[l->stack_id], *have = map_get(of, inner);
    if (have == NULL)
      status = map_put(of, inner, l->bytes);
    else if (l->bytes > *have)
      *have = l->bytes;
  }
  uint64_t now = 0, before = 0, inner, bytes;
  for (size_t at = 0; map_next(&most[1], &at, &inner, &bytes);) {
    const uint64_t *had = map_get(&most[0], inner);
    now += had != NULL ? bytes : 0;
    before += had != NULL ? *had : 0;
  }
  *ratio = evidence_share(now, before);
  map_free(&most[0]);
  map_free(&most[1]);
  return status;
}

/* Returns whether an iteration requested about that much. */
static bool requested_in(const evidence *e, const loop_iteration *r, double bytes) {
  for (uint32_t tick = r->start; tick < r->end; tick++) {
    const event *at = timeline_event(&e->time, tick);
    if (at->kind == EVENT_ALLOC && (double)at->bytes > bytes * 0.995 &&
        (double)at->bytes < bytes * 1.005)
      return true;
  }
  return false;
}

/* Returns the first two requests of an iteration. */
static uint32_t first_two(const evidence *e, const loop_iteration *r, uint64_t two[2]) {
  uint32_t seen = 0;
  for (uint32_t tick = r->start; tick < r->end && seen < 2; tick++)
    if (timeline_event(&e->time, tick)->kind == EVENT_ALLOC)
      two[seen++] = timeline_event(&e->time, tick)->bytes;
  return seen;
}

/* Without stacks: returns how many times larger the batch of iteration `b` is than that of `a`. The
 * first requests of an iteration belong to the batch. The next ones must be larger by the same
 * factor, or the refused request (`last`) must be that factor times a request of the other
 * iteration. Returns 0 otherwise. */
static double batch_multiple(const evidence *e, const loop_iteration *a, const loop_iteration *b,
                             uint64_t last) {
  uint64_t first[2], second[2];
  uint32_t had = first_two(e, a, first), seen = first_two(e, b, second);
  if (seen < 2 && last > 0) second[seen++] = last;
  if (seen < 2 || had < 2 || first[0] == 0 || first[1] == 0) return 0;
  double multiple = evidence_share(second[0], first[0]), next = evidence_share(second[1], first[1]);
  if (next >= multiple * 0.99 && next <= multiple * 1.01) return multiple;
  return multiple >= BIGGER_LEAST && last > 0 && requested_in(e, a, (double)last / multiple)
             ? multiple
             : 0;
}

stow_status batch_find(findings *f, const evidence *e) {
  find_spike(&f->spike, e);
  uint64_t gradients = e->live_by_phase[PHASE_BACKWARD], weights = e->live_by_phase[PHASE_BUILD];
  if (gradients > weights) gradients = weights;
  f->batch_bytes = e->live_by_phase[PHASE_FORWARD] + e->live_by_phase[PHASE_USER] +
                   e->live_by_phase[PHASE_BACKWARD] - gradients;
  if (!is_work(e->fail_phase) || e->iteration_tick == 0) return STOW_OK;
  if (e->has_stacks) {
    STOW_TRY(iteration_ratio(e, &f->bigger));
    /* The output of the first layer of a pass is proportional to the batch. */
    uint64_t most = most_before(e, e->iteration_tick);
    if (f->bigger == 0 && e->layer_of_stack[e->fail_stack_id] != LAYER_NONE && most > 0)
      f->bigger = evidence_share(evidence_requested_bytes(e), most);
    return STOW_OK;
  }
  if (e->loop.count < 2) return STOW_OK;
  const loop_iteration *last = &e->loop.list[e->loop.count - 1], *before = last - 1;
  f->bigger = batch_multiple(e, before, last, evidence_requested_bytes(e));
  for (const loop_iteration *r = e->loop.list + 1; r <= before && !f->grew_before; r++)
    f->grew_before = batch_multiple(e, r - 1, r, 0) >= BIGGER_LEAST;
  return STOW_OK;
}

/* ---- evaluation ---- */

/* How training calls the model: from which lines, on which call paths, and whether within a
 * function whose name says that it evaluates. */
typedef struct train_calls {
  uint8_t *lines; /* by frame ID */
  map ways;       /* outer_of_stack */
  bool evaluates;
} train_calls;

/* How a call differs from training's. */
typedef enum otherwise { OTHERWISE_NOT = 0, OTHERWISE_WAY, OTHERWISE_LINE } otherwise;

static void train_calls_free(train_calls *t) {
  free(t->lines);
  map_free(&t->ways);
}

static stow_status train_calls_find(train_calls *t, const evidence *e) {
  *t = (train_calls){.lines = calloc(e->source->frame_count + 1, 1)};
  if (t->lines == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for the call sites");
  stow_status status = STOW_OK;
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count && status == STOW_OK; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    if (l->start >= e->train_end_tick || e->phase_of[i] != PHASE_FORWARD) continue;
    uint64_t way = e->outer_of_stack[l->stack_id];
    if (map_get(&t->ways, way) != NULL || !evidence_trains(e, l->stack_id)) continue;
    status = map_put(&t->ways, way, 1);
    t->lines[e->caller_of_stack[l->stack_id]] = 1;
    t->evaluates |= e->purpose_of_stack[l->stack_id] == PURPOSE_EVALUATES;
  }
  return status;
}

/* Returns how a call differs from training: it comes from a line that training does not use, or
 * from a shared line on a call path that says it evaluates (a trainer's compute_loss), or only on
 * another call path (a function that does both). */
static otherwise calls_otherwise(const train_calls *t, const evidence *e, uint32_t stack_id) {
  uint32_t line = e->caller_of_stack[stack_id];
  purpose p = e->purpose_of_stack[stack_id];
  if (line == 0) return OTHERWISE_NOT;
  if (!t->lines[line] || (!t->evaluates && p == PURPOSE_EVALUATES)) return OTHERWISE_LINE;
  bool same = p == PURPOSE_TRAINS || map_get(&t->ways, e->outer_of_stack[stack_id]) != NULL;
  return same ? OTHERWISE_NOT : OTHERWISE_WAY;
}

/* Computes the largest ratio, after training, of what a place in the model requests to what it
 * requested in training. Covers a failure in the loss or the next batch. */
static stow_status bigger_since(const evidence *e, const train_calls *train, double *ratio) {
  map most = {0};
  stow_status status = STOW_OK;
  *ratio = 0;
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count && status == STOW_OK; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    if (e->phase_of[i] != PHASE_FORWARD || l->start >= e->fail_tick || l->bytes < 65536) continue;
    uint64_t inner = e->inner_of_stack[l->stack_id], *have = map_get(&most, inner);
    if (l->start < e->train_end_tick) {
      if (have == NULL)
        status = map_put(&most, inner, l->bytes);
      else if (l->bytes > *have)
        *have = l->bytes;
    } else if (have != NULL && calls_otherwise(train, e, l->stack_id) != OTHERWISE_NOT) {
      double times = (double)l->bytes / (double)*have;
      if (times > *ratio) *ratio = times;
    }
  }
  map_free(&most);
  return status;
}

static stow_status evaluation_ratio(const evidence *e, const findings *f, double *ratio,
                                    otherwise *how) {
  *ratio = 0;
  *how = OTHERWISE_NOT;
  if (e->train_end_tick == 0) return STOW_OK;
  graph_built built = evidence_builds_graph(e);
  if (!e->has_stacks) { /* a sudden jump; a batch that grew before would continue to grow */
    *ratio = f->bigger;
    if (e->loop.from_marks && !f->grew_before && built != GRAPH_BUILT) *how = OTHERWISE_LINE;
    return STOW_OK;
  }
  train_calls train;
  stow_status status = train_calls_find(&train, e);
  if (status == STOW_OK) *how = calls_otherwise(&train, e, e->fail_stack_id);
  /* Training may share its lines with an evaluation, but not its graph. */
  if (*how == OTHERWISE_WAY && (built == GRAPH_BUILT || e->loop.count <= STEPS_LEAST))
    *how = OTHERWISE_NOT;
  if (*how == OTHERWISE_WAY && built == GRAPH_NOT_BUILT) *how = OTHERWISE_LINE;
  if (*how != OTHERWISE_NOT && e->fail_phase == PHASE_FORWARD) {
    uint64_t most = most_before(e, e->train_end_tick);
    if (most > 0) *ratio = evidence_share(evidence_requested_bytes(e), most);
  }
  if (status == STOW_OK && *how != OTHERWISE_NOT && *ratio < EVAL_BIGGER) {
    double since;
    status = bigger_since(e, &train, &since);
    if (since > *ratio) *ratio = since;
  }
  train_calls_free(&train);
  return status;
}

stow_status cause_eval_batch_bigger(cause *c, const evidence *e, findings *f) {
  if (!is_work(e->fail_phase) || f->growth.graph) return STOW_OK;
  double ratio;
  otherwise how;
  STOW_TRY(evaluation_ratio(e, f, &ratio, &how));
  if (how == OTHERWISE_NOT || ratio < EVAL_BIGGER) return STOW_OK;
  f->eval_bigger = ratio;
  f->eval_guessed = how == OTHERWISE_WAY || !e->has_stacks;
  /* Without stacks it may as well be training's next batch. */
  c->confidence = f->eval_guessed ? 0.78 : 0.96;
  /* The program's own line requests more than any batch explains. */
  bool own = !e->has_stacks
                 ? (double)f->spike.bytes >= SPIKE_MODEL * ratio * (double)f->spike.next_bytes
                 : e->fail_phase == PHASE_USER;
  if (own && spike_stands_alone(e, &f->spike)) c->confidence *= 0.6;
  char place[256];
  if (e->has_stacks)
    cause_head(c, "The evaluation at %s uses a batch about %.1f times training's",
               evidence_place(e, place, sizeof place, e->caller_of_stack[e->fail_stack_id]), ratio);
  else
    cause_head(c, "After training, a batch about %.1f times as large is used", ratio);
  cause_say(c, "the same place in the model requested %.1f times as much as in training: %s", ratio,
            cause_size(evidence_requested_bytes(e)));
  cause_say(c, "it is called differently from training, and no backward pass follows");
  return STOW_OK;
}

/* ---- the spike ---- */

bool spike_stands_alone(const evidence *e, const spike *s) {
  uint64_t capacity = evidence_capacity(e);
  return s->refused && s->bytes >= 2 * s->next_bytes &&
         ((capacity > 0 && s->bytes > capacity) ||
          evidence_share(s->bytes, e->n.live_bytes + evidence_requested_bytes(e)) >= 0.6);
}

/* Returns whether it is the first layer. Its output grows with the batch, and if no pass got
 * further there is nothing to compare it with: whether the next layers request as much is
 * unknown. */
static bool is_first_layer(const evidence *e, const spike *s) {
  uint32_t before = 0;
  if (!s->refused || s->stack_id == 0 || e->layer_of_stack[s->stack_id] == LAYER_NONE) return false;
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++)
    before += e->phase_of[i] == PHASE_FORWARD && e->time.lifetimes[i].start < e->fail_tick;
  return before < FIRST_LAYER;
}

/* Returns whether a recurrent layer requested it: one buffer for all steps of the sequence, which
 * grows with the batch. */
static bool is_recurrent(const evidence *e, const spike *s) {
  return evidence_passes(e, s->stack_id, "", "nn/modules/rnn.py");
}

void cause_one_spike(cause *c, const evidence *e, const findings *f) {
  const spike *s = &f->spike;
  phase p = s->refused ? e->fail_phase : e->phase_of_stack[s->stack_id];
  uint64_t all = e->n.live_bytes + evidence_requested_bytes(e);
  double part = evidence_share(s->bytes, all),
         times = s->next_bytes > 0 ? evidence_share(s->bytes, s->next_bytes) : 99;
  if ((!is_work(p) && e->has_stacks) || p == PHASE_OPTIMIZER || part < 0.25) return;
  if (s->refused && (e->program.step == PROGRAM_BUILDING || e->program.step == PROGRAM_LOADING))
    return; /* a weight, however large */
  double sure = part >= 0.5 ? 0.94 : part >= 0.35 ? 0.82 : 0.6;
  double needed = p == PHASE_USER || p == PHASE_BUILD ? SPIKE_USER : SPIKE_MODEL;
  if (times < needed) sure *= times < needed / 2 ? 0.3 : 0.6;
  if (p == PHASE_FORWARD && f->bigger >= BIGGER_LEAST && times < SPIKE_MODEL * f->bigger)
    sure *= 0.3; /* a larger batch */
  if (is_recurrent(e, s) || (p == PHASE_FORWARD && (s->next_bytes == 0 || is_first_layer(e, s))))
    sure *= 0.5;
  if (!s->refused) sure *= 0.85;
  if (!e->has_stacks) sure *= 0.83;
  if (p == PHASE_BUILD && !spike_stands_alone(e, s)) sure *= 0.5; /* the next weight may be large */
  if (e->n.hole_bytes != MESSAGE_UNKNOWN && e->n.hole_bytes >= s->bytes) sure *= 0.6;
  c->confidence = sure;
  char place[256];
  if (s->stack_id != 0)
    cause_head(c, "One request at %s is far larger than all others: %s",
               evidence_place(e, place, sizeof place, e->user_of_stack[s->stack_id]),
               cause_size(s->bytes));
  else
    cause_head(c, "One request is far larger than all others: %s", cause_size(s->bytes));
  cause_say(c,
            "%s in one request, with %s live in total; the next largest request that is not a "
            "weight is %s",
            cause_size(s->bytes), cause_size(e->n.live_bytes), cause_size(s->next_bytes));
  uint64_t capacity = evidence_capacity(e);
  if (capacity > 0 && s->bytes > capacity)
    cause_say(c, "it does not fit even alone: only %s is available", cause_size(capacity));
}

/* ---- the batch ---- */

void cause_batch_too_big(cause *c, const evidence *e, const findings *f) {
  if (!is_work(e->fail_phase)) return;
  uint64_t asked = evidence_requested_bytes(e);
  double part = evidence_share(f->batch_bytes + asked, e->n.live_bytes + asked);
  if (part < 0.2 || e->n.live_bytes + asked == 0) return;
  uint64_t model = e->live_by_phase[PHASE_FORWARD] + (e->fail_phase != PHASE_USER ? asked : 0);
  c->confidence = 0.5 + 0.38 * part;
  if (f->bigger >= BIGGER_LEAST) c->confidence = f->eval_guessed ? 0.7 : 0.92;
  if (evidence_share(model, e->n.live_bytes + asked) < 0.15)
    c->confidence *= 0.4; /* hardly anything is a model's: there is no batch */
  double grown = f->bigger >= BIGGER_LEAST ? f->bigger : 1;
  if (f->spike.refused && !is_recurrent(e, &f->spike) &&
      (double)f->spike.bytes > SPIKE_MODEL * grown * (double)f->spike.next_bytes &&
      evidence_share(asked, e->n.live_bytes + asked) >= 0.5)
    c->confidence *= 0.8; /* no layer requests anything similar, however large the batch */
  if (!e->has_stacks) c->confidence *= 0.88;
  char place[256];
  uint32_t from = e->caller_of_stack[e->fail_stack_id];
  cause_head(c, "%s too big: %s of activations%s%s, %s more requested",
             e->program.batch == 1 ? "The one sample is" : "The batch is",
             cause_size(f->batch_bytes), from != 0 ? " at " : "",
             from != 0 ? evidence_place(e, place, sizeof place, from) : "", cause_size(asked));
  cause_say(c, "%.0f%% of live memory grows with the batch: activations, the batch itself%s",
            evidence_share(f->batch_bytes, e->n.live_bytes) * 100,
            evidence_may_train(e) ? ", and what the backward pass holds" : "");
  if (f->bigger >= BIGGER_LEAST)
    cause_say(c, "this place requested %.1f times as much as in earlier iterations", f->bigger);
}
