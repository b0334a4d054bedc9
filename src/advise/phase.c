/* Phase: the part of the program that made an allocation. Found from its stack; without stacks,
 * from marks and order. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "advise/evidence.h"
#include "base/hash.h"
#include "base/text.h"
#include "replay/site.h"

#define JUMP_LEAST 8  /* times the largest before it … */
#define JUMP_AFTER 16 /* … of at least that many */

/* What one frame shows. Several may apply to a stack; the strongest wins (see stack_phase). */
enum {
  SAYS_OPTIMIZER = 1,
  SAYS_BACKWARD = 2,
  SAYS_LOAD = 4,
  SAYS_COPY = 8,
  SAYS_BUILD = 16,
  SAYS_CALL = 32,    /* a module is called */
  SAYS_LIBRARY = 64, /* not the program's own file */
  SAYS_RECOMPUTE = 128,
  SAYS_EVALUATION = 256,  /* a function of the program, by its name */
  SAYS_LAYER = 512,       /* a layer with weights */
  SAYS_NORM = 1024,       /* a layer with weights that normalizes rows */
  SAYS_TRAINING = 2048,   /* a function of the program, by its name */
  SAYS_STATISTICS = 4096, /* a layer that normalizes, rows or batches */
  SAYS_HELPER = 8192,     /* one line alone of the function allocates */
};

static bool is_library(const char *file) {
  return site_is_framework(file) || strstr(file, "-packages/") != NULL ||
         strcmp(file, "copy.py") == 0;
}

/* Returns the purpose that the name of a function of the program shows. */
static uint16_t names_purpose(const char *name) {
  static const char *const evaluates[] = {"eval", "valid", "predict", "infer", "test", "generate"},
                           *const trains[] = {"train", "fit"};
  for (size_t w = 0; w < sizeof evaluates / sizeof *evaluates; w++)
    if (strncasecmp(name, evaluates[w], strlen(evaluates[w])) == 0) return SAYS_EVALUATION;
  for (size_t w = 0; w < sizeof trains / sizeof *trains; w++)
    if (strncasecmp(name, trains[w], strlen(trains[w])) == 0) return SAYS_TRAINING;
  return 0;
}

static bool is_layer(const char *file) {
  static const char *const files[] = {"linear.py",    "conv.py",      "rnn.py",
                                      "sparse.py",    "batchnorm.py", "normalization.py",
                                      "activation.py"};
  static const char folder[] = "torch/nn/modules/";
  const char *in = strstr(file, folder);
  for (size_t f = 0; in != NULL && f < sizeof files / sizeof *files; f++)
    if (strcmp(in + sizeof folder - 1, files[f]) == 0) return true;
  return false;
}

static uint16_t frame_says(const char *name, const char *file) {
  uint16_t says = is_library(file) ? SAYS_LIBRARY : 0;
  if (strstr(file, "-packages/") == NULL) says |= names_purpose(name);
  if (is_layer(file)) says |= SAYS_LAYER;
  if (strstr(file, "torch/nn/modules/normalization.py") != NULL)
    says |= SAYS_NORM | SAYS_STATISTICS;
  if (strstr(file, "torch/nn/modules/batchnorm.py") != NULL) says |= SAYS_STATISTICS;
  if (strstr(name, "autograd::Engine") != NULL || strstr(name, "autograd::engine") != NULL)
    says |= SAYS_BACKWARD; /* C++ frames */
  if (strstr(file, "torch/optim/") != NULL || strstr(file, "/optimizers/") != NULL ||
      strstr(file, "bitsandbytes/optim") != NULL)
    says |= SAYS_OPTIMIZER;
  if (strstr(file, "torch/autograd/") != NULL) {
    bool graph = strstr(file, "graph.py") != NULL || strstr(file, "__init__.py") != NULL ||
                 strstr(file, "function.py") != NULL;
    bool forward = strcmp(name, "apply") == 0 || strcmp(name, "grad_mode") == 0;
    if (graph && !forward) says |= SAYS_BACKWARD;
  }
  if (strcmp(name, "backward") == 0 && strstr(file, "torch/") != NULL) says |= SAYS_BACKWARD;
  if (strstr(file, "torch/serialization.py") != NULL || strstr(file, "safetensors") != NULL ||
      strcmp(name, "load_file") == 0)
    says |= SAYS_LOAD;
  if (strcmp(name, "deepcopy") == 0 || strcmp(name, "__deepcopy__") == 0) says |= SAYS_COPY;
  if (strstr(file, "torch/utils/checkpoint.py") != NULL) says |= SAYS_RECOMPUTE;
  if (text_ends(file, "nn/modules/module.py")) {
    if (strcmp(name, "_apply") == 0 || strcmp(name, "to") == 0 || strcmp(name, "cuda") == 0)
      says |= SAYS_BUILD;
    if (strcmp(name, "_call_impl") == 0 || strcmp(name, "_wrapped_call_impl") == 0 ||
        strcmp(name, "__call__") == 0 || strcmp(name, "_slow_forward") == 0)
      says |= SAYS_CALL;
  }
  if (strstr(file, "torch/nn/") != NULL &&
      (strcmp(name, "__init__") == 0 || strcmp(name, "reset_parameters") == 0 ||
       strcmp(name, "flatten_parameters") == 0))
    says |= SAYS_BUILD;
  if (strcmp(name, "from_pretrained") == 0 || strcmp(name, "_load_pretrained_model") == 0)
    says |= SAYS_BUILD;
  return says;
}

