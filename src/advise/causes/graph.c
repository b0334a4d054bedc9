/* Graph: decides whether what stays is a graph: kept graphs, and evaluations that build them.
 *
 * A graph keeps all that a forward pass saves for its backward pass, including what no variable of
 * a program can reach: a norm's statistics, every layer's input. A leak keeps one thing or a few.
 * The call path distinguishes the two: a loop on a call path of training keeps a graph that it
 * should have freed; a loop that training never uses, or whose name says that it evaluates, should
 * not have built one. */
#include <stdlib.h>
#include <string.h>

#include "advise/causes.h"

#define GRAPH_SHARE  0.25 /* least fraction of what forward allocated that a kept graph keeps */
#define GRAPH_PIECES 2.5  /* least allocations of a forward pass kept in each iteration */
/* The same if each iteration also leaves a number: other passes may have run backward. */
#define GRAPH_LEAST  0.1
#define GRAPH_MANY   6 /* kept allocations per iteration that cannot be a leak of one object … */
#define GRAPH_PLACES 3 /* … if they come from that many places */
#define GRAPH_SAVED  0.6 /* fraction of what training's passes save that a kept pass keeps too */
#define PASSES_WAIT  2   /* graphs that one backward pass waits for … */
#define WAIT_SHARE                                                                                 \
  0.3 /* … and the least fraction of the live memory that is from forward passes                 \
       */
#define HELD_PASS 0.35 /* fraction of a pass that is live at its end if it builds a graph */

static stow_status no_memory(const evidence *e) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to compare %zu stacks",
                   e->source->stack_count);
}

/* Counts the stacks of forward passes that leave something in most iterations. */
static stow_status growing_places(const growth *g, const evidence *e, uint32_t *places) {
  uint8_t *seen = calloc(e->source->stack_count + 1, 1);
  *places = 0;
  if (seen == NULL) return no_memory(e);
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++) {
    uint32_t stack_id = e->time.lifetimes[i].stack_id;
    if (stack_id == 0 || seen[stack_id] || e->phase_of[i] != PHASE_FORWARD || !growth_has(g, e, i))
      continue;
    seen[stack_id] = 1;
    ++*places;
  }
  free(seen);
  return STOW_OK;
}

/* Sets *is if the loop is an evaluation: a function on the call path says so by its name, or
 * training allocated for dropout and the loop does not, so model.eval() was called. */
static stow_status is_evaluation(const growth *g, const evidence *e, bool *is) {
  *is = e->purpose_of_stack[g->stack_id] == PURPOSE_EVALUATES;
  if (*is || e->train_end_tick == 0 || e->train_end_tick > e->loop.list[0].start) return STOW_OK;
  uint8_t *drops = calloc(e->source->stack_count + 1, 1); /* 0: not examined yet, 1: no, 2: yes */
  bool trained = false, still = false;
  if (drops == NULL) return no_memory(e);
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    if (e->phase_of[i] != PHASE_FORWARD || l->start >= e->fail_tick) continue;
    uint8_t *of = &drops[l->stack_id];
    if (*of == 0) *of = 1 + evidence_passes(e, l->stack_id, "", "nn/modules/dropout.py");
    if (*of == 2) *(l->start < e->loop.list[0].start ? &trained : &still) = true;
  }
  free(drops);
  *is = trained && !still;
  return STOW_OK;
}

/* A norm allocates its statistics beside its output, and only autograd can hold them. *sign is
 * positive if they stay, negative if an output stays without them, 0 if neither is seen. */
