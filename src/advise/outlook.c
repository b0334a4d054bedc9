/* Outlook: passes that wait for a backward pass, what no kernel uses, and growth that goes on. */
#include "advise/outlook.h"

#include <stdlib.h>
#include <string.h>

#include "advise/touches.h"
#include "advise/whatif.h"

#define SMALL_BYTES  4096 /* numbers, and what is as small */
#define PASSES_LEAST 3    /* passes before one backward pass: two may be those of one loss */
#define PASS_ALIKE   0.1  /* how much their sizes may differ */
#define WAITS_SHARE  0.3  /* least fraction of the live memory that waits */
#define KEPT_UNTIL   0.9  /* fraction of the recording that a kept allocation lives to see */

static stow_status no_memory(const evidence *e) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to follow %u allocations",
                   e->time.lifetime_count);
}

static uint32_t last_tick(const evidence *e) {
  return e->time.tick_count > 0 ? e->time.tick_count - 1 : 0;
}

/* ---- passes that wait for one backward pass ---- */

typedef struct waiting {
  const evidence *e;
  uint32_t from, backward; /* ticks */
  uint32_t *pass_of;       /* by lifetime: the pass that made it, from 1 */
  bool dependent;
} waiting;

/* A kernel that uses what two passes made shows that they belong together: steps of a sequence, or
 * outputs that are compared. */
static void see_pass(void *user, const touches *t) {
  waiting *w = user;
  if (t->tick < w->from || t->tick >= w->backward) return;
  const lifetime *all = w->e->time.lifetimes;
  uint32_t pass = 0, made = touches_youngest(w->e, t);
  for (uint32_t i = 0; i < t->count; i++) {
    uint32_t of = w->pass_of[t->list[i]];
    if (of == 0 || all[t->list[i]].bytes <= SMALL_BYTES) continue;
    w->dependent |= pass != 0 && pass != of;
    pass = of;
  }
  if (all[made].start >= w->from && w->pass_of[made] == 0) w->pass_of[made] = pass;
}

static uint32_t next_backward(const evidence *e) {
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++)
    if (e->time.lifetimes[i].start > e->fail_tick && e->phase_of[i] == PHASE_BACKWARD)
      return e->time.lifetimes[i].start;
  return TIMELINE_NONE;
}

/* Numbers the passes between two backward passes: allocations of a model without one of the
 * program's own lines between them. Returns how many there are, 0 if they are not alike. */
static uint32_t number_passes(waiting *w, outlook *o) {
  const evidence *e = w->e;
  uint64_t bytes = 0, first = 0;
  uint32_t passes = 0, alike = 0;
  bool inside = false;
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    if (l->start < w->from || l->start >= w->backward) continue;
    bool forward = e->phase_of[i] == PHASE_FORWARD;
    if (forward && !inside) {
      if (passes == 1) first = bytes;
      alike += passes > 0 && (double)bytes >= (1 - PASS_ALIKE) * (double)first &&
               (double)bytes <= (1 + PASS_ALIKE) * (double)first;
      bytes = 0;
      passes++;
      if (l->start < e->fail_tick) {
        o->waiting = passes - 1;
        o->waiting_until = l->start;
      }
    }
    inside = forward || (inside && e->phase_of[i] != PHASE_USER);
    if (!forward) continue;
    bytes += l->bytes;
    w->pass_of[i] = passes;
  }
  return passes > 0 && alike + 1 >= passes ? passes : 0;
}

/* Counts what the complete passes hold until the backward pass. */
static void sum_waiting(outlook *o, const waiting *w) {
  o->waiting_bytes = 0;
  for (uint32_t i = w->e->time.before_count; i < w->e->time.lifetime_count; i++) {
    const lifetime *l = &w->e->time.lifetimes[i];
    if (w->e->phase_of[i] == PHASE_FORWARD && l->start >= w->from && l->start < o->waiting_until &&
        l->end > w->backward)
      o->waiting_bytes += l->bytes;
  }
}

