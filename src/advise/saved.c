/* Saved: what training's forward passes hold for their backward pass, by place in the model.
 *
 * evidence.c calls it last; the causes use it for two questions that no name or size answers:
 * whether what stays from an iteration is a graph (all of it stays, not one output), and whether
 * the pass that failed builds one (under torch.no_grad(), what training saves is freed as the pass
 * goes on).
 */
#include <stdlib.h>

#include "advise/evidence.h"

#define PIECES_LEAST 3  /* allocations of a pass that show whether it builds a graph … */
#define PIECES_BUILT 16 /* … and that it does: the first few are held either way */
#define PIECES_ORDER 6  /* … where only their order shows which is which */
/* Allocations of a whole pass: fewer may be held by the program's own variables. */
#define PIECES_PASS  8
#define PASSES_LEAST 2 /* complete passes: in training, one of them would have run backward */
/* Least fraction of what passes on a call path allocate that is held until a backward pass. */
#define WAY_TRAINED 0.2
#define HELD_BUILT  0.8 /* fraction of what training would hold by then, if a graph is built */
#define HELD_NONE   0.5

/* Lists where autograd begins, in order. */
static stow_status backward_starts(const evidence *e, uint32_t **list, uint32_t *count) {
  *list = malloc((e->time.lifetime_count + 1u) * sizeof **list);
  *count = 0;
  if (*list == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %u allocations",
                     e->time.lifetime_count);
  bool in_backward = false;
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++) {
    bool now = e->phase_of[i] == PHASE_BACKWARD;
    if (now && !in_backward) (*list)[(*count)++] = e->time.lifetimes[i].start;
    in_backward = now;
  }
  return STOW_OK;
}

static uint32_t first_after(const uint32_t *list, uint32_t count, uint32_t tick) {
  uint32_t low = 0, high = count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (list[middle] > tick)
      high = middle;
    else
      low = middle + 1;
  }
  return low < count ? list[low] : TIMELINE_NONE;
}

static stow_status add(map *m, uint64_t place, uint64_t bytes) {
  uint64_t *have = map_get(m, place);
  if (have == NULL) return map_put(m, place, bytes);
  *have += bytes;
  return STOW_OK;
}

stow_status evidence_saved(evidence *e) {
  uint32_t *starts = NULL, count = 0;
  if (!e->has_stacks) return STOW_OK;
  stow_status status = backward_starts(e, &starts, &count);
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count && status == STOW_OK; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    if (e->phase_of[i] != PHASE_FORWARD || l->start >= e->fail_tick) continue;
    uint32_t backward = first_after(starts, count, l->start);
    if (backward == TIMELINE_NONE || backward >= e->fail_tick) continue;
    uint64_t place = e->inner_of_stack[l->stack_id], way = e->outer_of_stack[l->stack_id];
    status = add(&e->ways, way, l->bytes);
    if (status == STOW_OK && l->end > backward) status = add(&e->trained, way, l->bytes);
    /* What is still live at the failure may be kept for another reason. */
    if (status != STOW_OK || evidence_live(e, l)) continue;
    status = add(&e->passed, place, l->bytes);
    if (status == STOW_OK && l->end > backward) status = add(&e->saved, place, l->bytes);
  }
  free(starts);
  return status;
}

/* Returns whether a call path trains. An evaluation's last output may stay until training
 * continues; of a training pass much more stays. */
bool evidence_trains(const evidence *e, uint32_t stack_id) {
  uint64_t way = e->outer_of_stack[stack_id];
  const uint64_t *held = map_get(&e->trained, way), *all = map_get(&e->ways, way);
  if (held == NULL || all == NULL) return false;
  return e->recomputes || (double)*held >= WAY_TRAINED * (double)*all;
}

/* Without stacks: returns how many of an iteration's first allocations are still live after as many
 * more. */
static uint32_t held_of_first(const evidence *e, uint32_t from, uint32_t until, uint32_t wanted,
                              uint32_t *seen) {
  uint32_t held = 0, at = from;
  for (*seen = 0; at < until && *seen < wanted; at++)
    *seen += timeline_event(&e->time, at)->kind == EVENT_ALLOC;
  for (uint32_t tick = from; tick < at; tick++) {
    uint32_t n = e->time.lifetime[tick];
    if (timeline_event(&e->time, tick)->kind == EVENT_ALLOC && n != TIMELINE_NONE)
      held += e->time.lifetimes[n].end >= at;
  }
  return held;
}

