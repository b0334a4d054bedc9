/* Loop: the iterations of the loop in which a failure happened.
 *
 * The ends of optimizer steps separate the iterations of a training loop. What follows the last
 * step (an evaluation, a loop that never steps) is split at the program's own line that runs once
 * per iteration: it makes a batch, or keeps an output. A layer that recurs is not an iteration:
 * inside a module's call only the place where the model is entered counts. Without stacks, a size
 * that recurs at regular distances is used. */
#include <stdlib.h>
#include <string.h>

#include "advise/evidence.h"
#include "base/list.h"

#define ITERATIONS_LEAST 3   /* visits of a line before it counts as a loop */
#define SIZES_LEAST      4   /* occurrences of a size, without stacks */
#define COVER_LEAST      0.5 /* least fraction of the examined range that the iterations must cover */
/* Most variation of a size's distances: standard deviation divided by mean. */
#define SPREAD_MOST 0.25
/* Most visits of one line in an iteration: total = total + loss(net(batch())) has several. */
#define VISITS_MOST 16
/* Fraction of a line's visits that must be like those one iteration earlier. */
#define VISITS_ALIKE 0.8

#define SMALL_BYTES  4096
#define SMALL_NEAR   64  /* small allocations skipped to find the next large one */
#define NUMBER_BYTES 8   /* most bytes of a loss … */
#define BLOCK_BYTES  512 /* … and the block that PyTorch's allocator makes of it */

typedef struct anchor {
  uint64_t key;
  uint32_t count, first, last;
  double sum, squares;
} anchor;

static void anchor_seen(anchor *a, uint32_t tick) {
  if (a->count++ == 0) {
    a->first = tick;
  } else {
    double distance = (double)tick - a->last;
    a->sum += distance;
    a->squares += distance * distance;
  }
  a->last = tick;
}

static stow_status no_memory(void) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to look for the iterations of a loop");
}

static stow_status loop_add(loop_iterations *r, size_t *capacity, uint32_t start) {
  STOW_TRY(LIST_ROOM(r->list, r->count, *capacity, 64, "iterations of a loop"));
  if (r->count > 0) r->list[r->count - 1].end = start;
  r->list[r->count++] = (loop_iteration){.start = start};
  return STOW_OK;
}

/* ---- from marks ---- */

static bool is_end_of(const evidence *e, uint32_t tick, const char *wanted) {
  const event *at = timeline_event(&e->time, tick);
  if (at->kind != EVENT_MARK_END) return false;
  const char *name = recording_text(e->source, timeline_origin(&e->time, at)->tag_id);
  return strncmp(name, wanted, strlen(wanted)) == 0;
}

/* Splits at the batches that a DataLoader marks: without stacks, the iterations of a loop that
 * never steps. */
static stow_status cut_at_loads(const evidence *e, loop_iterations *out, uint32_t from) {
  size_t capacity = 0;
  for (uint32_t tick = from; tick < e->fail_tick; tick++)
    if (is_end_of(e, tick, "enumerate(DataLoader)")) STOW_TRY(loop_add(out, &capacity, tick + 1));
  if (out->count > 0) out->list[out->count - 1].end = e->fail_tick;
  return STOW_OK;
}

/* Returns whether a mark is that of one turn of the program's own loop: "step 12". */
static bool is_turn(const evidence *e, const event *mark) {
  static const char word[] = "step ";
  const char *name = recording_text(e->source, timeline_origin(&e->time, mark)->tag_id);
  char digit = strncmp(name, word, sizeof word - 1) == 0 ? name[sizeof word - 1] : '\0';
  return digit >= '0' && digit <= '9';
}

/* Splits at the steps that the program or an estimate marks. A recording that did not fail gets an
 * empty iteration at its end, because the last one counts as incomplete. */
