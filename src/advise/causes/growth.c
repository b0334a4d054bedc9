/* What grows from turn to turn: kept graphs, evaluations that build them, leaks.
 *
 * All three leave bytes behind in every turn. A graph leaves most of a forward pass (every layer's
 * saved input); a leak leaves one thing or a few. A graph that a loss was taken from leaves a
 * number as well (the sum, or the loss in a list); an evaluation that keeps its outputs does not.
 */
#include <stdlib.h>
#include <string.h>

#include "advise/causes.h"

#define LIVE_SHARE   0.05 /* of what is live and asked for that the growth must be */
#define GRAPH_SHARE  0.25 /* of what forward allocated that a kept graph keeps, at least */
#define GRAPH_PIECES 2.5  /* allocations of a forward pass kept in each turn, at least */
#define GRAPH_LEAST                                                                                \
  0.1 /* …where each turn leaves a number too: other passes may have run backward */
#define GRAPH_MANY    6 /* allocations of it kept in each turn that are no leak of one thing … */
#define GRAPH_PLACES  3 /* … if they come from so many places */
#define EVEN_SHARE    0.2 /* of all that stayed, if each turn left what the middle one does */
#define ROUND_SIMILAR 0.6 /* of the turns keep at least half of what the middle one does */

static int by_value(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

/* The first turn makes optimizer state, caches and workspaces: left out where there are others. */
static stow_status middle_kept(const evidence *e, uint32_t first, uint32_t whole,
                               uint64_t *middle) {
  uint32_t n = whole - first;
  uint64_t *kept = malloc(n * sizeof *kept);
  if (kept == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %u turns", n);
  for (uint32_t i = 0; i < n; i++) kept[i] = e->loop.list[first + i].kept_bytes;
  qsort(kept, n, sizeof *kept, by_value);
  *middle = kept[n / 2];
  free(kept);
  return STOW_OK;
}

bool growth_has(const growth *g, const evidence *e, uint32_t i) {
  const lifetime *l = &e->time.lifetimes[i];
  phase p = e->phase_of[i];
  return l->start >= e->loop.list[0].start && l->start < e->loop.list[g->whole].start &&
         evidence_live(e, l) && p != PHASE_OPTIMIZER && p != PHASE_BUILD && p != PHASE_LOAD &&
         p != PHASE_COPY && (!e->has_stacks || g->of_stack[l->stack_id]);
}

/* Which stacks leave something in most turns, and which of them most. */
static stow_status growing_stacks(growth *g, const evidence *e) {
  size_t stacks = e->source->stack_count + 1;
  uint64_t *bytes = calloc(stacks, sizeof *bytes);
  uint32_t *count = calloc(stacks, sizeof *count);
  g->of_stack = malloc(stacks);
  if (bytes == NULL || count == NULL || g->of_stack == NULL) {
    free(bytes);
    free(count);
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %zu stacks", stacks);
  }
  memset(g->of_stack, 1, stacks);
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++) {
    if (!growth_has(g, e, i)) continue;
    bytes[e->time.lifetimes[i].stack_id] += e->time.lifetimes[i].bytes;
    count[e->time.lifetimes[i].stack_id]++;
  }
  g->total = 0;
  for (uint32_t s = 0; s < stacks; s++) {
    g->of_stack[s] = count[s] * 2 >= g->whole;
    if (!g->of_stack[s] && e->has_stacks) continue;
    g->total += bytes[s];
    if (bytes[s] <= g->stack_bytes) continue;
    g->stack_bytes = bytes[s];
    g->stack_count = count[s];
    g->stack_id = s;
  }
  free(bytes);
  free(count);
  return STOW_OK;
}

/* Of a forward pass, that leave something in most turns. */
static uint32_t growing_places(const growth *g, const evidence *e) {
  uint8_t *seen = calloc(e->source->stack_count + 1, 1);
  uint32_t places = 0;
  for (uint32_t i = e->time.before_count; seen != NULL && i < e->time.lifetime_count; i++) {
    uint32_t stack_id = e->time.lifetimes[i].stack_id;
    if (stack_id == 0 || seen[stack_id] || e->phase_of[i] != PHASE_FORWARD || !growth_has(g, e, i))
      continue;
    seen[stack_id] = 1;
    places++;
  }
  free(seen);
  return places;
}

/* An evaluation, by the name of a function on the way there, or because the dropout that training
 * asked for is not asked for any more: model.eval() was called. */
static bool is_evaluation(const growth *g, const evidence *e) {
  if (e->purpose_of_stack[g->stack_id] == PURPOSE_EVALUATES) return true;
  if (e->train_end_tick == 0 || e->train_end_tick > e->loop.list[0].start) return false;
  uint8_t *drops = calloc(e->source->stack_count + 1, 1); /* 0 not looked yet, 1 no, 2 yes */
  bool trained = false, still = false;
  for (uint32_t i = e->time.before_count; drops != NULL && i < e->time.lifetime_count; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    if (e->phase_of[i] != PHASE_FORWARD || l->start >= e->fail_tick) continue;
    uint8_t *of = &drops[l->stack_id];
    if (*of == 0) *of = 1 + evidence_passes(e, l->stack_id, "", "nn/modules/dropout.py");
    if (*of == 2) *(l->start < e->loop.list[0].start ? &trained : &still) = true;
  }
  free(drops);
  return trained && !still;
}

stow_status growth_find(growth *g, const evidence *e) {
  *g = (growth){0};
  if (e->loop.count < 3 || e->n.live_bytes == 0) return STOW_OK;
  /* Without stacks the turns of a first step may be layers; a step that came to its optimizer had
   * its backward. */
  if (!e->has_stacks && !e->loop.from_marks && e->fail_phase == PHASE_OPTIMIZER) return STOW_OK;
  g->whole = e->loop.count - 1;
  uint32_t first = g->whole >= 3, similar = 0, backward = 0, scalar = 0;
  uint32_t pieces = 0, own_pieces = 0, back_pieces = 0;
  STOW_TRY(middle_kept(e, first, g->whole, &g->per_round));
  uint64_t forward = 0, kept_forward = 0, own = 0, kept_own = 0, later = 0;
  for (uint32_t i = 0; i < g->whole; i++) {
    const loop_round *r = &e->loop.list[i];
    g->total += r->kept_bytes;
    if (i < first) continue;
    later += r->kept_bytes;
    similar += r->kept_bytes * 2 >= g->per_round;
    backward += r->backward;
    scalar += r->scalar;
    pieces += r->kept_forward_count;
    forward += r->forward_bytes;
    kept_forward += r->kept_forward_bytes;
    own_pieces += r->kept_user_count;
    back_pieces += r->kept_backward_count;
    own += r->user_bytes;
    kept_own += r->kept_user_bytes;
  }
  double n = g->whole - first;
  uint64_t asked = e->n.asked_bytes != MESSAGE_UNKNOWN ? e->n.asked_bytes : 0;
  g->found = g->per_round > 0 && similar >= ROUND_SIMILAR * n &&
             (double)g->per_round * n >= EVEN_SHARE * (double)later &&
             (double)g->total >= LIVE_SHARE * ((double)e->n.live_bytes + (double)asked);
  if (!g->found) return STOW_OK;
  g->backward = backward > n / 2;
  g->scalar = scalar >= 0.8 * n;
  double least = g->scalar ? GRAPH_LEAST : GRAPH_SHARE;
  g->graph = pieces / n >= GRAPH_PIECES && (double)kept_forward >= least * (double)forward;
  /* A shallow net keeps little of itself, and the loss the rest. */
  if (g->scalar && !g->backward && pieces / n >= 1.5 && (pieces + own_pieces) / n >= GRAPH_PIECES &&
      (double)kept_forward >= GRAPH_SHARE * (double)forward)
    g->graph = true;
  /* Gradients that are part of the graph themselves (create_graph) stay with it. */
  if (g->scalar && g->backward && back_pieces / n >= GRAPH_PIECES &&
      (pieces + own_pieces) / n >= 1.5)
    g->graph = true;
  /* A program without modules: its own lines are its forward pass. Tensors kept on purpose look the
   * same but for the number that a loss leaves. */
  if (forward == 0 && !g->backward && g->scalar && own_pieces / n >= 1.5 &&
      (double)kept_own >= GRAPH_SHARE * (double)own)
    g->graph = g->bare = true;
  STOW_TRY(growing_stacks(g, e));
  /* Several passes in a turn, of which one is kept: from many places of the model. */
  if (pieces / n >= GRAPH_MANY && growing_places(g, e) >= GRAPH_PLACES &&
      (double)kept_forward >= GRAPH_LEAST * (double)forward)
    g->graph = true;
  g->like_graph = pieces / n >= 1.5 && kept_forward * 2 >= later;
  g->evaluates = is_evaluation(g, e);
  return STOW_OK;
}

/* How sure the growth itself is. */
static double growth_weight(const evidence *e, const growth *g) {
  double weight = g->whole >= 3 ? 1 : 0.88;
  if (!e->has_stacks) weight *= 0.8; /* turns are a guess, and so is what runs backward */
  double share = (double)g->total / (double)e->n.live_bytes;
  return share >= 0.15 ? weight : weight * 0.75;
}

static void say_growth(cause *c, const evidence *e, const growth *g) {
  char place[256];
  cause_say(c, "%s stay from each of %u turns of the loop, %s so far, of %s live",
            cause_size(g->per_round), g->whole, cause_size(g->total), cause_size(e->n.live_bytes));
  if (g->stack_id != 0)
    cause_say(c, "most from %s: %u allocations, %s",
              evidence_place(e, place, sizeof place, e->user_of_stack[g->stack_id]), g->stack_count,
              cause_size(g->stack_bytes));
  else if (!e->has_stacks)
    cause_say(c, "no stacks were recorded, so the line is not known");
}

static const char *caller(const evidence *e, const growth *g, char *text, size_t size) {
  return evidence_place(e, text, size, e->caller_of_stack[g->stack_id]);
}

void cause_graph_kept(cause *c, const evidence *e, const findings *f) {
  const growth *g = &f->growth;
  if (!g->found || (!g->graph && !g->like_graph)) return;
  double sure = !g->graph                    ? 0.55
                : g->bare                    ? 0.85
                : g->backward                ? 0.88
                : g->scalar && !g->evaluates ? 0.96
                : g->evaluates               ? 0.3
                                             : 0.4;
  c->confidence = sure * growth_weight(e, g);
  char place[256];
  if (e->has_stacks)
    cause_head(c, "The graph of every turn is kept at %s: %s more each turn",
               caller(e, g, place, sizeof place), cause_size(g->per_round));
  else
    cause_head(c, "The graph of every turn is kept: %s more each turn", cause_size(g->per_round));
  say_growth(c, e, g);
  cause_say(c, "what stays is what a forward pass saves for its backward%s",
            g->backward ? ", though backward is run" : ", and no backward is run in between");
  if (g->scalar) cause_say(c, "each turn also leaves a number behind, as a sum of losses does");
}

void cause_no_grad_missing(cause *c, const evidence *e, const findings *f) {
  const growth *g = &f->growth;
  if (!g->found || !g->graph || g->backward) return;
  double sure = g->evaluates ? 0.96 : g->scalar ? 0.35 : 0.95;
  c->confidence = sure * growth_weight(e, g);
  char place[256];
  if (e->has_stacks)
    cause_head(c, "The evaluation at %s builds graphs it never uses: %s more each turn",
               caller(e, g, place, sizeof place), cause_size(g->per_round));
  else
    cause_head(c, "A loop that never runs backward builds graphs: %s more each turn",
               cause_size(g->per_round));
  say_growth(c, e, g);
  cause_say(c, "what stays is what a forward pass saves for a backward that never comes");
  if (e->train_end_tick > 0 && e->train_end_tick < e->loop.list[0].start)
    cause_say(c, "training came before it and had stopped");
}

void cause_leak(cause *c, const evidence *e, const findings *f) {
  const growth *g = &f->growth;
  if (!g->found) return;
  c->confidence = (g->graph ? 0.3 : g->like_graph ? 0.78 : 0.94) * growth_weight(e, g);
  char place[256];
  if (g->stack_id != 0)
    cause_head(c, "Live memory grows by %s each turn, from %s", cause_size(g->per_round),
               evidence_place(e, place, sizeof place, e->user_of_stack[g->stack_id]));
  else
    cause_head(c, "Live memory grows by %s each turn", cause_size(g->per_round));
  say_growth(c, e, g);
}