/* Returns the phase of a stack. A build inside a call is a lazy module or a flattened RNN and
 * belongs to the call. */
static phase stack_phase(uint32_t all, bool any_frame) {
  if (!any_frame) return PHASE_UNKNOWN;
  if (all & SAYS_OPTIMIZER) return PHASE_OPTIMIZER;
  if (all & SAYS_BACKWARD) return PHASE_BACKWARD;
  if (all & SAYS_COPY) return PHASE_COPY;
  if (all & SAYS_LOAD) return PHASE_LOAD;
  if (all & SAYS_CALL) return PHASE_FORWARD;
  if (all & SAYS_BUILD) return PHASE_BUILD;
  return PHASE_USER;
}

/* Sets SAYS_HELPER for functions of which only one line allocates. */
static stow_status find_helpers(const recording *r, uint16_t *says) {
  map line_of = {0}; /* by function: its line; UINT64_MAX if there are several */
  stow_status status = STOW_OK;
  for (int pass = 0; pass < 2; pass++)
    for (size_t f = 0; f < r->frame_count && status == STOW_OK; f++) {
      const frame *at = &r->frames[f];
      uint64_t key = (uint64_t)at->file_id << 32 | at->name_id, *line = map_get(&line_of, key);
      if (pass == 1)
        says[f + 1] |= line != NULL && *line != UINT64_MAX ? SAYS_HELPER : 0;
      else if (line == NULL)
        status = map_put(&line_of, key, at->line);
      else if (*line != at->line)
        *line = UINT64_MAX;
    }
  map_free(&line_of);
  return status;
}

static void read_stack(evidence *e, uint32_t stack_id, const uint16_t *says) {
  const recording *r = e->source;
  const stack *s = &r->stacks[stack_id - 1];
  uint32_t all = 0, outermost_call = UINT32_MAX;
  for (uint32_t i = 0; i < s->count; i++) {
    uint32_t id = r->stack_frames[s->first + i];
    if (id == 0 || id > r->frame_count) continue;
    all |= says[id];
    if (says[id] & SAYS_CALL) outermost_call = i;
    uint32_t *user = &e->user_of_stack[stack_id], *helped = &e->helped_of_stack[stack_id];
    if (says[id] & SAYS_LIBRARY) continue;
    if (*user == 0)
      *user = id;
    else if (*helped == 0 && (says[*user] & SAYS_HELPER) &&
             r->frames[id - 1].file_id != r->frames[*user - 1].file_id)
      *helped = id;
  }
  if (all & SAYS_CALL) e->helped_of_stack[stack_id] = 0; /* a model's lines are no helper's */
  e->phase_of_stack[stack_id] = (uint8_t)stack_phase(all, s->count > 0);
  e->recomputes |= (all & SAYS_RECOMPUTE) != 0;
  e->purpose_of_stack[stack_id] = all & SAYS_EVALUATION ? PURPOSE_EVALUATES
                                  : all & SAYS_TRAINING ? PURPOSE_TRAINS
                                                        : PURPOSE_UNKNOWN;
  e->norm_of_stack[stack_id] = (all & SAYS_STATISTICS) != 0;
  e->layer_of_stack[stack_id] = all & SAYS_NORM    ? LAYER_NORM
                                : all & SAYS_LAYER ? LAYER
                                                   : LAYER_NONE;
  /* The place within the model is the frames inside the outermost call; for a line of the program
   * itself, the line. */
  uint64_t inner = UINT64_C(0x5701), outer = UINT64_C(0x0731);
  uint32_t caller = 0;
  bool inside = outermost_call != UINT32_MAX;
  for (uint32_t i = 0; i < s->count; i++) {
    uint32_t id = r->stack_frames[s->first + i];
    if (id == 0 || id > r->frame_count) continue;
    bool own = !(says[id] & SAYS_LIBRARY), within = !inside || i <= outermost_call;
    if (within && caller == 0) inner = hash_u64(id, inner);
    if (!within) outer = hash_u64(id, outer);
    if (own && caller == 0 && (!inside || i > outermost_call)) caller = id;
  }
  e->caller_of_stack[stack_id] = caller != 0 ? caller : e->user_of_stack[stack_id];
  e->inner_of_stack[stack_id] = inner;
  e->outer_of_stack[stack_id] = outer;
}

