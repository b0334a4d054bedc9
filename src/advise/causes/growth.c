/* Growth: what grows from iteration to iteration, and leaks.
 *
 * Either every iteration leaves something behind, or one object is recreated in every iteration,
 * larger by what the iteration adds (torch.cat of all so far). graph.c decides whether it is a
 * graph. */
#include <stdlib.h>
#include <string.h>

#include "advise/causes.h"
#include "base/compare.h"

/* Least fraction of the live and requested memory that the growth must be. */
#define LIVE_SHARE 0.05
/* The same for one container that a program reports, in which no growth was found. */
#define HELD_SHARE 0.5
/* Least fraction of everything that stayed, if each iteration left as much as the median iteration.
 */
#define EVEN_SHARE 0.2
/* Fraction of iterations that keep at least half of what the median iteration keeps. */
#define ITERATIONS_SIMILAR 0.6
#define SWELL_ITERATIONS   4   /* complete iterations in which an object must grow */
#define SWELL_RISES        0.8 /* fraction of iterations in which it is larger than before */
#define ROW_LEAST          6   /* sizes in a series, each larger than the last by the same amount */
/* Least fraction of the live and requested memory that was added this way. */
#define SWELL_SHARE 0.1

/* Computes what the median iteration keeps. The first iteration creates optimizer state, caches and
 * workspaces, so it is left out if there are others. */