static stow_status find_waiting(outlook *o, const evidence *e) {
  waiting w = {.e = e, .backward = next_backward(e)};
  w.from = e->train_end_tick > e->first_work_tick ? e->train_end_tick + 1 : e->first_work_tick;
  if (e->fail_phase != PHASE_FORWARD && e->fail_phase != PHASE_USER) return STOW_OK;
  if (w.backward == TIMELINE_NONE || !touches_known(e)) return STOW_OK;
  w.pass_of = calloc(e->time.lifetime_count + 1u, sizeof *w.pass_of);
  if (w.pass_of == NULL) return no_memory(e);
  outlook found = {.waiting_from = w.from};
  found.waits_for = number_passes(&w, &found);
  sum_waiting(&found, &w);
  stow_status status = STOW_OK;
  bool enough = (double)found.waiting_bytes >= WAITS_SHARE * (double)e->n.live_bytes;
  if (found.waits_for >= PASSES_LEAST && found.waiting > 0 && enough) {
    status = touches_walk(e, see_pass, &w);
    if (status == STOW_OK && !w.dependent) {
      o->waiting = found.waiting;
      o->waits_for = found.waits_for;
      o->waiting_bytes = found.waiting_bytes;
      o->waiting_from = found.waiting_from;
      o->waiting_until = found.waiting_until;
    }
  }
  free(w.pass_of);
  return status;
}

/* ---- what no kernel uses ---- */

static void see_use(void *user, const touches *t) {
  outlook *o = user;
  for (uint32_t i = 0; i < t->count; i++) {
    o->last_used[t->list[i]] = t->tick;
    if (o->unused[t->list[i]] < 2) o->unused[t->list[i]]++; /* how often, until sum_unused */
  }
}

static bool is_kept(const evidence *e, const lifetime *l) {
  return l->end == TIMELINE_OPEN || (double)l->end >= KEPT_UNTIL * (double)last_tick(e);
}

/* Returns whether nothing reads it: it stays and no pass uses it, or only the kernel that makes it
 * does. */
static bool is_unused(const outlook *o, const evidence *e, uint32_t i) {
  const lifetime *l = &e->time.lifetimes[i];
  if (l->start >= o->work_tick || l->bytes < SMALL_BYTES || l->stack_id == 0) return false;
  if (l->end < e->fail_tick || e->phase_of[i] == PHASE_OPTIMIZER) return false;
  return o->last_used[i] < o->work_tick && (is_kept(e, l) || o->unused[i] == 1);
}

/* Sums what is unused by line, and takes the line with the most. */
static stow_status sum_unused(outlook *o, const evidence *e) {
  map of_line = {0};
  uint32_t best = 0;
  stow_status status = STOW_OK;
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count && status == STOW_OK; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    bool unused = is_unused(o, e, i);
    o->unused[i] = unused;
    if (!unused) continue;
    uint32_t line = e->user_of_stack[l->stack_id];
    const uint64_t *have = map_get(&of_line, line);
    uint64_t bytes = l->bytes + (have != NULL ? *have : 0);
    status = map_put(&of_line, line, bytes);
    if (bytes <= o->unused_bytes) continue;
    o->unused_bytes = bytes;
    o->unused_stack_id = l->stack_id;
    best = line;
  }
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++)
    o->unused[i] = o->unused[i] && e->user_of_stack[e->time.lifetimes[i].stack_id] == best;
  map_free(&of_line);
  return status;
}

static stow_status find_unused(outlook *o, const evidence *e) {
  if (!touches_known(e)) return STOW_OK;
  o->unused = calloc(e->time.lifetime_count + 1u, 1);
  o->last_used = calloc(e->time.lifetime_count + 1u, sizeof *o->last_used);
  if (o->unused == NULL || o->last_used == NULL) return no_memory(e);
  STOW_TRY(touches_walk(e, see_use, o));
  bool works = false; /* some weight is used by a pass */
  o->work_tick = last_tick(e);
  for (uint32_t i = e->time.lifetime_count; i-- > e->time.before_count;)
    if (e->phase_of[i] == PHASE_FORWARD) o->work_tick = e->time.lifetimes[i].start;
  for (uint32_t i = 0; i < e->time.lifetime_count; i++)
    works |= e->phase_of[i] == PHASE_BUILD && o->last_used[i] >= o->work_tick;
  if (!works) {
    memset(o->unused, 0, e->time.lifetime_count);
    return STOW_OK;
  }
  STOW_TRY(sum_unused(o, e));
  uint64_t most = e->whole->peak_live_bytes;
  o->unused_enough = most > o->unused_bytes && most - o->unused_bytes <= evidence_capacity(e);
  return STOW_OK;
}

/* Returns whether the refused request is a data set: the program's own, made before the first pass,
 * used by later ones and kept. */