static stow_status cut_at_turns(const evidence *e, loop_iterations *out) {
  size_t capacity = 0;
  uint32_t end = 0;
  for (uint32_t tick = 0; tick < e->fail_tick; tick++) {
    const event *at = timeline_event(&e->time, tick);
    if (at->kind != EVENT_MARK_BEGIN && at->kind != EVENT_MARK_END) continue;
    if (!is_turn(e, at)) continue;
    if (at->kind == EVENT_MARK_BEGIN) STOW_TRY(loop_add(out, &capacity, tick));
    if (at->kind == EVENT_MARK_END) end = tick;
  }
  bool between = out->count > 0 && end > out->list[out->count - 1].start;
  if (between && e->failed) out->count = 0; /* what failed was not one of them */
  if (between && !e->failed) STOW_TRY(loop_add(out, &capacity, end));
  if (out->count > 0) out->list[out->count - 1].end = e->fail_tick;
  return STOW_OK;
}

static stow_status cut_at_steps(evidence *e, loop_iterations *out, uint32_t *tail) {
  size_t capacity = 0;
  uint32_t ends = 0;
  *tail = e->first_work_tick;
  STOW_TRY(loop_add(out, &capacity, e->first_work_tick));
  for (uint32_t tick = e->first_work_tick; tick < e->fail_tick; tick++) {
    if (!is_end_of(e, tick, "Optimizer.step")) continue;
    STOW_TRY(loop_add(out, &capacity, tick + 1));
    *tail = tick + 1;
    ends++;
  }
  out->list[out->count - 1].end = e->fail_tick;
  out->from_marks = true;
  e->has_marks = ends > 0;
  return STOW_OK;
}

/* ---- from what comes back ---- */

static bool is_line_of_loop(const evidence *e, const anchor *a, double span) {
  return e->phase_of_stack[a->key] == PHASE_USER && a->count >= ITERATIONS_LEAST &&
         a->last - a->first >= COVER_LEAST * span;
}

/* Chooses a line: the one that is visited least often, because an inner loop is visited more often;
 * among equals, or those with one more visit in the iteration that failed, the first. */
static const anchor *best_line(const evidence *e, const anchor *all, uint32_t from) {
  uint32_t least = UINT32_MAX;
  const anchor *best = NULL;
  double span = (double)e->fail_tick - from;
  for (uint32_t s = 1; s <= e->source->stack_count; s++)
    if (all[s].count < least && is_line_of_loop(e, &all[s], span)) least = all[s].count;
  for (uint32_t s = 1; s <= e->source->stack_count && least != UINT32_MAX; s++)
    if (all[s].count <= least + 1 && is_line_of_loop(e, &all[s], span) &&
        (best == NULL || all[s].first < best->first))
      best = &all[s];
  return best;
}

/* Returns whether the place where the model is entered recurs in each iteration, and is not a
 * layer. In a loop, every place of the forward pass has occurred by the end of the second
 * iteration. */
static bool is_entry(const evidence *e, const anchor *all, uint32_t entry) {
  const anchor *a = &all[entry];
  uint32_t weights = 0, second = a->first + (uint32_t)(2 * a->sum / (a->count - 1));
  for (uint32_t s = 1; s <= e->source->stack_count; s++)
    if (all[s].count > 0 && e->phase_of_stack[s] == PHASE_FORWARD && all[s].first > second)
      return false;
  /* The layers of a Sequential are called from one line, so all of a kind share their stack. */
  if (!evidence_passes(e, entry, "", "nn/modules/container.py")) return true;
  for (uint32_t i = 0; i < e->time.lifetime_count; i++)
    weights += e->phase_of[i] == PHASE_BUILD && e->time.lifetimes[i].bytes >= 4096;
  return a->count > weights;
}

static stow_status find_line(evidence *e, uint32_t from, anchor *found) {
  anchor *all = calloc(e->source->stack_count + 1, sizeof *all);
  if (all == NULL) return no_memory();
  uint32_t entry = 0, first = 0, last = 0;
  for (uint32_t tick = from; tick < e->fail_tick; tick++) {
    uint32_t n = e->time.lifetime[tick];
    if (n == TIMELINE_NONE || timeline_event(&e->time, tick)->kind != EVENT_ALLOC) continue;
    uint32_t s = e->time.lifetimes[n].stack_id;
    if (s == 0) continue;
    if (first == 0 && e->phase_of_stack[s] != PHASE_BUILD) first = tick;
    if (entry == 0 && e->phase_of_stack[s] == PHASE_FORWARD) entry = s;
    /* Several allocations in a row on the model's first line are one iteration. */
    if (s != last || e->phase_of_stack[s] != PHASE_FORWARD) {
      all[s].key = s;
      anchor_seen(&all[s], tick);
    }
    last = s;
  }
  if (first < from) first = from;
  const anchor *best = best_line(e, all, first);
  double span = (double)e->fail_tick - first;
  if (best == NULL && entry != 0 && all[entry].count >= ITERATIONS_LEAST &&
      all[entry].last - all[entry].first >= COVER_LEAST * span && is_entry(e, all, entry))
    best = &all[entry];
  if (best != NULL) *found = *best;
  free(all);
  return STOW_OK;
}

