/* Fixes by what a whole recording shows after the failure. */
#include <stdio.h>
#include <string.h>

#include "advise/fix_case.h"

#define LINES_SHOWN 3

const char *fix_lines(const fix_case *m, char text[256]) {
  const growth *g = &m->f->growth;
  const evidence *e = m->e;
  uint32_t lines[LINES_SHOWN], count = 0;
  size_t length = 0;
  text[0] = '\0';
  for (uint32_t s = 1; s <= e->source->stack_count && count < LINES_SHOWN; s++) {
    uint32_t line = e->user_of_stack[s], seen = 0;
    if (g->of_stack == NULL || !g->of_stack[s] || line == 0) continue;
    while (seen < count && lines[seen] != line) seen++;
    if (seen < count) continue;
    char place[256];
    int added = snprintf(text + length, 256 - length, "%s%s", count > 0 ? " and " : "",
                         evidence_place(e, place, sizeof place, line));
    if (added < 0 || (size_t)added >= 256 - length) break;
    length += (size_t)added;
    lines[count++] = line;
  }
  return count > 0 ? text : fix_place(m, text, e->user_of_stack[g->stack_id]);
}

/* Each pass gets a backward pass of its own: the graphs of the complete ones are gone. */
static stow_status one_backward_each(fix_case *m) {
  const evidence *e = m->e;
  const outlook *o = &m->f->outlook;
  char at[256];
  whatif_reset(&m->w);
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++)
    if (e->time.lifetimes[i].start >= o->waiting_from &&
        e->time.lifetimes[i].start < o->waiting_until && evidence_live(e, &e->time.lifetimes[i]))
      whatif_scale(&m->w, i, 0);
  fix *x =
      fix_add(m, "none: gradients add up, so the sum of them is the same",
              "call backward() on the loss of each pass at %s inside the loop, not once on "
              "their sum; for the mean of %u, (loss / %u).backward()",
              fix_place(m, at, e->caller_of_stack[e->fail_stack_id]), o->waits_for, o->waits_for);
  return fix_replay(m, x, false);
}

static stow_status detach_state(fix_case *m, uint32_t stack_id) {
  const evidence *e = m->e;
  char at[256];
  whatif_reset(&m->w);
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++)
    if (growth_has(&m->f->growth, e, i)) whatif_scale(&m->w, i, 0);
  fix *x = fix_add(m, "gradients do not flow into earlier steps",
                   "detach the state that a step takes from the one before: h = h.detach() at the "
                   "start of each step, for a tuple each of its tensors (%s makes it); and "
                   "backward() without retain_graph=True",
                   fix_place(m, at, e->caller_of_stack[stack_id]));
  return fix_replay(m, x, false);
}

/* A cache of a model that generates: every line of it is inside the model, and nothing trains. */
static bool is_cache(const fix_case *m) {
  const growth *g = &m->f->growth;
  return g->swells && g->stack_id != 0 && m->e->train_end_tick == 0 &&
         m->e->phase_of_stack[g->stack_id] == PHASE_FORWARD;
}

static stow_status bound_cache(fix_case *m) {
  const evidence *e = m->e;
  const growth *g = &m->f->growth;
  char at[256], smaller[64] = "a smaller batch";
  uint64_t batch = e->program.batch;
  if (batch == 1)
    smaller[0] = '\0';
  else if (e->fits_samples && e->fits_part > 0)
    snprintf(smaller, sizeof smaller, "a batch of %u instead of %u", e->fits_part, e->fits_whole);
  whatif_reset(&m->w);
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++)
    if (g->of_stack != NULL && g->of_stack[e->time.lifetimes[i].stack_id])
      whatif_scale(&m->w, i, 0.5);
  fix *x = fix_add(m, "a shorter context, or less exact keys and values",
                   "bound the cache at %s, which grows with each step: stop earlier or keep the "
                   "last N positions (k[..., -N:, :]); allocate it once at its full length (a "
                   "static cache), so that no copy is made; %s%skeep it in 8 bits",
                   fix_lines(m, at), smaller, smaller[0] != '\0' ? "; or " : "");
  return fix_replay(m, x, false);
}

