/* Fixes: asks what would mend each cause that holds, and puts first what gets past the failure. */
#include "advise/fixes.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "advise/mend.h"
#include "base/text.h"

#define CAUSES_MENDED 3   /* the first causes that get fixes … */
#define WORTH_MENDING 0.5 /* … if they are at least this sure */

uint64_t mender_asked(const mender *m) {
  return m->e->n.asked_bytes != MESSAGE_UNKNOWN ? m->e->n.asked_bytes : 0;
}

fix *fix_add(mender *m, const char *cost, const char *format, ...) {
  if (m->out->count == FIXES_MAX) return NULL;
  fix *x = &m->out->list[m->out->count++];
  *x = (fix){0};
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(x->change, sizeof x->change, format, arguments);
  va_end(arguments);
  x->change[text_clean(x->change, strlen(x->change), false)] = '\0';
  snprintf(x->cost, sizeof x->cost, "%s", cost);
  return x;
}

void fix_also(fix *x, const char *format, ...) {
  if (x == NULL) return;
  size_t length = strlen(x->change);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(x->change + length, sizeof x->change - length, format, arguments);
  va_end(arguments);
  x->change[text_clean(x->change, strlen(x->change), false)] = '\0';
}

stow_status fix_replay(mender *m, fix *x, bool expandable) {
  if (x == NULL) return STOW_OK;
  whatif_result r;
  uint64_t capacity = evidence_capacity(m->e);
  STOW_TRY(whatif_run(&m->w, &r, expandable, capacity));
  x->fits = r.finishes;
  STOW_TRY(whatif_run(&m->w, &r, expandable, 0));
  uint64_t before = expandable ? m->base.peak_reserved_bytes : m->base.failure_bytes;
  uint64_t after = expandable ? r.peak_reserved_bytes : r.failure_bytes;
  x->saves_bytes = before > after ? before - after : 0;
  x->replayed = true;
  return STOW_OK;
}

void fix_estimate(fix *x, uint64_t bytes, bool fits) {
  if (x == NULL) return;
  x->saves_bytes = bytes;
  x->fits = fits;
}

const char *mender_place(const mender *m, char text[256], uint32_t frame_id) {
  if (frame_id == 0) {
    snprintf(text, 256, "the loop");
    return text;
  }
  return evidence_place(m->e, text, 256, frame_id);
}

static stow_status mend(mender *m, cause_id id) {
  switch (id) {
  case CAUSE_GRAPH_KEPT: return mend_graph(m);
  case CAUSE_NO_GRAD_MISSING: return mend_no_grad(m);
  case CAUSE_LEAK: return mend_leak(m);
  case CAUSE_LOADED_TWICE: return mend_twice(m);
  case CAUSE_WEIGHTS_TOO_BIG: return mend_weights(m);
  case CAUSE_OPTIMIZER_STATE: return mend_optimizer(m);
  case CAUSE_BATCH_TOO_BIG: return mend_batch(m);
  case CAUSE_EVAL_BATCH_BIGGER: return mend_eval(m);
  case CAUSE_ONE_SPIKE: return mend_spike(m);
  case CAUSE_FRAGMENTATION: return mend_fragments(m);
  case CAUSE_CACHE_HELD: return mend_cache(m);
  case CAUSE_OTHER_PROCESS: return mend_others(m);
  case CAUSE_OUTSIDE_FRAMEWORK: return mend_outside(m);
  case CAUSE_LIMIT: return mend_limit(m);
  default: return STOW_OK;
  }
}

/* The first one is what people try: it must be enough, if any is. */
static void first_one_that_fits(fixes *all) {
  uint32_t at = 0;
  while (at < all->count && !all->list[at].fits) at++;
  if (at == 0 || at == all->count) return;
  fix enough = all->list[at];
  memmove(&all->list[1], &all->list[0], at * sizeof all->list[0]);
  all->list[0] = enough;
}

stow_status fixes_find(fixes *out, const evidence *e, const findings *f, const char *card) {
  *out = (fixes){0};
  if (f->count == 0) return STOW_OK;
  mender m = {.out = out, .e = e, .f = f, .card = card};
  stow_status status = whatif_open(&m.w, e);
  if (status == STOW_OK) status = whatif_run(&m.w, &m.base, false, 0);
  bool limited = false;
  for (uint32_t i = 0; i < f->count && i < CAUSES_MENDED && status == STOW_OK; i++) {
    if (i > 0 && f->list[i].confidence < WORTH_MENDING) break;
    if (i > 0 && f->list[i].id == CAUSE_BATCH_TOO_BIG && f->growth.found) continue;
    status = mend(&m, f->list[i].id);
    limited |= f->list[i].id == CAUSE_LIMIT;
  }
  /* What grows every turn reaches any limit. */
  if (status == STOW_OK && e->failed && evidence_limit_bound(e) && !limited && !f->growth.found)
    status = mend_limit(&m);
  whatif_close(&m.w);
  first_one_that_fits(out);
  return status;
}
