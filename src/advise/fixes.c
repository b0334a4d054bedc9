/* Fixes: one function a cause; each marks what the change touches and replays. */
#include "advise/fixes.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "advise/whatif.h"

#define CAUSES_MENDED 3   /* the first causes that get fixes … */
#define WORTH_MENDING 0.5 /* … if they are at least this sure */
#define ROOM_LEFT                                                                                  \
  0.75 /* of the capacity that a smaller batch may take at the failure: the rest                   \
          is for what comes after it */

#define OUTPUTS_GROW      0.03 /* of the growth that outputs are, from where they matter */
#define LOSS_AND_BACKWARD 2.0  /* times a forward pass, at the peak of a step */
#define FIRST_PASS_ROOM   0.9  /* …where what comes after is reckoned in */

typedef struct mender {
  fixes *out;
  const evidence *e;
  const findings *f;
  const char *card;
  whatif w;
  whatif_result base;
} mender;

static uint64_t asked_bytes(const evidence *e) {
  return e->n.asked_bytes != MESSAGE_UNKNOWN ? e->n.asked_bytes : 0;
}

/* Adds one; the caller fills in the saving. NULL when there are enough. */
static fix *fix_add(mender *m, const char *cost, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static fix *fix_add(mender *m, const char *cost, const char *format, ...) {
  if (m->out->count == FIXES_MAX) return NULL;
  fix *x = &m->out->list[m->out->count++];
  *x = (fix){0};
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(x->change, sizeof x->change, format, arguments);
  va_end(arguments);
  snprintf(x->cost, sizeof x->cost, "%s", cost);
  return x;
}

/* Replays what is marked, and writes what it saves. */
static stow_status fix_replay(mender *m, fix *x, bool expandable) {
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

static void fix_estimate(fix *x, uint64_t bytes, bool fits) {
  if (x == NULL) return;
  x->saves_bytes = bytes;
  x->fits = fits;
}

static const char *place(const mender *m, char text[256], uint32_t frame_id) {
  if (frame_id == 0) {
    snprintf(text, 256, "the loop");
    return text;
  }
  return evidence_place(m->e, text, 256, frame_id);
}

static bool grew(const mender *m, uint32_t i) {
  return growth_has(&m->f->growth, m->e, i);
}

/* ---- what grows ---- */

static stow_status mend_graph(mender *m) {
  const growth *g = &m->f->growth;
  char at[256];
  whatif_reset(&m->w);
  for (uint32_t i = m->e->time.before_count; i < m->e->time.lifetime_count; i++)
    if (grew(m, i)) whatif_scale(&m->w, i, 0);
  fix *x = fix_add(m, "none; .item() waits for the card once a turn",
                   "at %s: add the number, not the tensor with its graph: total += loss.item() "
                   "(or loss.detach()); to train on a sum, call backward() in each turn instead",
                   place(m, at, m->e->caller_of_stack[g->stack_id]));
  return fix_replay(m, x, false);
}

/* Outputs stay, whatever the program keeps them for; what lies between does not. The output of a
 * turn is the last thing its forward pass made. */
static stow_status mend_no_grad(mender *m) {
  const evidence *e = m->e;
  const growth *g = &m->f->growth;
  char at[256];
  whatif_reset(&m->w);
  uint32_t turn = 0, last = UINT32_MAX;
  uint64_t outputs = 0;
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++) {
    if (!grew(m, i)) continue;
    while (turn < g->whole && e->time.lifetimes[i].start >= e->loop.list[turn].end) {
      if (last != UINT32_MAX)
        whatif_scale(&m->w, last, 1), outputs += e->time.lifetimes[last].bytes;
      last = UINT32_MAX;
      turn++;
    }
    whatif_scale(&m->w, i, 0);
    last = i;
  }
  if (last != UINT32_MAX) whatif_scale(&m->w, last, 1), outputs += e->time.lifetimes[last].bytes;
  /* What is still kept each turn reaches the end of any memory, only later. */
  bool still_grows = (double)outputs >= OUTPUTS_GROW * (double)g->total;
  fix *x =
      fix_add(m, "none: nothing is run backward there",
              "put `with torch.no_grad():` (or torch.inference_mode()) around the call at %s%s",
              place(m, at, e->caller_of_stack[g->stack_id]),
              still_grows ? ", and keep its outputs on the host (.cpu()): they grow, too" : "");
  return fix_replay(m, x, false);
}

static stow_status mend_leak(mender *m) {
  const growth *g = &m->f->growth;
  char at[256];
  whatif_reset(&m->w);
  for (uint32_t i = m->e->time.before_count; i < m->e->time.lifetime_count; i++)
    if (grew(m, i)) whatif_scale(&m->w, i, 0);
  fix *x = fix_add(m, "a copy to the host each turn, if the values are needed",
                   "do not keep on the card what %s makes: keep a number, or .detach().cpu(), or "
                   "drop it each turn",
                   place(m, at, m->e->user_of_stack[g->stack_id]));
  return fix_replay(m, x, false);
}

/* ---- the model ---- */

static stow_status mend_twice(mender *m) {
  const copies *k = &m->f->copies;
  char at[256];
  phase p = k->stack_id != 0 ? m->e->phase_of_stack[k->stack_id] : PHASE_UNKNOWN;
  whatif_reset(&m->w);
  for (uint32_t i = 0; i < k->copy_count; i++) whatif_scale(&m->w, k->list[i], 0);
  bool copying = m->e->fail_phase == PHASE_LOAD || m->e->fail_phase == PHASE_COPY ||
                 (m->e->fail_phase == PHASE_USER && m->e->fail_stack_id == k->stack_id);
  if (copying) whatif_scale_failed(&m->w, 0);
  const char *where = place(m, at, k->stack_id != 0 ? m->e->user_of_stack[k->stack_id] : 0);
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
                "make the model once: drop the first before the second is made, or load "
                "the checkpoint on the host (map_location=\"cpu\")");
  return fix_replay(m, x, false);
}