static bool is_data(const outlook *o, const evidence *e) {
  uint32_t next = e->fail_tick + 1;
  if (o->last_used == NULL || next >= e->time.tick_count) return false;
  uint32_t n = e->time.lifetime[next];
  if (n == TIMELINE_NONE || e->phase_of[n] != PHASE_USER) return false;
  const lifetime *l = &e->time.lifetimes[n];
  return l->start == next && next < o->work_tick && o->last_used[n] >= o->work_tick &&
         is_kept(e, l);
}

/* ---- a state that is carried on ---- */

typedef struct carried {
  const evidence *e;
  const growth *g;
  uint32_t at; /* iteration of the kernel that is visited */
  uint32_t stack_id;
  uint64_t bytes;
} carried;

static void see_carried(void *user, const touches *t) {
  carried *c = user;
  const evidence *e = c->e;
  const loop_iterations *loop = &e->loop;
  while (c->at + 1 < loop->count && t->tick >= loop->list[c->at + 1].start) c->at++;
  uint32_t made = touches_youngest(e, t);
  uint32_t begin = loop->list[c->at].start;
  bool forward = e->phase_of[made] == PHASE_FORWARD || e->phase_of[made] == PHASE_USER;
  if (t->tick < begin || t->tick >= e->fail_tick || !forward) return;
  if (e->time.lifetimes[made].start < begin) return;
  for (uint32_t i = 0; i < t->count; i++) {
    const lifetime *l = &e->time.lifetimes[t->list[i]];
    if (l->start >= begin || l->bytes <= SMALL_BYTES || l->bytes <= c->bytes ||
        !growth_has(c->g, e, t->list[i]))
      continue;
    c->bytes = l->bytes;
    c->stack_id = l->stack_id;
  }
}

stow_status outlook_carried(uint32_t *stack_id, const evidence *e, const growth *g) {
  carried c = {.e = e, .g = g};
  *stack_id = 0;
  if (g->swells || e->loop.count == 0 || !touches_known(e)) return STOW_OK;
  STOW_TRY(touches_walk(e, see_carried, &c));
  *stack_id = c.stack_id;
  return STOW_OK;
}

/* ---- growth that goes on ---- */

/* Marks what grows as if it did not: what is kept is left out, what swells stays as it began. */
static stow_status leave_out(whatif *w, const growth *g) {
  const evidence *e = w->e;
  uint64_t *least = calloc(e->source->stack_count + 1, sizeof *least);
  if (least == NULL) return no_memory(e);
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    uint64_t *first = &least[l->stack_id];
    if (*first == 0 || l->bytes < *first) *first = l->bytes;
  }
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    if (!g->swells && growth_has(g, e, i)) whatif_scale(w, i, 0);
    if (g->swells && g->of_stack[l->stack_id] && l->bytes > 0)
      whatif_scale(w, i, (double)least[l->stack_id] / (double)l->bytes);
  }
  free(least);
  return STOW_OK;
}

static stow_status find_ahead(outlook *o, const evidence *e) {
  const evidence *whole = e->whole;
  if (!whole->has_stacks) return STOW_OK;
  STOW_TRY(growth_find(&o->ahead, whole));
  if (!o->ahead.found || o->ahead.of_stack == NULL) return STOW_OK;
  whatif w;
  whatif_result r = {0};
  stow_status status = whatif_open(&w, whole);
  w.device_is_full = true;
  if (status == STOW_OK) status = leave_out(&w, &o->ahead);
  uint64_t capacity = evidence_capacity(whole);
  if (status == STOW_OK) status = whatif_run(&w, &r, false, capacity);
  o->ahead_enough = r.finishes;
  o->ahead_most = r.finishes || (e->loop.count > 1 && w.changed.peak_live_bytes <= capacity);
  whatif_close(&w);
  return status;
}

stow_status outlook_find(outlook *o, const evidence *e, const growth *now) {
  *o = (outlook){0};
  if (e->whole == NULL || !e->has_stacks) return STOW_OK;
  if (!now->found) STOW_TRY(find_waiting(o, e));
  STOW_TRY(find_unused(o, e));
  o->data = is_data(o, e);
  return now->found ? STOW_OK : find_ahead(o, e);
}

void outlook_free(outlook *o) {
  free(o->unused);
  free(o->last_used);
  free(o->ahead.of_stack);
  *o = (outlook){0};
}
