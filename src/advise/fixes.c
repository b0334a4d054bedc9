/* Fixes: finds the fixes of each cause that holds, and puts first what gets past the failure. */
#include "advise/fixes.h"

#include <string.h>

#include "advise/fix_case.h"

#define CAUSES_FIXED 3   /* the first causes that get fixes … */
#define WORTH_FIXING 0.5 /* … if they are at least this sure */

static stow_status add_fixes(fix_case *m, cause_id id) {
  bool found = false;
  if (m->e->whole != NULL) STOW_TRY(fix_by_outlook(m, id, &found));
  if (found) return STOW_OK;
  switch (id) {
  case CAUSE_GRAPH_KEPT: return fix_graph(m);
  case CAUSE_NO_GRAD_MISSING: return fix_no_grad(m);
  case CAUSE_LEAK: return fix_leak(m);
  case CAUSE_LOADED_TWICE: return fix_twice(m);
  case CAUSE_WEIGHTS_TOO_BIG: return fix_weights(m);
  case CAUSE_OPTIMIZER_STATE: return fix_optimizer(m);
  case CAUSE_BATCH_TOO_BIG: return fix_knows_program(m) ? fix_batch_counted(m) : fix_batch(m);
  case CAUSE_EVAL_BATCH_BIGGER: return fix_eval(m);
  case CAUSE_ONE_SPIKE: return fix_spike(m);
  case CAUSE_FRAGMENTATION: return fix_fragments(m);
  case CAUSE_CACHE_HELD: return fix_cache(m);
  case CAUSE_OTHER_PROCESS: return fix_others(m);
  case CAUSE_OUTSIDE_FRAMEWORK: return fix_outside(m);
  case CAUSE_LIMIT: return fix_limit(m);
  default: return STOW_OK;
  }
}

/* Moves the first fix that is enough to the front, because people try that one first. */
static void first_one_that_fits(fixes *all) {
  uint32_t at = 0;
  while (at < all->count && !all->list[at].fits) at++;
  if (at == 0 || at == all->count) return;
  fix enough = all->list[at];
  memmove(&all->list[1], &all->list[0], at * sizeof all->list[0]);
  all->list[0] = enough;
}

static bool is_growth(cause_id id) {
  return id == CAUSE_GRAPH_KEPT || id == CAUSE_NO_GRAD_MISSING || id == CAUSE_LEAK;
}

stow_status fixes_find(fixes *out, const evidence *e, const findings *f, const char *device) {
  *out = (fixes){0};
  if (f->count == 0) return STOW_OK;
  fix_case m = {.out = out, .e = e, .f = f, .device = device};
  stow_status status = whatif_open(&m.w, e);
  if (status == STOW_OK) status = whatif_run(&m.w, &m.base, false, 0);
  bool limited = false;
  for (uint32_t i = 0; i < f->count && i < CAUSES_FIXED && status == STOW_OK; i++) {
    if (i > 0 && f->list[i].confidence < WORTH_FIXING) break;
    bool grows = f->growth.found || (f->outlook.ahead_most && e->train_end_tick > 0);
    if (i > 0 && f->list[i].id == CAUSE_BATCH_TOO_BIG && grows) continue;
    status = add_fixes(&m, f->list[i].id);
    limited |= f->list[i].id == CAUSE_LIMIT;
  }
  /* What grows every iteration reaches any limit. */
  if (status == STOW_OK && e->failed && evidence_limit_bound(e) && !limited && !f->growth.found)
    status = fix_limit(&m);
  whatif_close(&m.w);
  /* What grows every step fills what any other change frees. */
  bool grows = f->outlook.ahead_most && is_growth(f->list[0].id);
  if (!grows) first_one_that_fits(out);
  return status;
}