static stow_status mend_weights(mender *m) {
  whatif_reset(&m->w);
  for (uint32_t i = 0; i < m->e->time.lifetime_count; i++)
    if (m->e->phase_of[i] == PHASE_BUILD || m->e->phase_of[i] == PHASE_LOAD)
      whatif_scale(&m->w, i, 0.5);
  bool building = m->e->fail_phase == PHASE_BUILD || m->e->fail_phase == PHASE_LOAD;
  if (building) whatif_scale_failed(&m->w, 0.5);
  char at[256];
  fix *x = fix_add(
      m, "half precision; nothing is saved if the weights are 16-bit already",
      "move the weights in 16 bits: model.half() before %s (or torch_dtype=torch.float16 "
      "when loading)",
      building ? place(m, at, m->e->user_of_stack[m->e->fail_stack_id]) : "it goes to the card");
  STOW_TRY(fix_replay(m, x, false));
  uint64_t weights = m->e->live_by_phase[PHASE_BUILD] + m->e->live_by_phase[PHASE_LOAD];
  fix_estimate(fix_add(m, "some accuracy; for running, not for full training",
                       "quantize the weights to 8 bits (bitsandbytes load_in_8bit, torchao)"),
               weights * 3 / 4, true);
  return STOW_OK;
}

/* The class of the optimizer that stepped last, by PyTorch's mark "Optimizer.step#AdamW.step"; ""
 * if there is none. */
static const char *optimizer_class(const evidence *e, char name[64]) {
  static const char stem[] = "Optimizer.step#";
  name[0] = '\0';
  for (uint32_t tick = 0; tick <= e->fail_tick && tick < e->time.tick_count; tick++) {
    const event *at = timeline_event(&e->time, tick);
    if (at->kind != EVENT_MARK_BEGIN) continue;
    const char *text = recording_text(e->source, timeline_origin(&e->time, at)->tag_id);
    if (strncmp(text, stem, sizeof stem - 1) != 0) continue;
    text += sizeof stem - 1;
    snprintf(name, 64, "%.*s", (int)strcspn(text, "."), text);
  }
  return name;
}