static stow_status find_size(evidence *e, uint32_t from, anchor *found) {
  map index = {0};
  anchor *all = NULL;
  uint32_t count = 0;
  size_t capacity = 0;
  stow_status status = STOW_OK;
  for (uint32_t tick = from; tick < e->fail_tick && status == STOW_OK; tick++) {
    uint32_t n = e->time.lifetime[tick];
    if (n == TIMELINE_NONE || timeline_event(&e->time, tick)->kind != EVENT_ALLOC) continue;
    uint64_t bytes = e->time.lifetimes[n].bytes, *have = map_get(&index, bytes);
    uint32_t at = have != NULL ? (uint32_t)*have : count;
    if (have == NULL) {
      status = LIST_ROOM(all, count, capacity, 256, "sizes of a loop");
      if (status != STOW_OK) break;
      all[count++] = (anchor){.key = bytes};
      status = map_put(&index, bytes, at);
    }
    if (all != NULL) anchor_seen(&all[at], tick);
  }
  const anchor *best = NULL;
  for (uint32_t i = 0; i < count && status == STOW_OK; i++) {
    const anchor *a = &all[i];
    if (a->count < SIZES_LEAST || a->last - a->first < COVER_LEAST * (e->fail_tick - from))
      continue;
    double n = a->count - 1, mean = a->sum / n, variance = a->squares / n - mean * mean;
    if (mean < 8 || variance > mean * mean * SPREAD_MOST * SPREAD_MOST) continue;
    if (best == NULL || a->count < best->count) best = a;
  }
  if (best != NULL) *found = *best;
  map_free(&index);
  free(all);
  return status;
}

/* A visit to a line, or to the end of an optimizer's step: how many allocations are between it and
 * the next, and whether it leaves something that is live at the failure. */
typedef struct visit {
  uint32_t distance;
  bool kept;
} visit;

/* Returns whether visits repeat. The first iterations do more than the others (state is created, a
 * sum begins), so they are ignored. */
static bool alike_after(const visit *all, uint32_t count, uint32_t visits) {
  uint32_t same = 0, from = count / 4 > visits ? count / 4 : visits;
  for (uint32_t i = from; i < count; i++)
    same += all[i].distance == all[i - visits].distance && all[i].kept == all[i - visits].kept;
  return same >= VISITS_ALIKE * (count - from);
}

/* Returns after how many visits their pattern repeats. A program may make the batch, call the model
 * and add up the loss on one line, or step two optimizers: then the visits of an iteration differ
 * and repeat in the next. 1 if there is no such pattern. */
static uint32_t visits_of_iteration(const visit *all, uint32_t count) {
  for (uint32_t visits = 1; visits <= VISITS_MOST && visits * ITERATIONS_LEAST <= count; visits++)
    if (alike_after(all, count, visits)) return visits;
  return 1;
}

/* Returns which visit begins an iteration: the one that most of it follows, where a batch is made.
 */
static uint32_t visit_that_begins(const visit *all, uint32_t count, uint32_t visits) {
  uint32_t most = 0;
  for (uint32_t i = 1; i < visits && i < count; i++)
    if (all[count - 1 - i].distance > all[count - 1 - most].distance) most = i;
  return count > 0 ? (count - 1 - most) % visits : 0;
}

static bool is_visit(const evidence *e, uint32_t tick, const anchor *a, bool *allocates) {
  uint32_t n = e->time.lifetime[tick];
  *allocates = n != TIMELINE_NONE && timeline_event(&e->time, tick)->kind == EVENT_ALLOC;
  if (!*allocates) return false;
  const lifetime *l = &e->time.lifetimes[n];
  return (e->has_stacks ? l->stack_id : l->bytes) == a->key;
}