static graph_built built_by_order(const evidence *e) {
  if (e->loop.count < 2 || !e->loop.from_marks) return GRAPH_UNKNOWN;
  const loop_iteration *last = &e->loop.list[e->loop.count - 1], *before = last - 1;
  uint32_t now, then, held = held_of_first(e, last->start, last->end, UINT32_MAX, &now);
  uint32_t held_then = held_of_first(e, before->start, before->end, now, &then);
  if (now < PIECES_LEAST || then < now) return GRAPH_UNKNOWN;
  if (held >= held_then) return now >= PIECES_ORDER ? GRAPH_BUILT : GRAPH_UNKNOWN;
  return held * 3 <= held_then * 2 ? GRAPH_NOT_BUILT : GRAPH_UNKNOWN;
}

graph_built evidence_builds_graph(const evidence *e) {
  if (!e->has_stacks) return built_by_order(e);
  uint32_t from = e->iteration_tick > e->train_end_tick ? e->iteration_tick : e->train_end_tick,
           pieces = 0;
  double held = 0, expected = 0;
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    if (l->start < from || l->start >= e->fail_tick || e->phase_of[i] != PHASE_FORWARD) continue;
    uint64_t place = e->inner_of_stack[l->stack_id];
    const uint64_t *saved = map_get(&e->saved, place), *passed = map_get(&e->passed, place);
    if (saved == NULL || passed == NULL || *passed == 0) continue;
    pieces++;
    expected += (double)l->bytes * (double)*saved / (double)*passed;
    if (evidence_live(e, l)) held += (double)l->bytes;
  }
  if (pieces < PIECES_LEAST) return GRAPH_UNKNOWN;
  if (held <= HELD_NONE * expected) return GRAPH_NOT_BUILT;
  return pieces >= PIECES_BUILT && held >= HELD_BUILT * expected ? GRAPH_BUILT : GRAPH_UNKNOWN;
}

static int by_part(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

typedef struct pass {
  uint32_t last; /* the tick of its last forward allocation */
  uint32_t pieces;
  uint64_t bytes, held;
} pass;

/* What outlives the next iteration too is kept on purpose: an output, a cache. A graph ends with
 * its pass, or when the next one replaces it. */
static void measure_passes(const evidence *e, pass *all, uint32_t whole) {
  for (int held = 0; held < 2; held++) {
    uint32_t at = 0;
    for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++) {
      const lifetime *l = &e->time.lifetimes[i];
      while (at < whole && l->start >= e->loop.list[at].end) at++;
      if (at == whole) break;
      if (e->phase_of[i] != PHASE_FORWARD || l->start < e->loop.list[at].start) continue;
      pass *in = &all[at];
      if (held) {
        uint32_t next = at + 1 < e->loop.count ? e->loop.list[at + 1].end : TIMELINE_NONE;
        if (l->end > in->last && l->end <= next) in->held += l->bytes;
      } else {
        in->last = l->start;
        in->bytes += l->bytes;
        in->pieces++;
      }
    }
  }
}

stow_status evidence_held_to_end(const evidence *e, double *part) {
  *part = 0;
  if (e->loop.count < PASSES_LEAST + 1) return STOW_OK;
  uint32_t whole = e->loop.count - 1, count = 0;
  pass *all = calloc(whole, sizeof *all);
  double *parts = malloc(whole * sizeof *parts);
  stow_status status = STOW_OK;
  if (all == NULL || parts == NULL) {
    status = stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %u iterations", whole);
  } else {
    measure_passes(e, all, whole);
    for (uint32_t i = 0; i < whole; i++)
      if (all[i].pieces >= PIECES_PASS && !e->loop.list[i].backward)
        parts[count++] = (double)all[i].held / (double)all[i].bytes;
    if (count >= PASSES_LEAST && count * 2 > whole) {
      qsort(parts, count, sizeof *parts, by_part);
      *part = parts[count / 2];
    }
  }
  free(all);
  free(parts);
  return status;
}