stow_status evidence_stacks(evidence *e) {
  const recording *r = e->source;
  size_t stacks = r->stack_count + 1, frames = r->frame_count + 1;
  e->phase_of_stack = calloc(stacks, sizeof *e->phase_of_stack);
  e->user_of_stack = calloc(stacks, sizeof *e->user_of_stack);
  e->helped_of_stack = calloc(stacks, sizeof *e->helped_of_stack);
  e->caller_of_stack = calloc(stacks, sizeof *e->caller_of_stack);
  e->inner_of_stack = calloc(stacks, sizeof *e->inner_of_stack);
  e->outer_of_stack = calloc(stacks, sizeof *e->outer_of_stack);
  e->purpose_of_stack = calloc(stacks, 1);
  e->layer_of_stack = calloc(stacks, 1);
  e->norm_of_stack = calloc(stacks, 1);
  uint16_t *says = calloc(frames, sizeof *says);
  if (e->outer_of_stack == NULL || e->purpose_of_stack == NULL || e->layer_of_stack == NULL ||
      e->norm_of_stack == NULL || e->phase_of_stack == NULL || e->user_of_stack == NULL ||
      e->caller_of_stack == NULL || e->helped_of_stack == NULL || e->inner_of_stack == NULL ||
      says == NULL) {
    free(says);
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %zu stacks", r->stack_count);
  }
  for (size_t f = 1; f < frames; f++)
    says[f] = frame_says(recording_text(r, r->frames[f - 1].name_id),
                         recording_text(r, r->frames[f - 1].file_id));
  stow_status status = find_helpers(r, says);
  for (uint32_t i = 1; i < stacks && status == STOW_OK; i++) read_stack(e, i, says);
  free(says);
  return status;
}

/* ---- lifetimes ---- */

/* Ticks within an optimizer's step, found by its marks. */
static bool is_step_mark(const evidence *e, const event *mark) {
  const char *name = recording_text(e->source, timeline_origin(&e->time, mark)->tag_id);
  return strncmp(name, "Optimizer.step", 14) == 0;
}

/* Finds the first batch without stacks, while nothing was freed yet: a request far above all before
 * it, with others like it, including the refused one. Weights do not grow like that: wide layers
 * come after a few narrow ones, not after many. */
static uint32_t first_batch_tick(const evidence *e) {
  const timeline *t = &e->time;
  uint64_t largest = 0, before = 0;
  uint32_t count = 0, jump = TIMELINE_NONE;
  for (uint32_t tick = 0; tick < t->tick_count && tick <= e->fail_tick; tick++) {
    const event *at = timeline_event(t, tick);
    if (at->kind == EVENT_FREE || at->kind == EVENT_FREE_REQUESTED) return TIMELINE_NONE;
    if (at->kind != EVENT_ALLOC && at->kind != EVENT_FAIL) continue;
    if (jump != TIMELINE_NONE && at->bytes >= before * JUMP_LEAST / 2) return jump;
    if (jump == TIMELINE_NONE && count >= JUMP_AFTER && at->bytes >= largest * JUMP_LEAST) {
      jump = tick;
      before = largest;
    }
    count++;
    if (at->bytes > largest) largest = at->bytes;
  }
  return TIMELINE_NONE;
}

/* Assigns phases without stacks: allocations before anything is freed, or before a batch is seen,
 * are the model; those between the marks of a step are the optimizer's; the rest is work. */