static stow_status middle_kept(const evidence *e, uint32_t first, uint32_t whole,
                               uint64_t *middle) {
  uint32_t n = whole - first;
  uint64_t *kept = malloc(n * sizeof *kept);
  if (kept == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %u iterations", n);
  for (uint32_t i = 0; i < n; i++) kept[i] = e->loop.list[first + i].kept_bytes;
  qsort(kept, n, sizeof *kept, compare_u64);
  *middle = kept[n / 2];
  free(kept);
  return STOW_OK;
}

/* Finds the stacks that leave something in most iterations, and the one that leaves most. */
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

/* ---- one object that is recreated, larger in each iteration ---- */

typedef struct enlarging {
  uint64_t now, at_end,
      first; /* live from a stack: at a tick, at the last iteration's end, at the first's */
  uint64_t largest_first, largest; /* largest request in the first complete iteration examined and
                                    * in the last */
  uint32_t rises, falls;
  uint32_t touched; /* the iteration it was last touched in, from 1 */
} enlarging;

static void end_iteration(enlarging *all, const uint32_t *touched, uint32_t count,
                          uint32_t iteration) {
  for (uint32_t i = 0; i < count; i++) {
    enlarging *s = &all[touched[i]];
    if (iteration == 0) s->first = s->now;
    if (iteration > 0 && s->now > s->at_end) s->rises++;
    if (iteration > 0 && s->now < s->at_end) s->falls++;
    s->at_end = s->now;
  }
}

/* Visits the complete iterations; the first one is only for comparison with the others. */
static void follow_iterations(const evidence *e, enlarging *all, uint32_t *touched,
                              uint32_t whole) {
  uint32_t iteration = 0, count = 0;
  for (uint32_t tick = e->loop.list[0].start; tick < e->loop.list[whole].start; tick++) {
    for (; iteration < whole && tick >= e->loop.list[iteration].end; iteration++, count = 0)
      end_iteration(all, touched, count, iteration);
    uint32_t n = e->time.lifetime[tick];
    event_kind kind = timeline_event(&e->time, tick)->kind;
    if (n == TIMELINE_NONE) continue;
    const lifetime *l = &e->time.lifetimes[n];
    bool born = kind == EVENT_ALLOC && l->start == tick, dies = !born && l->end == tick;
    if (!born && !dies) continue;
    enlarging *s = &all[l->stack_id];
    s->now = born ? s->now + l->bytes : s->now - (l->bytes < s->now ? l->bytes : s->now);
    if (born && iteration <= 1 && l->bytes > s->largest_first) s->largest_first = l->bytes;
    if (born && iteration + 1 == whole && l->bytes > s->largest) s->largest = l->bytes;
    if (s->touched == iteration + 1) continue;
    s->touched = iteration + 1;
    touched[count++] = l->stack_id;
  }
  end_iteration(all, touched, count, iteration);
}

/* Returns whether most places stay the same. With a growing batch every place grows; beside one
 * growing object, most do not. */
static bool most_stay(const evidence *e, const enlarging *all) {
  uint32_t same = 0, larger = 0;
  for (uint32_t s = 1; s <= e->source->stack_count; s++) {
    if (all[s].largest_first < 4096 || all[s].largest < 4096) continue;
    bool grew = all[s].largest > all[s].largest_first + all[s].largest_first / 20;
    *(grew ? &larger : &same) += 1;
  }
  return same >= larger;
}

static void take_enlarging(growth *g, const evidence *e, const enlarging *all) {
  uint64_t most = 0, total = 0;
  for (uint32_t s = 1; s <= e->source->stack_count; s++) {
    phase p = e->phase_of_stack[s];
    uint64_t added = all[s].at_end > all[s].first ? all[s].at_end - all[s].first : 0;
    g->of_stack[s] = (p == PHASE_USER || p == PHASE_FORWARD) &&
                     all[s].rises >= SWELL_RISES * (g->whole - 1) && added > 0;
    if (!g->of_stack[s]) continue;
    total += added;
    if (added <= most) continue;
    most = added;
    g->stack_id = s;
  }
  double room = (double)e->n.live_bytes + (double)evidence_requested_bytes(e);
  if (most == 0 || (double)total < SWELL_SHARE * room || !most_stay(e, all)) return;
  g->found = g->swells = true;
  g->total = total;
  g->per_iteration = total / (g->whole - 1);
  g->stack_bytes = most;
  g->stack_count = g->whole;
}

/* Without stacks: the request that failed is the next in a series of sizes, each larger than the
 * last by the same amount, and the last of them is live. */
static stow_status row_find(growth *g, const evidence *e) {
  uint64_t asked = evidence_requested_bytes(e), last = 0;
  map tick_of = {0};
  stow_status status = STOW_OK;
  for (uint32_t i = 0; i < e->time.lifetime_count && status == STOW_OK; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    if (l->start >= e->fail_tick || l->bytes >= asked || l->bytes < asked / 2) continue;
    status = map_put(&tick_of, l->bytes, l->start);
    if (l->bytes > last && evidence_live(e, l)) last = l->bytes;
  }
  uint64_t added = asked - last;
  uint32_t length = 0;
  const uint64_t *later = NULL, *at;
  while (last > 0 && (length + 1) * added < asked / 2 &&
         (at = map_get(&tick_of, asked - (length + 1) * added)) != NULL &&
         (later == NULL || *at < *later)) {
    later = at;
    length++;
  }
  if (length >= ROW_LEAST && (double)last >= SWELL_SHARE * (double)(e->n.live_bytes + asked)) {
    g->found = g->swells = true;
    g->whole = length;
    g->per_iteration = added;
    g->total = g->stack_bytes = g->swollen_bytes = last;
    g->stack_id = e->fail_stack_id;
    g->stack_count = length;
  }
  map_free(&tick_of);
  return status;
}

static stow_status enlarging_find(growth *g, const evidence *e) {
  if (!e->has_stacks) return row_find(g, e);
  if (g->whole < SWELL_ITERATIONS) return STOW_OK;
  size_t stacks = e->source->stack_count + 1;
  enlarging *all = calloc(stacks, sizeof *all);
  uint32_t *touched = malloc(stacks * sizeof *touched);
  g->of_stack = calloc(stacks, 1);
  stow_status status = STOW_OK;
  if (all == NULL || touched == NULL || g->of_stack == NULL) {
    status = stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %zu stacks", stacks);
  } else {
    follow_iterations(e, all, touched, g->whole);
    take_enlarging(g, e, all);
  }
  free(all);
  free(touched);
  return status;
}

static iteration_sums sum_iterations(const evidence *e, growth *g, uint32_t first) {
  iteration_sums t = {.n = g->whole - first};
  for (uint32_t i = 0; i < g->whole; i++) {
    const loop_iteration *r = &e->loop.list[i];
    g->total += r->kept_bytes;
    if (i < first) continue;
    t.later += r->kept_bytes;
    t.similar += r->kept_bytes * 2 >= g->per_iteration;
    t.backward += r->backward;
    t.scalar += r->scalar;
    t.loss += r->loss;
    t.pieces += r->kept_forward_count;
    t.forward += r->forward_bytes;
    t.kept_forward += r->kept_forward_bytes;
    t.own_pieces += r->kept_user_count;
    t.back_pieces += r->kept_backward_count;
    t.own += r->user_bytes;
    t.kept_own += r->kept_user_bytes;
  }
  return t;
}

stow_status growth_find(growth *g, const evidence *e) {
  *g = (growth){0};
  if (e->n.live_bytes == 0) return STOW_OK;
  if (e->loop.count < 3) return e->has_stacks ? STOW_OK : row_find(g, e);
  /* Without stacks, the iterations of a first step may be layers; a step that reached its optimizer
   * has run backward. */
  if (!e->has_stacks && !e->loop.from_marks && e->fail_phase == PHASE_OPTIMIZER) return STOW_OK;
  g->whole = e->loop.count - 1;
  uint32_t first = g->whole >= 3;
  STOW_TRY(middle_kept(e, first, g->whole, &g->per_iteration));
  iteration_sums t = sum_iterations(e, g, first);
  g->found = g->per_iteration > 0 && t.similar >= ITERATIONS_SIMILAR * t.n &&
             (double)g->per_iteration * t.n >= EVEN_SHARE * (double)t.later &&
             (double)g->total >=
                 LIVE_SHARE * ((double)e->n.live_bytes + (double)evidence_requested_bytes(e));
  if (!g->found) return enlarging_find(g, e);
  STOW_TRY(growing_stacks(g, e));
  return graph_judge(g, e, &t);
}

/* The weights exist three or more times: copies accumulate, a few iterations apart. */
static void copies_pile_up(cause *c, const evidence *e, const copies *k) {
  char place[256];
  c->confidence = e->has_stacks ? 0.9 : 0.6;
  cause_head(c, "Copies of the weights pile up: %s beside %s of weights, from %s",
             cause_size(k->copy_bytes + k->more_bytes), cause_size(k->weight_bytes),
             evidence_place(e, place, sizeof place, e->user_of_stack[k->stack_id]));
  cause_say(c, "%.1f copies are there",
            (double)(k->copy_bytes + k->more_bytes) / (double)k->copy_bytes);
}

/* A container of the program's loop holds most of the live memory, whatever each iteration adds. */
static void container_fills(cause *c, const evidence *e) {
  const program_advice *a = program_advice_of(&e->program, ADVICE_VALUES);
  if (a == NULL || a->held_bytes < HELD_SHARE * (double)e->n.live_bytes) return;
  /* Views of the same memory count once for each of them. */
  if (a->held_bytes > e->n.live_bytes + e->n.live_bytes / 20) return;
  c->confidence = 0.93;
  cause_head(c, "One container of the program holds about %s of the %s live",
             cause_size(a->held_bytes), cause_size(e->n.live_bytes));
  cause_say(c, "the loop that ran adds to it");
}

void cause_leak(cause *c, const evidence *e, const findings *f) {
  const growth *g = &f->growth;
  if (!g->found && copies_piled_up(&f->copies, e))
    copies_pile_up(c, e, &f->copies);
  else if (!g->found)
    container_fills(c, e);
  if (!g->found) return;
  c->confidence = (g->graph ? 0.3 : g->like_graph ? 0.78 : 0.94) * growth_weight(e, g);
  char place[256];
  if (g->stack_id != 0)
    cause_head(c, "Live memory grows by %s each iteration, from %s", cause_size(g->per_iteration),
               evidence_place(e, place, sizeof place, e->user_of_stack[g->stack_id]));
  else
    cause_head(c, "Live memory grows by %s each iteration", cause_size(g->per_iteration));
  growth_say(c, e, g);
}