/* Finds every how many visits to its line begin an iteration, and the first of them. */
static stow_status find_visits(const evidence *e, uint32_t from, const anchor *a, uint32_t *visits,
                               uint32_t *begins) {
  uint32_t seen = 0, most = 0; /* more than the anchor's count, which merges several visits in a
                                * row */
  bool allocates;
  for (uint32_t tick = from; tick < e->fail_tick; tick++) most += is_visit(e, tick, a, &allocates);
  visit *all = malloc((most + 1u) * sizeof *all);
  if (all == NULL) return no_memory();
  for (uint32_t tick = from; tick < e->fail_tick; tick++) {
    if (is_visit(e, tick, a, &allocates))
      all[seen++] = (visit){.kept = evidence_live(e, &e->time.lifetimes[e->time.lifetime[tick]])};
    if (allocates && seen > 0) all[seen - 1].distance++;
  }
  uint32_t whole = seen > 0 ? seen - 1 : 0; /* the last may be cut */
  *visits = visits_of_iteration(all, whole);
  *begins = visit_that_begins(all, whole, *visits);
  free(all);
  return STOW_OK;
}

static stow_status cut_at_anchor(evidence *e, loop_iterations *out, uint32_t from,
                                 const anchor *a) {
  size_t capacity = 0;
  uint32_t visits = 1, begins = 0, seen = 0;
  bool allocates;
  if (e->has_stacks) STOW_TRY(find_visits(e, from, a, &visits, &begins));
  for (uint32_t tick = from; tick < e->fail_tick; tick++)
    if (is_visit(e, tick, a, &allocates) && seen++ % visits == begins)
      STOW_TRY(loop_add(out, &capacity, tick));
  if (out->count > 0) out->list[out->count - 1].end = e->fail_tick;
  if (e->has_stacks) out->anchor_stack_id = (uint32_t)a->key;
  return STOW_OK;
}

/* ---- what each iteration did ---- */

static loop_iteration *loop_at(loop_iterations *r, uint32_t tick) {
  if (r->count == 0 || tick < r->list[0].start) return NULL;
  uint32_t low = 0, high = r->count;
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    if (r->list[middle].start <= tick)
      low = middle;
    else
      high = middle;
  }
  return tick < r->list[low].end ? &r->list[low] : NULL;
}

/* Returns the size of a number: its own size, or a block if the events have whole block sizes. What
 * is live at the end does not show that, because its size may come from the snapshot. */
static uint64_t number_bytes(const evidence *e) {
  for (uint32_t i = 0; i < e->time.lifetime_count; i++)
    if (!evidence_live(e, &e->time.lifetimes[i]) && e->time.lifetimes[i].bytes % BLOCK_BYTES != 0)
      return NUMBER_BYTES;
  return BLOCK_BYTES;
}

/* Returns whether this number is made for later work rather than by a pass. A time step or a factor
 * occurs within the program's own work, or between that and the model's; a loss comes after the
 * model, or before the next batch. */
static bool is_operand(const evidence *e, uint32_t number) {
  uint32_t before = number, after = number + 1;
  while (before > e->time.before_count && number - before < SMALL_NEAR &&
         e->time.lifetimes[before - 1].bytes <= SMALL_BYTES)
    before--;
  while (after < e->time.lifetime_count && after - number < SMALL_NEAR &&
         e->time.lifetimes[after].bytes <= SMALL_BYTES)
    after++;
  if (before == e->time.before_count || after == e->time.lifetime_count) return false;
  before--;
  /* Several in a row on one line are work with it, not a batch. */
  if (after + 1 < e->time.lifetime_count && e->phase_of[after] == PHASE_USER &&
      e->time.lifetimes[after + 1].bytes > SMALL_BYTES &&
      e->time.lifetimes[after].stack_id == e->time.lifetimes[after + 1].stack_id)
    return true;
  if (e->phase_of[before] != PHASE_USER) return false;
  uint32_t line = e->time.lifetimes[number].stack_id;
  return e->phase_of[after] == PHASE_FORWARD ||
         (e->time.lifetimes[before].stack_id == line && e->time.lifetimes[after].stack_id == line);
}

