/* What the model takes: a second copy, the width of the weights, the optimizer's state. */
#include <stdio.h>
#include <string.h>

#include "advise/fix_case.h"
#include "advise/forecast.h"

#define EIGHT_BITS 0.25 /* fraction of a state in 32 bits */

static void fix_complete(fix_case *m, fix *x, uint64_t less_bytes);

stow_status fix_twice(fix_case *m) {
  const copies *k = &m->f->copies;
  char at[256];
  phase p = k->stack_id != 0 ? m->e->phase_of_stack[k->stack_id] : PHASE_UNKNOWN;
  whatif_reset(&m->w);
  for (uint32_t i = 0; i < k->copy_count; i++) whatif_scale(&m->w, k->list[i], 0);
  bool copying = m->e->fail_phase == PHASE_LOAD || m->e->fail_phase == PHASE_COPY ||
                 (m->e->fail_phase == PHASE_USER && m->e->fail_stack_id == k->stack_id);
  if (copying) whatif_scale_failed(&m->w, 0);
  const char *where = fix_place(m, at, k->stack_id != 0 ? m->e->user_of_stack[k->stack_id] : 0);
  fix *x;
  if (p == PHASE_LOAD)
    x = fix_add(m, "the checkpoint takes host memory while it is loaded",
                "at %s: torch.load(path, map_location=\"cpu\", mmap=True), then "
                "model.load_state_dict(…) and del the state dict",
                where);
  else if (k->stack_id != 0)
    x = fix_add(m, "the copy takes host memory, and time to move",
                "at %s: keep the copy on the host: {k: v.cpu() for k, v in "
                "model.state_dict().items()}",
                where);
  else
    x = fix_add(m, "none",
                "make the model once: delete the first before you make the second, or load "
                "the checkpoint on the host (map_location=\"cpu\")");
  STOW_TRY(fix_replay(m, x, false));
  fix_complete(m, x, k->copy_bytes);
  return STOW_OK;
}

stow_status fix_weights(fix_case *m) {
  if (fix_knows_program(m)) return fix_weights_counted(m);
  whatif_reset(&m->w);
  for (uint32_t i = 0; i < m->e->time.lifetime_count; i++)
    if (m->e->phase_of[i] == PHASE_BUILD || m->e->phase_of[i] == PHASE_LOAD)
      whatif_scale(&m->w, i, 0.5);
  bool building = m->e->fail_phase == PHASE_BUILD || m->e->fail_phase == PHASE_LOAD;
  if (building) whatif_scale_failed(&m->w, 0.5);
  char at[256];
  fix *x;
  if (evidence_plain(m->e))
    x = fix_add(m, "half precision; nothing is saved if they are 16-bit already",
                "store it in 16 bits, if it holds 32-bit numbers");
  else
    x = fix_add(m, "half precision; nothing is saved if the weights are 16-bit already",
                "move the weights in 16 bits: model.half() before %s (or "
                "torch_dtype=torch.float16 when loading)",
                building ? fix_place(m, at, m->e->user_of_stack[m->e->fail_stack_id])
                         : "it goes to the device");
  STOW_TRY(fix_replay(m, x, false));
  if (evidence_plain(m->e)) return STOW_OK;
  uint64_t weights = m->e->live_by_phase[PHASE_BUILD] + m->e->live_by_phase[PHASE_LOAD];
  fix_estimate(fix_add(m, "some accuracy; for running, not for full training",
                       "quantize the weights to 8 bits (bitsandbytes load_in_8bit, torchao)"),
               weights * 3 / 4, true);
  return STOW_OK;
}

/* ---- the optimizer ---- */

static bool is_one_of(const char *name, const char *const *names, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(name, names[i]) == 0) return true;
  return false;
}

/* Returns the option that avoids the temporaries of the step. */
static const char *without_scratch(const forecast *o) {
  static const char *const fused[] = {"Adam", "AdamW", "Adagrad", "SGD"};
  return is_one_of(o->optimizer, fused, sizeof fused / sizeof *fused) ? "fused=True"
                                                                      : "foreach=False";
}