/* bitsandbytes has 8-bit forms of these. */
static stow_status mend_state_width(mender *m) {
  static const char *const known[] = {"Adam",    "AdamW",   "SGD",  "Lion",
                                      "Adagrad", "RMSprop", "LAMB", "LARS"};
  char name[64];
  optimizer_class(m->e, name);
  if (strstr(name, "8bit") != NULL || strstr(name, "4bit") != NULL) return STOW_OK;
  bool is_known = false;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) is_known |= strcmp(name, known[i]) == 0;
  const char *cost = "none that is usually seen; needs the bitsandbytes package";
  fix *x = is_known ? fix_add(m, cost,
                              "keep the state in 8 bits: bitsandbytes.optim.%s8bit in place of %s",
                              name, name)
                    : fix_add(m, cost,
                              "keep the state in 8 bits, as bitsandbytes.optim.Adam8bit and "
                              "its like do");
  return fix_replay(m, x, false);
}

static stow_status mend_optimizer(mender *m) {
  const evidence *e = m->e;
  bool stepping = e->fail_phase == PHASE_OPTIMIZER;
  whatif_reset(&m->w);
  for (uint32_t i = 0; i < e->time.lifetime_count; i++)
    if (e->phase_of[i] == PHASE_OPTIMIZER) whatif_scale(&m->w, i, 0.25);
  if (stepping) whatif_scale_failed(&m->w, 0.25);
  STOW_TRY(mend_state_width(m));
  for (uint32_t i = 0; i < e->time.lifetime_count; i++)
    if (e->phase_of[i] == PHASE_OPTIMIZER) whatif_scale(&m->w, i, 0);
  if (stepping) whatif_scale_failed(&m->w, 0);
  return fix_replay(
      m,
      fix_add(m, "the state crosses the bus at every step",
              "keep the state on the host: an offloading optimizer (DeepSpeed ZeRO-Offload, "
              "torchao CPUOffloadOptimizer)"),
      false);
}

/* ---- the batch ---- */

static bool in_this_turn(const evidence *e, uint32_t i) {
  uint32_t from = e->turn_tick > 0 ? e->turn_tick : e->first_work_tick;
  const lifetime *l = &e->time.lifetimes[i];
  phase p = e->phase_of[i];
  return l->start >= from && l->start < e->fail_tick && (p == PHASE_FORWARD || p == PHASE_USER);
}

static void scale_turn(mender *m, double factor) {
  whatif_reset(&m->w);
  for (uint32_t i = m->e->time.before_count; i < m->e->time.lifetime_count; i++)
    if (in_this_turn(m->e, i)) whatif_scale(&m->w, i, factor);
  whatif_scale_failed(&m->w, factor);
}

/* A first forward pass that failed did not show all of itself: how many times as much the whole
 * would take. Told from how many layers there are (a weight and a bias each) and how many were
 * called. */
static double whole_pass(const evidence *e) {
  uint32_t weights = 0, called = 0, last = 0;
  for (uint32_t i = 0; i < e->time.lifetime_count; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    weights += e->phase_of[i] == PHASE_BUILD && evidence_live(e, l);
    if (e->phase_of[i] != PHASE_FORWARD || l->stack_id == 0 || l->start < e->first_work_tick)
      continue;
    if (l->stack_id != last && e->layer_of_stack[l->stack_id] != LAYER_NONE) called++;
    last = l->stack_id;
  }
  double times = called > 0 ? weights / 2.0 / called : 1;
  return times < 1 ? 1 : times > 64 ? 64 : times;
}

/* The same for what training adds behind it: gradients, and a state of two numbers a weight. */
static uint32_t parts_of_first_pass(const evidence *e, uint64_t capacity) {
  uint64_t weights = e->live_by_phase[PHASE_BUILD] + e->live_by_phase[PHASE_LOAD];
  double pass =
      (double)(e->live_by_phase[PHASE_FORWARD] + e->live_by_phase[PHASE_USER] + asked_bytes(e)) *
      whole_pass(e) * LOSS_AND_BACKWARD;
  double room = FIRST_PASS_ROOM * (double)capacity - 4.0 * (double)weights;
  uint32_t parts = 2;
  while (parts < 64 && pass / parts > room) parts *= 2;
  return parts;
}