static void measure(const evidence *e, loop_iterations *r) {
  uint64_t number = number_bytes(e);
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    loop_iteration *in = loop_at(r, l->start);
    if (in == NULL) continue;
    phase p = e->phase_of[i];
    bool live = evidence_live(e, l);
    if (p == PHASE_BACKWARD) in->backward = true;
    if (p == PHASE_FORWARD) in->forward_bytes += l->bytes;
    if (p == PHASE_USER) in->user_bytes += l->bytes;
    if (l->bytes <= number && l->end > in->end && (p == PHASE_USER || p == PHASE_FORWARD)) {
      in->scalar = true;
      in->loss |= !is_operand(e, i);
    }
    if (!live || p == PHASE_OPTIMIZER || p == PHASE_BUILD || p == PHASE_LOAD || p == PHASE_COPY)
      continue;
    in->kept_bytes += l->bytes;
    in->kept_count++;
    if (p == PHASE_USER) {
      in->kept_user_bytes += l->bytes;
      in->kept_user_count += l->bytes > number;
    }
    if (p == PHASE_FORWARD) {
      in->kept_forward_bytes += l->bytes;
      in->kept_forward_count++;
    }
    if (p == PHASE_BACKWARD) in->kept_backward_count++;
  }
}

/* Programs with several optimizers (a GAN) step each of them in an iteration. */
static stow_status join_steps(const evidence *e, loop_iterations *r) {
  if (r->count <= 2 * ITERATIONS_LEAST) return STOW_OK;
  uint32_t whole = r->count - 1;
  visit *all = calloc(whole, sizeof *all);
  if (all == NULL) return no_memory();
  for (uint32_t i = 0; i < whole; i++) all[i].kept = r->list[i].kept_bytes > 0;
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++) {
    loop_iteration *in = loop_at(r, e->time.lifetimes[i].start);
    if (in != NULL && in < r->list + whole) all[in - r->list].distance++;
  }
  uint32_t together = visits_of_iteration(all, whole), joined = 0;
  free(all);
  if (together == 1) return STOW_OK;
  for (uint32_t i = 0; i < r->count; i += together) {
    uint32_t last = i + together <= r->count ? i + together - 1 : r->count - 1;
    r->list[joined] = (loop_iteration){.start = r->list[i].start, .end = r->list[last].end};
    joined++;
  }
  r->count = joined;
  measure(e, r);
  return STOW_OK;
}

/* Returns whether nothing came from that stack before `until`. */
static bool is_new(const evidence *e, uint32_t stack_id, uint32_t until) {
  if (stack_id == 0) return false;
  for (uint32_t i = 0; i < e->time.lifetime_count; i++)
    if (e->time.lifetimes[i].stack_id == stack_id && e->time.lifetimes[i].start < until)
      return false;
  return true;
}

/* Returns whether no earlier step visited that line as often as the iteration that failed. A step
 * may iterate over many parts; iterating over more of them than ever is what fills the memory. */
static bool outlasts(const evidence *e, loop_iterations *stepped, const loop_iterations *looped) {
  uint32_t stack_id = looped->anchor_stack_id, most = 0, seen = 0, whole = stepped->count - 1;
  const loop_iteration *at = NULL;
  if (stack_id == 0) return false;
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++) {
    if (e->time.lifetimes[i].stack_id != stack_id) continue;
    const loop_iteration *in = loop_at(stepped, e->time.lifetimes[i].start);
    if (in == NULL || in == stepped->list + whole) continue;
    seen = in == at ? seen + 1 : 1;
    at = in;
    if (seen > most) most = seen;
  }
  return looped->count > ITERATIONS_LEAST && looped->count * 5 > most * 6;
}

/* Without stacks: returns whether a size that a training step requests once, or a few times, occurs
 * more often since the last step than three steps would request it. */