static stow_status find_norm_sign(const growth *g, const evidence *e, int *sign) {
  size_t stacks = e->source->stack_count + 1;
  uint64_t *most = calloc(stacks, sizeof *most);
  uint32_t outputs = 0, held = 0, dropped = 0;
  if (most == NULL) return no_memory(e);
  for (int pass = 0; pass < 2; pass++)
    for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++) {
      const lifetime *l = &e->time.lifetimes[i];
      if (e->phase_of[i] != PHASE_FORWARD || !e->norm_of_stack[l->stack_id]) continue;
      if (pass == 0) {
        if (l->bytes > most[l->stack_id]) most[l->stack_id] = l->bytes;
        continue;
      }
      if (!g->of_stack[l->stack_id] || l->start < e->loop.list[0].start ||
          l->start >= e->loop.list[g->whole].start)
        continue;
      bool statistic = l->bytes * 8 <= most[l->stack_id], live = evidence_live(e, l);
      outputs += live && !statistic;
      held += live && statistic;
      dropped += !live && statistic;
    }
  free(most);
  *sign = held * 2 >= g->whole ? 1 : outputs * 2 >= g->whole && dropped >= outputs ? -1 : 0;
  return STOW_OK;
}

/* Computes the fraction of what training's passes save that every iteration keeps too. */
static stow_status saved_share(const growth *g, const evidence *e, double *share,
                               uint32_t *places) {
  uint64_t all = 0, kept = 0, place, bytes;
  stow_status status = STOW_OK;
  map seen = {0};
  *places = 0;
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++) {
    if (e->phase_of[i] != PHASE_FORWARD || !growth_has(g, e, i)) continue;
    uint64_t inner = e->inner_of_stack[e->time.lifetimes[i].stack_id];
    const uint64_t *saved = map_get(&e->saved, inner);
    if (saved == NULL || map_get(&seen, inner) != NULL) continue;
    if ((status = map_put(&seen, inner, 1)) != STOW_OK) break;
    kept += *saved;
    ++*places;
  }
  for (size_t at = 0; map_next(&e->saved, &at, &place, &bytes);) all += bytes;
  map_free(&seen);
  *share = all > 0 ? (double)kept / (double)all : 0;
  return status;
}

/* Returns whether a function of the framework computes a loss, or the logarithm of a policy's
 * choice. */
static bool is_loss(const char *name, const char *file) {
  if (strstr(file, "torch/nn/modules/loss.py") != NULL) return true;
  if (strstr(file, "torch/distributions/") != NULL) return strcmp(name, "log_prob") == 0;
  return strstr(file, "torch/nn/functional.py") != NULL &&
         (strstr(name, "_loss") != NULL || strstr(name, "entropy") != NULL ||
          strcmp(name, "kl_div") == 0);
}

/* Returns whether something of a loss is among what grows. */
static bool keeps_loss(const growth *g, const evidence *e) {
  const recording *r = e->source;
  for (uint32_t s = 1; s <= r->stack_count; s++)
    for (uint32_t i = 0; g->of_stack[s] && i < r->stacks[s - 1].count; i++) {
      uint32_t id = r->stack_frames[r->stacks[s - 1].first + i];
      if (id == 0 || id > r->frame_count) continue;
      const frame *f = &r->frames[id - 1];
      if (is_loss(recording_text(r, f->name_id), recording_text(r, f->file_id))) return true;
    }
  return false;
}

/* Returns whether a training pass uses the call path of what grows. */
static bool is_trained(const growth *g, const evidence *e) {
  for (uint32_t s = 1; s <= e->source->stack_count; s++)
    if (g->of_stack[s] && e->phase_of_stack[s] == PHASE_FORWARD && evidence_trains(e, s))
      return true;
  return false;
}

/* Returns the number of allocations of forward passes that stay and were not the last of their
 * pass. */
static uint32_t inner_pieces(const growth *g, const evidence *e) {
  uint32_t pieces = 0;
  for (uint32_t i = e->time.before_count; i + 1 < e->time.lifetime_count; i++)
    pieces += e->phase_of[i] == PHASE_FORWARD && e->phase_of[i + 1] == PHASE_FORWARD &&
              growth_has(g, e, i);
  return pieces;
}