/* The least halving that leaves room for what comes after the failure. */
static stow_status enough_halvings(mender *m, uint32_t *parts) {
  uint64_t capacity = evidence_capacity(m->e);
  *parts = 2;
  if (m->e->turn_tick == 0 && m->e->fail_phase == PHASE_FORWARD && m->e->has_stacks && capacity > 0)
    *parts = parts_of_first_pass(m->e, capacity);
  while (*parts < 64 && *parts < m->f->bigger) *parts *= 2; /* back to what went well */
  for (; *parts < 64; *parts *= 2) {
    whatif_result r;
    scale_turn(m, 1.0 / *parts);
    STOW_TRY(whatif_run(&m->w, &r, false, 0));
    if (capacity == 0 || (double)r.peak_reserved_bytes <= ROOM_LEFT * (double)capacity) break;
    if (r.failure_bytes >= m->base.failure_bytes) break; /* nothing scales */
  }
  scale_turn(m, 1.0 / *parts);
  return STOW_OK;
}

static const char *half_precision(const char *card) {
  static const char *const without[] = {"T4",     "V100",   "P100",   "P4",    "K80",
                                        "GTX 10", "GTX 16", "RTX 20", "TITAN", "Quadro"};
  for (size_t i = 0; i < sizeof without / sizeof *without; i++)
    if (strstr(card, without[i]) != NULL)
      return "run forward under torch.autocast(\"cuda\", dtype=torch.float16) with a "
             "torch.amp.GradScaler (this card has no bfloat16)";
  if (card[0] == '\0')
    return "run forward under torch.autocast(\"cuda\", dtype=torch.bfloat16); on cards without "
           "bfloat16 (T4, V100) dtype=torch.float16 with a torch.amp.GradScaler";
  return "run forward under torch.autocast(\"cuda\", dtype=torch.bfloat16)";
}

/* Under autocast, forward makes 16-bit copies of the weights: allocations of half a weight's size.
 */
static bool autocast_is_on(const evidence *e) {
  map halves = {0};
  uint32_t found = 0;
  for (uint32_t i = 0; i < e->time.lifetime_count; i++)
    if (e->phase_of[i] == PHASE_BUILD && e->time.lifetimes[i].bytes >= 65536 &&
        map_put(&halves, e->time.lifetimes[i].bytes / 2, 0) != STOW_OK)
      break;
  for (uint32_t i = 0; i < e->time.lifetime_count; i++) {
    if (e->phase_of[i] != PHASE_FORWARD) continue;
    uint64_t *seen = map_get(&halves, e->time.lifetimes[i].bytes);
    if (seen != NULL && (*seen)++ == 0) found++;
  }
  bool on = found >= 3 && found * 2 >= halves.count;
  map_free(&halves);
  return on;
}

/* What autocast halves: outputs of layers (convolutions, products, what follows them elementwise).
 * Softmax, losses, norms of layers and sums with a 32-bit tensor stay; a program's own lines count
 * half for that. Without stacks, four tenths of all, as it was seen on convolutions and
 * transformers. */
static uint64_t autocast_saves(const evidence *e) {
  if (!e->has_stacks) return e->live_by_phase[PHASE_FORWARD] * 4 / 10;
  uint64_t layers = 0, others = 0;
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    if (e->phase_of[i] != PHASE_FORWARD || !evidence_live(e, l)) continue;
    if (e->layer_of_stack[l->stack_id] == LAYER)
      layers += l->bytes;
    else if (e->layer_of_stack[l->stack_id] == LAYER_NONE)
      others += l->bytes;
  }
  return layers / 2 + others / 8;
}

static stow_status mend_batch(mender *m) {
  const evidence *e = m->e;
  uint32_t parts;
  STOW_TRY(enough_halvings(m, &parts));
  char at[256];
  fix *x = fix_add(m, "more, smaller steps; accumulate gradients over them for the same training",
                   "use 1/%u of the batch at %s, and step the optimizer after every %u of them%s",
                   parts, place(m, at, e->caller_of_stack[e->fail_stack_id]), parts,
                   e->turn_tick == 0 && e->fail_phase == PHASE_FORWARD
                       ? " (reckoned from the part of the forward pass that was reached)"
                       : "");
  STOW_TRY(fix_replay(m, x, false));
  if (!e->recomputes)
    fix_estimate(fix_add(m, "one more forward pass, about a third more time",
                         "recompute activations: torch.utils.checkpoint.checkpoint(block, x, "
                         "use_reentrant=False) around each block of several layers"),
                 e->live_by_phase[PHASE_FORWARD] * 11 / 20, false);
  if (!autocast_is_on(e))
    fix_estimate(fix_add(m, "16-bit arithmetic in forward", "%s", half_precision(m->card)),
                 autocast_saves(e), false);
  return STOW_OK;
}