/* Returns the 8-bit form of the optimizer in bitsandbytes, if there is one. */
static const char *in_eight_bits(const forecast *o, char text[200]) {
  static const char *const known[] = {"Adam",    "AdamW",   "SGD",  "Lion",
                                      "Adagrad", "RMSprop", "LAMB", "LARS"};
  if (is_one_of(o->optimizer, known, sizeof known / sizeof *known))
    snprintf(text, 200, "in 8 bits: bitsandbytes.optim.%s8bit in place of %s", o->optimizer,
             o->optimizer);
  else
    snprintf(text, 200, "in 8 bits, as bitsandbytes.optim.Adam8bit and its like do");
  return text;
}

/* Adds a second change to a fix that gets past the failure but does not leave enough memory for the
 * rest of the step. */
static void fix_complete(fix_case *m, fix *x, uint64_t less_bytes) {
  forecast o;
  forecast_find(&o, m->e, copies_weights(&m->f->copies));
  char text[200];
  if (x == NULL || forecast_fits(&o, m->e, less_bytes, 1, true)) return;
  if (forecast_fits(&o, m->e, less_bytes, 1, false))
    fix_also(x,
             "; and make the optimizer with %s: its step makes temporaries as large as the weights "
             "otherwise, and they do not fit either",
             without_scratch(&o));
  else if (forecast_fits(&o, m->e, less_bytes, EIGHT_BITS, false))
    fix_also(x, "; and keep the optimizer's state %s: all of it does not fit either",
             in_eight_bits(&o, text));
  else
    x->fits = false;
}

static void scale_state(fix_case *m, double factor) {
  const evidence *e = m->e;
  whatif_reset(&m->w);
  for (uint32_t i = 0; i < e->time.lifetime_count; i++)
    if (e->phase_of[i] == PHASE_OPTIMIZER) whatif_scale(&m->w, i, factor);
  if (e->fail_phase == PHASE_OPTIMIZER) whatif_scale_failed(&m->w, factor);
}

/* Fixes a step whose state exists but whose temporaries do not fit. */
static stow_status fix_scratch(fix_case *m, const forecast *o) {
  const evidence *e = m->e;
  if (!o->known || !forecast_is_scratch(o, e, e->fail_stack_id)) return STOW_OK;
  whatif_reset(&m->w);
  for (uint32_t i = 0; i < e->time.lifetime_count; i++)
    if (e->phase_of[i] == PHASE_OPTIMIZER &&
        forecast_is_scratch(o, e, e->time.lifetimes[i].stack_id))
      whatif_scale(&m->w, i, 0);
  whatif_scale_failed(&m->w, 0);
  fix *x = fix_add(m, "usually none",
                   "make the optimizer with %s: its step then makes no temporaries as large as the "
                   "weights",
                   without_scratch(o));
  STOW_TRY(fix_replay(m, x, false));
  if (x != NULL) x->fits &= forecast_fits(o, e, 0, 1, false);
  return STOW_OK;
}

stow_status fix_optimizer(fix_case *m) {
  forecast o;
  if (fix_knows_program(m) && m->e->fail_phase != PHASE_OPTIMIZER) return fix_training(m);
  forecast_find(&o, m->e, copies_weights(&m->f->copies));
  STOW_TRY(fix_scratch(m, &o));
  bool narrow = strstr(o.optimizer, "8bit") != NULL || strstr(o.optimizer, "4bit") != NULL;
  char text[200];
  if (!narrow) {
    scale_state(m, EIGHT_BITS);
    fix *x = fix_add(m, "usually none; needs the bitsandbytes package", "keep the state %s",
                     in_eight_bits(&o, text));
    STOW_TRY(fix_replay(m, x, false));
    if (x != NULL) x->fits &= forecast_fits(&o, m->e, 0, EIGHT_BITS, false);
  }
  scale_state(m, 0);
  fix *x = fix_add(m, "the state crosses the bus at every step",
                   "keep the state on the host: an offloading optimizer (DeepSpeed ZeRO-Offload, "
                   "torchao CPUOffloadOptimizer)");
  STOW_TRY(fix_replay(m, x, false));
  if (x != NULL) x->fits &= forecast_fits(&o, m->e, 0, 0, false);
  return STOW_OK;
}