static bool comes_more_often(const evidence *e, const loop_iterations *stepped, const anchor *a) {
  const loop_iteration *last = &stepped->list[stepped->count - 2];
  uint32_t in_step = 0, since = 0;
  bool allocates;
  if (e->has_stacks) return false;
  for (uint32_t tick = last->start; tick < e->fail_tick; tick++)
    *(tick < last->end ? &in_step : &since) += is_visit(e, tick, a, &allocates);
  return in_step > 0 && since >= ITERATIONS_LEAST * in_step;
}

/* Takes marked steps for the iterations, if enough of them are complete, here or in the whole
 * recording. */
static stow_status take_turns(evidence *e, bool *taken) {
  loop_iterations turns = {0};
  stow_status status = cut_at_turns(e, &turns);
  bool whole = e->whole != NULL && e->whole->loop.turns && turns.count > 0;
  *taken = status == STOW_OK && (whole || turns.count > ITERATIONS_LEAST);
  if (!*taken) {
    loop_free(&turns);
    return status;
  }
  measure(e, &turns);
  e->has_marks = turns.turns = true;
  e->loop = turns;
  if (turns.count > 1) e->iteration_tick = turns.list[turns.count - 1].start;
  return STOW_OK;
}

stow_status evidence_loop(evidence *e) {
  loop_iterations stepped = {0}, looped = {0};
  uint32_t tail;
  anchor found = {0};
  bool taken;
  STOW_TRY(take_turns(e, &taken));
  if (taken) return STOW_OK;
  stow_status status = cut_at_steps(e, &stepped, &tail);
  if (status == STOW_OK) measure(e, &stepped);
  if (status == STOW_OK && e->has_marks) status = join_steps(e, &stepped);
  /* Without marks, training ends with the last backward pass or optimizer step. */
  if (!e->has_marks && e->has_stacks && e->train_end_tick > tail) {
    uint32_t after = e->train_end_tick + 1;
    bool long_enough = (double)(e->fail_tick - after) > 0.15 * (double)(e->fail_tick - tail);
    if (status == STOW_OK && long_enough) status = find_line(e, after, &found);
    if (found.count > 0) tail = after;
  }
  if (status == STOW_OK && !e->has_stacks) status = cut_at_loads(e, &looped, tail);
  bool loads = looped.count >= ITERATIONS_LEAST;
  if (!loads) loop_free(&looped);
  if (status == STOW_OK && found.count == 0 && !loads)
    status = e->has_stacks ? find_line(e, tail, &found) : find_size(e, tail, &found);
  if (status == STOW_OK && found.count > 0) status = cut_at_anchor(e, &looped, tail, &found);
  if (status != STOW_OK) {
    loop_free(&stepped);
    loop_free(&looped);
    return status;
  }
  /* After training, another loop is accepted only if it is longer than a training step, or on a
   * line that training never ran: a step may itself iterate over many small parts. */
  uint32_t whole = stepped.count - 1;
  double step_ticks = whole > 0 ? ((double)tail - stepped.list[0].start) / whole : 0;
  bool own_loop = looped.count >= ITERATIONS_LEAST &&
                  (whole < 2 || loads || (double)e->fail_tick - tail > 1.2 * step_ticks ||
                   is_new(e, looped.anchor_stack_id, tail) || outlasts(e, &stepped, &looped) ||
                   comes_more_often(e, &stepped, &found));
  if (own_loop || whole < 2) {
    loop_free(&stepped);
    if (looped.count < ITERATIONS_LEAST) loop_free(&looped);
    measure(e, &looped);
    e->loop = looped;
  } else {
    loop_free(&looped);
    e->loop = stepped;
  }
  if (e->loop.count > 0)
    e->iteration_tick = e->loop.list[e->loop.count - 1].start;
  else if (tail > e->first_work_tick)
    e->iteration_tick = tail;
  return STOW_OK;
}

uint32_t evidence_peak_of(const evidence *e, const loop_iteration *r) {
  int64_t live = 0, most = INT64_MIN;
  uint32_t at = r->start;
  for (uint32_t tick = r->start; tick < r->end; tick++) {
    live += (int64_t)timeline_change(&e->time, tick);
    if (live <= most) continue;
    most = live;
    at = tick;
  }
  return at;
}

void loop_free(loop_iterations *r) {
  free(r->list);
  *r = (loop_iterations){0};
}