static stow_status mend_eval(mender *m) {
  uint32_t parts;
  char at[256];
  STOW_TRY(enough_halvings(m, &parts));
  fix *x = fix_add(m, "none: evaluation gives the same result in smaller batches",
                   "evaluate with training's batch size, at most 1/%u of this one, at %s", parts,
                   place(m, at, m->e->caller_of_stack[m->e->fail_stack_id]));
  return fix_replay(m, x, false);
}

static stow_status mend_spike(mender *m) {
  const spike *s = &m->f->spike;
  char at[256];
  whatif_reset(&m->w);
  if (s->refused)
    whatif_scale_failed(&m->w, 0);
  else
    for (uint32_t i = 0; i < m->e->time.lifetime_count; i++)
      if (m->e->time.lifetimes[i].bytes == s->bytes &&
          m->e->time.lifetimes[i].stack_id == s->stack_id &&
          evidence_live(m->e, &m->e->time.lifetimes[i]))
        whatif_scale(&m->w, i, 0);
  fix *x = fix_add(m, "a loop over the parts; the result is the same",
                   "at %s: work in parts (for part in x.split(n)) so that the %s are never made at "
                   "once",
                   place(m, at, m->e->user_of_stack[s->stack_id]), cause_size(s->bytes));
  return fix_replay(m, x, false);
}

/* ---- where it is ---- */

static stow_status mend_fragments(mender *m) {
  if (m->e->expandable) return STOW_OK;
  whatif_reset(&m->w);
  fix *x =
      fix_add(m, "page calls while it grows; sharing by CUDA IPC needs more rights",
              "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (PYTORCH_ALLOC_CONF in new "
              "versions) before the program starts");
  return fix_replay(m, x, true);
}

static stow_status mend_cache(mender *m) {
  fix_estimate(fix_add(m, "the next PyTorch allocations ask the driver again",
                       "call torch.cuda.empty_cache() before the part that failed runs"),
               m->e->n.cached_bytes, true);
  uint64_t asked = asked_bytes(m->e);
  fix_estimate(
      fix_add(m, "PyTorch drops its cache when it reaches the limit",
              "leave room for the others: torch.cuda.set_per_process_memory_fraction(…) at "
              "the start"),
      asked < m->e->n.cached_bytes ? asked : m->e->n.cached_bytes, true);
  return STOW_OK;
}

static stow_status mend_others(mender *m) {
  const message *t = &m->e->told;
  char who[64] = "the other process";
  if (t->process_count > 0) snprintf(who, sizeof who, "process %u", t->processes[0].pid);
  fix_estimate(fix_add(m, "it ends, or waits",
                       "end %s, or choose another card: CUDA_VISIBLE_DEVICES=…", who),
               m->e->n.other_process_bytes, true);
  return STOW_OK;
}

static stow_status mend_outside(mender *m) {
  fix_estimate(fix_add(m, "that library has less for itself",
                       "bound what else allocates in this process: "
                       "XLA_PYTHON_CLIENT_PREALLOCATE=false (JAX), "
                       "cupy.get_default_memory_pool().set_limit(…), "
                       "TF_FORCE_GPU_ALLOW_GROWTH=true; free direct cudaMalloc buffers"),
               m->e->n.outside_framework_bytes, true);
  return STOW_OK;
}

static stow_status mend_limit(mender *m) {
  uint64_t need = m->base.peak_reserved_bytes;
  if (m->e->peak_reserved_bytes > need) need = m->e->peak_reserved_bytes;
  if (m->e->n.card_bytes == MESSAGE_UNKNOWN || need > m->e->n.card_bytes) return STOW_OK;
  fix_estimate(
      fix_add(m, "less is left for others on the card",
              "raise the limit to %s or more: torch.cuda.set_per_process_memory_fraction(%.3f)",
              cause_size(need), (double)need * 1.05 / (double)m->e->n.card_bytes),
      need > m->e->n.limit_bytes ? need - m->e->n.limit_bytes : 0, true);
  return STOW_OK;
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
  return status;
}