/* Explains the growth by the whole recording, in which it is complete. */
static stow_status fix_ahead(fix_case *m, cause_id id) {
  findings later = {.growth = m->f->outlook.ahead};
  uint32_t first = m->out->count;
  fix_case whole = {.out = m->out, .e = m->e->whole, .f = &later, .device = m->device};
  bool found = false;
  stow_status status = whatif_open(&whole.w, whole.e);
  whole.w.device_is_full = true;
  if (status == STOW_OK) status = whatif_run(&whole.w, &whole.base, false, 0);
  if (status == STOW_OK) status = fix_by_outlook(&whole, id, &found);
  if (status == STOW_OK && !found)
    status = id == CAUSE_LEAK         ? fix_leak(&whole)
             : id == CAUSE_GRAPH_KEPT ? fix_graph(&whole)
                                      : fix_no_grad(&whole);
  whatif_close(&whole.w);
  if (m->out->count > first) {
    m->out->list[first].saves_bytes = later.growth.total;
    m->out->list[first].fits = m->f->outlook.ahead_enough;
  }
  return status;
}

static stow_status drop_unused(fix_case *m) {
  const evidence *e = m->e;
  const outlook *o = &m->f->outlook;
  uint32_t next = e->fail_tick + 1;
  char at[256];
  whatif_reset(&m->w);
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++)
    if (o->unused[i]) whatif_scale(&m->w, i, 0);
  if (next < e->time.tick_count && e->time.lifetime[next] != TIMELINE_NONE &&
      o->unused[e->time.lifetime[next]])
    whatif_scale_failed(&m->w, 0);
  fix *x = fix_add(m, "none, or a copy in host memory",
                   "at %s: no later kernel uses it: delete it, or keep it on the host ({k: v.cpu() "
                   "for k, v in model.state_dict().items()})",
                   fix_place(m, at, e->user_of_stack[o->unused_stack_id]));
  STOW_TRY(fix_replay(m, x, false));
  if (x == NULL) return STOW_OK;
  x->saves_bytes = o->unused_bytes; /* also what was not yet made at the failure */
  x->fits = o->unused_enough;
  return STOW_OK;
}

/* Returns whether kernels of the steps use most of the copies. */
static bool copies_are_used(const fix_case *m) {
  const copies *k = &m->f->copies;
  const outlook *o = &m->f->outlook;
  uint64_t used = 0;
  for (uint32_t i = 0; o->last_used != NULL && i < k->copy_count; i++)
    used += o->last_used[k->list[i]] >= o->work_tick ? m->e->time.lifetimes[k->list[i]].bytes : 0;
  return used * 2 > k->copy_bytes;
}

static stow_status narrow_copy(fix_case *m) {
  const evidence *e = m->e;
  const copies *k = &m->f->copies;
  char at[256];
  whatif_reset(&m->w);
  for (uint32_t i = 0; i < k->copy_count; i++) whatif_scale(&m->w, k->list[i], 0.5);
  fix *x = fix_add(m, "16-bit arithmetic in that copy",
                   "the steps use the copy that %s makes, so it has to stay: if it only runs "
                   "forward, keep it in 16 bits (copy.deepcopy(model).bfloat16()), or compute its "
                   "outputs once before training and delete it",
                   fix_place(m, at, e->user_of_stack[k->stack_id]));
  return fix_replay(m, x, false);
}

static stow_status data_on_host(fix_case *m) {
  char at[256];
  whatif_reset(&m->w);
  whatif_scale_failed(&m->w, 0);
  fix *x = fix_add(m, "one copy to the device in each step",
                   "at %s: keep the data set on the host (leave out .cuda() or .to(\"cuda\") "
                   "there), and copy one batch at a time: x = data[i:i + n].to(\"cuda\")",
                   fix_place(m, at, m->e->user_of_stack[m->e->fail_stack_id]));
  return fix_replay(m, x, false);
}

stow_status fix_by_outlook(fix_case *m, cause_id id, bool *found) {
  const findings *f = m->f;
  const outlook *o = &f->outlook;
  bool grows = id == CAUSE_GRAPH_KEPT || id == CAUSE_LEAK || id == CAUSE_NO_GRAD_MISSING;
  uint32_t carried = 0;
  *found = true;
  if (id == CAUSE_GRAPH_KEPT && o->waits_for > 0) return one_backward_each(m);
  if (grows && o->ahead.found) return fix_ahead(m, id);
  if (id == CAUSE_GRAPH_KEPT) STOW_TRY(outlook_carried(&carried, m->e, &f->growth));
  if (carried != 0) return detach_state(m, carried);
  if (id == CAUSE_LEAK && is_cache(m)) return bound_cache(m);
  if (id == CAUSE_LOADED_TWICE && o->unused_bytes > 0) return drop_unused(m);
  if (id == CAUSE_LOADED_TWICE && f->copies.stack_id != 0 && copies_are_used(m))
    return narrow_copy(m);
  if (id == CAUSE_ONE_SPIKE && o->data) return data_on_host(m);
  *found = false;
  return STOW_OK;
}
