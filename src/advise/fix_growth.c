/* What grows from iteration to iteration: leaves it out of a replay. */
#include "advise/fix_case.h"

#define OUTPUTS_GROW 0.03 /* least fraction of the growth for outputs to matter */

static bool grew(const fix_case *m, uint32_t i) {
  return growth_has(&m->f->growth, m->e, i);
}

static void leave_out_growth(fix_case *m) {
  whatif_reset(&m->w);
  for (uint32_t i = m->e->time.before_count; i < m->e->time.lifetime_count; i++)
    if (grew(m, i)) whatif_scale(&m->w, i, 0);
}

/* Adds what the program's own source shows. Returns NULL if it shows nothing of these kinds. */
static fix *add_advice(fix_case *m, uint32_t kinds) {
  const program_advice *a = program_advice_of(&m->e->program, kinds);
  return a != NULL ? fix_add(m, a->cost, "%s", a->change) : NULL;
}

/* The graphs of several passes wait for one backward pass: each pass can have its own. */
static void one_pass_at_a_time(fix_case *m) {
  const program_advice *a = program_advice_of(&m->e->program, ADVICE_SUMMED);
  if (a == NULL) return;
  uint64_t passes = m->e->live_by_phase[PHASE_FORWARD];
  fix_estimate(fix_add(m, a->cost, "%s", a->change), passes / (a->graphs + 1) * a->graphs, true);
}

stow_status fix_graph(fix_case *m) {
  const growth *g = &m->f->growth;
  char at[256];
  if (!g->found) {
    one_pass_at_a_time(m);
    return STOW_OK;
  }
  leave_out_growth(m);
  fix *own = add_advice(m, ADVICE_KEPT | ADVICE_CARRIED | ADVICE_SUMMED);
  if (own != NULL) return fix_replay(m, own, false);
  own = add_advice(m, ADVICE_NEEDED);
  if (own != NULL) {
    fix_estimate(own, g->total / 2, false);
    return STOW_OK;
  }
  own = add_advice(m, ADVICE_WITHOUT);
  if (own != NULL) return fix_replay(m, own, false);
  fix *x = fix_add(m, "none; .item() waits for the device once per iteration",
                   "at %s: add the number, not the tensor with its graph: total += loss.item() "
                   "(or loss.detach()); %s",
                   fix_place(m, at, m->e->caller_of_stack[g->stack_id]),
                   g->backward ? "and backward() without retain_graph=True, which also keeps it"
                               : "to train on a sum, call backward() in each iteration instead");
  return fix_replay(m, x, false);
}

/* Without a graph, each result of the pass that failed is freed when the next one has been computed
 * from it. */
static stow_status no_grad_in_pass(fix_case *m) {
  const evidence *e = m->e;
  uint32_t from = e->iteration_tick > e->train_end_tick ? e->iteration_tick : e->train_end_tick,
           last = 0;
  char at[256];
  whatif_reset(&m->w);
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    if (e->phase_of[i] != PHASE_FORWARD || l->start < from || !evidence_live(e, l)) continue;
    whatif_scale(&m->w, i, 0);
    last = i;
  }
  if (last > 0) whatif_scale(&m->w, last, 1);
  fix *x = fix_add(m, "none: no backward pass runs there",
                   "put `with torch.no_grad():` (or torch.inference_mode()) around the call at %s",
                   fix_place(m, at, e->caller_of_stack[e->fail_stack_id]));
  return fix_replay(m, x, false);
}

/* Outputs stay, because the program keeps them; intermediate results do not. The output of an
 * iteration is the last allocation of its forward pass. */
stow_status fix_no_grad(fix_case *m) {
  const evidence *e = m->e;
  const growth *g = &m->f->growth;
  char at[256];
  if (!g->found) return no_grad_in_pass(m);
  whatif_reset(&m->w);
  uint32_t iteration = 0, last = UINT32_MAX;
  uint64_t outputs = 0;
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++) {
    if (!grew(m, i)) continue;
    while (iteration < g->whole && e->time.lifetimes[i].start >= e->loop.list[iteration].end) {
      if (last != UINT32_MAX)
        whatif_scale(&m->w, last, 1), outputs += e->time.lifetimes[last].bytes;
      last = UINT32_MAX;
      iteration++;
    }
    whatif_scale(&m->w, i, 0);
    last = i;
  }
  if (last != UINT32_MAX) whatif_scale(&m->w, last, 1), outputs += e->time.lifetimes[last].bytes;
  /* What each iteration still keeps fills any memory, only later. */
  bool still_grows = (double)outputs >= OUTPUTS_GROW * (double)g->total;
  fix *own = add_advice(m, ADVICE_WITHOUT);
  if (own == NULL) own = add_advice(m, ADVICE_KEPT | ADVICE_CARRIED);
  if (own != NULL) {
    if (still_grows) fix_also(own, ", and keep its outputs on the host (.cpu()): they also grow");
    return fix_replay(m, own, false);
  }
  fix *x =
      fix_add(m, "none: no backward pass runs there",
              "put `with torch.no_grad():` (or torch.inference_mode()) around the call at %s%s",
              fix_place(m, at, e->caller_of_stack[g->stack_id]),
              still_grows ? ", and keep its outputs on the host (.cpu()): they also grow" : "");
  return fix_replay(m, x, false);
}

static stow_status drop_copies(fix_case *m) {
  const evidence *e = m->e;
  uint32_t stack_id = m->f->copies.stack_id;
  char at[256];
  whatif_reset(&m->w);
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++)
    if (e->time.lifetimes[i].stack_id == stack_id && evidence_live(e, &e->time.lifetimes[i]))
      whatif_scale(&m->w, i, 0);
  fix *x = fix_add(m, "a copy to the host each time",
                   "keep one of the copies that %s makes, or keep them on the host: "
                   "{k: v.cpu() for k, v in model.state_dict().items()}",
                   fix_place(m, at, e->user_of_stack[stack_id]));
  return fix_replay(m, x, false);
}

stow_status fix_leak(fix_case *m) {
  const growth *g = &m->f->growth;
  char at[256];
  const program_advice *a = program_advice_of(&m->e->program, ADVICE_VALUES);
  if (!g->found && m->f->copies.copy_count == 0 && a != NULL) {
    fix_estimate(fix_add(m, a->cost, "%s", a->change), a->held_bytes, true);
    return STOW_OK;
  }
  if (!g->found) return drop_copies(m);
  leave_out_growth(m);
  fix *own = g->swells ? NULL : add_advice(m, ADVICE_VALUES);
  if (own == NULL && !g->swells) own = add_advice(m, ADVICE_KEPT);
  if (own != NULL) return fix_replay(m, own, false);
  /* A helper makes it; the code that keeps it is in an outer frame. */
  uint32_t helped = m->e->helped_of_stack[g->stack_id];
  fix_place(m, at, helped != 0 ? helped : m->e->user_of_stack[g->stack_id]);
  fix *x = g->swells
               ? fix_add(m, "the older values, or a copy to the host each iteration",
                         "do not let what %s makes grow each iteration: keep only the last N rows "
                         "(torch.cat([old, new.detach()])[-N:].clone()), or collect the parts on "
                         "the host: parts.append(part.detach().cpu()), torch.cat(parts) after "
                         "the loop",
                         at)
               : fix_add(m, "a copy to the host each iteration, if the values are needed",
                         "do not keep what %s makes on the device: keep a number, or "
                         ".detach().cpu(), or drop it each iteration",
                         at);
  return fix_replay(m, x, false);
}