static stow_status is_graph(growth *g, const evidence *e, const iteration_sums *t) {
  double pieces = t->pieces / t->n, own = t->own_pieces / t->n, back = t->back_pieces / t->n;
  double kept = (double)t->kept_forward, forward = (double)t->forward;
  g->graph = true;
  if (pieces >= GRAPH_PIECES && kept >= (g->scalar ? GRAPH_LEAST : GRAPH_SHARE) * forward)
    return STOW_OK;
  /* A shallow net keeps little of itself, and the loss the rest. */
  if (g->scalar && !g->backward && pieces >= 1.5 && pieces + own >= GRAPH_PIECES &&
      kept >= GRAPH_SHARE * forward)
    return STOW_OK;
  /* Gradients that are part of the graph themselves (create_graph) stay with it. */
  if (g->scalar && g->backward && back >= GRAPH_PIECES && pieces + own >= 1.5) return STOW_OK;
  /* retain_graph: the pass stays, with its batch. A program's own variables hold the outputs of a
   * model, not what is inside it. */
  if (g->scalar && g->backward && own >= 1 && inner_pieces(g, e) / t->n >= 2) return STOW_OK;
  /* An iteration has several passes and keeps one: allocations from many places of the model. */
  uint32_t places = 0;
  if (pieces >= GRAPH_MANY && kept >= GRAPH_LEAST * forward) {
    STOW_TRY(growing_places(g, e, &places));
    if (places >= GRAPH_PLACES) return STOW_OK;
  }
  /* All that training saves stays of another pass; of a single layer, with its input. */
  double share = 0;
  if (pieces >= 1) STOW_TRY(saved_share(g, e, &share, &places));
  if (share >= GRAPH_SAVED && (places >= 3 || own >= 1)) return STOW_OK;
  /* A program without modules: its own lines are its forward pass. Tensors kept on purpose look the
   * same, except for the number that a loss leaves. */
  g->bare = forward == 0 && !g->backward && g->scalar && own >= 1.5 &&
            (double)t->kept_own >= GRAPH_SHARE * (double)t->own;
  g->graph = g->bare;
  return STOW_OK;
}

stow_status graph_judge(growth *g, const evidence *e, const iteration_sums *t) {
  g->backward = t->backward > t->n / 2;
  g->scalar = t->scalar >= 0.8 * t->n;
  int norms = 0;
  if (e->has_stacks) STOW_TRY(find_norm_sign(g, e, &norms));
  g->graph = norms > 0;
  if (norms == 0) STOW_TRY(is_graph(g, e, t));
  g->like_graph = norms >= 0 && t->pieces / t->n >= 1.5 && t->kept_forward * 2 >= t->later;
  STOW_TRY(is_evaluation(g, e, &g->evaluates));
  if (!e->has_stacks) return STOW_OK;
  g->loss = t->loss >= 0.8 * t->n || keeps_loss(g, e);
  g->strange = e->trained.count > 0 && !is_trained(g, e);
  return STOW_OK;
}

static const char *caller(const evidence *e, const growth *g, char *text, size_t size) {
  return evidence_place(e, text, size, e->caller_of_stack[g->stack_id]);
}

/* Returns whether the program's source has a backward pass that needs what is kept. */
static bool needs_backward(const evidence *e) {
  return program_advice_of(&e->program, ADVICE_SUMMED | ADVICE_NEEDED) != NULL;
}

/* Returns whether a backward pass was intended. Not if nothing of a loss is kept; if training never
 * used this path, a number may be anything. */
static bool wants_backward(const evidence *e, const growth *g) {
  if (needs_backward(e)) return true;
  return !g->evaluates && (g->loss || (g->scalar && !g->strange));
}

/* Several passes of one training step wait for its backward pass. */
static void passes_wait(cause *c, const evidence *e) {
  const program_advice *a = program_advice_of(&e->program, ADVICE_SUMMED);
  uint64_t forward_bytes = e->live_by_phase[PHASE_FORWARD];
  if (a == NULL || a->graphs < PASSES_WAIT || forward_bytes < WAIT_SHARE * (double)e->n.live_bytes)
    return;
  c->confidence = 0.92;
  cause_head(c, "The graphs of %u passes wait for one backward pass: %s", a->graphs,
             cause_size(forward_bytes));
  cause_say(c, "their losses are added up, and backward() runs on the sum");
}