static void phases_by_order(evidence *e) {
  timeline *t = &e->time;
  bool freed = false, in_step = false;
  uint32_t batch = first_batch_tick(e);
  for (uint32_t tick = 0; tick < t->tick_count; tick++) {
    const event *at = timeline_event(t, tick);
    if (at->kind == EVENT_FREE || at->kind == EVENT_FREE_REQUESTED || tick == batch) freed = true;
    if ((at->kind == EVENT_MARK_BEGIN || at->kind == EVENT_MARK_END) && is_step_mark(e, at))
      in_step = at->kind == EVENT_MARK_BEGIN;
    if (tick == e->fail_tick)
      e->fail_phase = in_step ? PHASE_OPTIMIZER : freed ? PHASE_FORWARD : PHASE_BUILD;
    uint32_t n = t->lifetime[tick];
    if (at->kind != EVENT_ALLOC || n == TIMELINE_NONE) continue;
    e->phase_of[n] = in_step ? PHASE_OPTIMIZER : freed ? PHASE_FORWARD : PHASE_BUILD;
  }
}

static void phases_by_stack(evidence *e) {
  timeline *t = &e->time;
  uint32_t known = UINT32_MAX; /* the first tick with a stack */
  for (uint32_t i = 0; i < t->lifetime_count; i++) {
    const lifetime *l = &t->lifetimes[i];
    if (l->stack_id != 0 && !l->before && l->start < known) known = l->start;
  }
  for (uint32_t i = 0; i < t->lifetime_count; i++) {
    const lifetime *l = &t->lifetimes[i];
    phase p = e->phase_of_stack[l->stack_id];
    /* Autograd's own threads have no Python frames: in a recording that has stacks, an allocation
     * without one is theirs. What was there before the recording, or before it had stacks, is not.
     */
    if (p == PHASE_UNKNOWN && !l->before && l->start > known) p = PHASE_BACKWARD;
    e->phase_of[i] = (uint8_t)p;
  }
  if (!e->failed) return;
  phase p = e->phase_of_stack[e->fail_stack_id];
  e->fail_phase = p == PHASE_UNKNOWN ? PHASE_BACKWARD : p;
}

static void find_landmarks(evidence *e) {
  timeline *t = &e->time;
  e->first_work_tick = e->fail_tick;
  for (uint32_t tick = 0; tick < e->fail_tick; tick++) {
    const event *at = timeline_event(t, tick);
    if (at->kind == EVENT_MARK_END && is_step_mark(e, at)) e->train_end_tick = tick;
    uint32_t n = t->lifetime[tick];
    if (at->kind != EVENT_ALLOC || n == TIMELINE_NONE) continue;
    phase p = e->phase_of[n];
    if (e->has_stacks && (p == PHASE_BACKWARD || p == PHASE_OPTIMIZER)) e->train_end_tick = tick;
    if (e->first_work_tick == e->fail_tick && p != PHASE_BUILD && p != PHASE_LOAD &&
        p != PHASE_COPY)
      e->first_work_tick = tick;
  }
}

/* Returns the phase in which the program reports that it failed; used if stacks do not show it. */
static phase phase_said(const evidence *e, phase found) {
  switch (e->program.step) {
  case PROGRAM_BUILDING: return found == PHASE_LOAD || found == PHASE_COPY ? found : PHASE_BUILD;
  case PROGRAM_LOADING: return found == PHASE_BUILD || found == PHASE_COPY ? found : PHASE_LOAD;
  case PROGRAM_FORWARD: return e->has_stacks ? found : PHASE_FORWARD;
  case PROGRAM_BACKWARD: return e->has_stacks ? found : PHASE_BACKWARD;
  case PROGRAM_OPTIMIZER: return PHASE_OPTIMIZER;
  default: return found;
  }
}

stow_status evidence_phases(evidence *e) {
  timeline *t = &e->time;
  e->phase_of = calloc(t->lifetime_count + 1u, 1);
  if (e->phase_of == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %u allocations", t->lifetime_count);
  if (e->has_stacks)
    phases_by_stack(e);
  else
    phases_by_order(e);
  if (e->failed) e->fail_phase = phase_said(e, e->fail_phase);
  for (uint32_t i = 0; i < t->lifetime_count; i++)
    if (evidence_live(e, &t->lifetimes[i]))
      e->live_by_phase[e->phase_of[i]] += t->lifetimes[i].bytes;
  find_landmarks(e);
  return STOW_OK;
}