void cause_graph_kept(cause *c, const evidence *e, const findings *f) {
  const growth *g = &f->growth;
  if (!g->found) passes_wait(c, e);
  if (!g->found || (!g->graph && !g->like_graph)) return;
  double sure = !g->graph              ? 0.55
                : g->bare              ? 0.85
                : g->backward          ? 0.88
                : wants_backward(e, g) ? 0.96
                : g->evaluates         ? 0.3
                                       : 0.4;
  c->confidence = sure * growth_weight(e, g);
  char place[256];
  if (e->has_stacks)
    cause_head(c, "The graph of every iteration is kept at %s: %s more each iteration",
               caller(e, g, place, sizeof place), cause_size(g->per_iteration));
  else
    cause_head(c, "The graph of every iteration is kept: %s more each iteration",
               cause_size(g->per_iteration));
  growth_say(c, e, g);
  cause_say(c, "what stays is what a forward pass saves for its backward pass%s",
            g->backward ? ", though backward is run" : ", and no backward pass runs in between");
  if (g->scalar)
    cause_say(c, "each iteration also leaves one number behind, as a running sum of losses does");
}

/* Nothing stays from iteration to iteration, but each pass holds its graph to its end and none runs
 * backward, so the graphs are unnecessary. Reported if no pass of the recording ever ran backward,
 * or if the evaluation that failed holds what training's passes hold. */
static void no_grad_in_pass(cause *c, const evidence *e, const findings *f) {
  double held = f->held_to_end;
  const evidence *seen = e->whole != NULL ? e->whole : e;
  bool never = seen->trained.count == 0 && seen->train_end_tick == 0 && held >= HELD_PASS;
  bool beside = f->eval_bigger > 0 && evidence_builds_graph(e) == GRAPH_BUILT;
  if (e->fail_phase != PHASE_FORWARD && e->fail_phase != PHASE_USER) return;
  if (!e->has_stacks || (!never && !beside)) return;
  if (e->program.grad_known && !e->program.grad) return;
  c->confidence = never ? 0.93 : 0.7;
  char place[256];
  cause_head(c, "The pass at %s builds a graph it never uses",
             evidence_place(e, place, sizeof place, e->caller_of_stack[e->fail_stack_id]));
  if (never)
    cause_say(c,
              "%.0f%% of what each of %u passes allocates is held until the pass ends, and no "
              "backward pass ever runs",
              held * 100, seen->loop.count - 1);
  else
    cause_say(
        c,
        "it holds what training passes hold for their backward pass, but no backward pass follows");
}

void cause_no_grad_missing(cause *c, const evidence *e, const findings *f) {
  const growth *g = &f->growth;
  if (needs_backward(e)) return;
  if (!g->found) no_grad_in_pass(c, e, f);
  bool idle = g->like_graph && program_needs_no_graph(&e->program);
  if (!g->found || (!g->graph && !idle) || g->backward) return;
  double sure = g->evaluates ? 0.96 : wants_backward(e, g) && !idle ? 0.35 : 0.95;
  c->confidence = sure * growth_weight(e, g);
  char place[256];
  if (e->has_stacks)
    cause_head(c, "The evaluation at %s builds graphs it never uses: %s more each iteration",
               caller(e, g, place, sizeof place), cause_size(g->per_iteration));
  else
    cause_head(c, "A loop without a backward pass builds graphs: %s more each iteration",
               cause_size(g->per_iteration));
  growth_say(c, e, g);
  cause_say(c, "what stays is what a forward pass saves for a backward pass that never runs");
  if (idle) cause_say(c, "the model is in eval() mode, and nothing trains it");
  if (e->train_end_tick > 0 && e->train_end_tick < e->loop.list[0].start)
    cause_say(c, "training came before it and had stopped");
}
