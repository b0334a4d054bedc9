/* What the model itself takes: weights, a second copy of them, the optimizer's state. */
#include <stdlib.h>
#include <string.h>

#include "advise/causes.h"
#include "advise/forecast.h"

#define SIZE_LEAST   4096 /* smaller tensors have equal sizes by chance */
#define COPY_WHOLE   0.7  /* fraction of the weights found again: a copy */
#define COPY_PART    0.15 /* fraction found so far, if the copying itself failed */
#define COPY_IS_COPY 0.9  /* fraction of those candidates that must then match */
#define LIVE_SHARE   0.08 /* least fraction of live bytes for a copy to matter */

static bool is_weight(const evidence *e, uint32_t i) {
  return e->phase_of[i] == PHASE_BUILD && evidence_live(e, &e->time.lifetimes[i]);
}

/* Finds out whether the model was created twice: the sizes of the weights, in order, are one
 * sequence and then (a part of) the same again. Returns where the second begins; `count` if it does
 * not. Layers repeat too, but more often: only the shortest period counts, and it must occur about
 * twice. */
static uint32_t built_twice(const uint64_t *sizes, uint32_t count) {
  uint32_t *border = calloc(count + 1u, sizeof *border); /* the prefix function of the sizes */
  if (border == NULL || count < 6) {
    free(border);
    return count;
  }
  for (uint32_t i = 1; i < count; i++) {
    uint32_t k = border[i - 1];
    while (k > 0 && sizes[i] != sizes[k]) k = border[k - 1];
    border[i] = k + (sizes[i] == sizes[k]);
  }
  uint32_t period = count - border[count - 1];
  free(border);
  return period >= 3 && count <= period * 2 && count * 10 >= period * 13 ? period : count;
}

/* Without stacks the first batch and activations follow the weights in the same list. Returns the
 * length of its first part that is one sequence twice and not three times; 0 if there is none. */
static uint32_t twice_at_start(const uint64_t *sizes, uint32_t count) {
  for (uint32_t p = 3; p * 2 <= count; p++) {
    if (sizes[p] != sizes[0] || memcmp(sizes, sizes + p, p * sizeof *sizes) != 0) continue;
    if (p * 3 <= count && memcmp(sizes, sizes + 2 * p, p * sizeof *sizes) == 0) return 0;
    return p * 2;
  }
  return 0;
}

/* Finds candidates: live allocations of a weight's size, requested by loading, copying or the
 * program itself. */
static void match_copies(copies *c, const evidence *e, map *of_size) {
  uint64_t largest = 0;
  for (uint32_t i = 0; i < e->time.lifetime_count; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    phase p = e->phase_of[i];
    if (l->bytes < SIZE_LEAST || !evidence_live(e, l)) continue;
    if (p != PHASE_LOAD && p != PHASE_COPY && p != PHASE_USER) continue;
    /* A result of a pass may have a weight's size; the recording shows that it does not stay. */
    if (e->whole != NULL && p == PHASE_USER && l->start >= e->first_work_tick &&
        l->end != TIMELINE_OPEN)
      continue;
    uint64_t *left = map_get(of_size, l->bytes);
    if (left == NULL) continue;
    if (*left == 0) { /* a third copy or more: not a checkpoint, copies accumulate */
      c->more_bytes += l->bytes;
      continue;
    }
    --*left;
    c->copy_bytes += l->bytes;
    c->list[c->copy_count++] = i;
    if (l->bytes > largest) {
      largest = l->bytes;
      c->stack_id = l->stack_id;
    }
  }
}

/* Without stacks: finds a run of live allocations with the weights' sizes in the weights' order.
 * Gradients come in reverse order, and an optimizer's state between its marks. */
static void match_run(copies *c, const evidence *e, const uint64_t *sizes, uint32_t count) {
  const timeline *t = &e->time;
  for (uint32_t i = t->before_count; i < t->lifetime_count; i++) {
    if (e->phase_of[i] != PHASE_FORWARD || !evidence_live(e, &t->lifetimes[i])) continue;
    uint32_t same = 0;
    uint64_t bytes = 0;
    for (uint32_t k = i; k < t->lifetime_count && same < count; k++) {
      const lifetime *l = &t->lifetimes[k];
      if (l->bytes < SIZE_LEAST) continue;
      if (!evidence_live(e, l) || l->bytes != sizes[same]) break;
      bytes += l->bytes;
      same++;
    }
    if (same < 3 || bytes <= c->copy_bytes) continue;
    c->copy_bytes = bytes;
    c->copy_count = 0;
    for (uint32_t k = i; c->copy_count < same; k++)
      if (t->lifetimes[k].bytes >= SIZE_LEAST) c->list[c->copy_count++] = k;
  }
}

/* Lists the weights' sizes in the order of their allocation, and counts each. */
static stow_status count_weights(copies *c, const evidence *e, uint64_t *sizes,
                                 uint32_t *numbers_of, uint32_t *count, map *of_size) {
  for (uint32_t i = 0; i < e->time.lifetime_count; i++) {
    /* Those made and moved since (a flattened RNN) count for the sizes, not for the sum. */
    if (e->phase_of[i] != PHASE_BUILD) continue;
    uint64_t bytes = e->time.lifetimes[i].bytes;
    if (is_weight(e, i)) c->weight_bytes += bytes;
    if (bytes < SIZE_LEAST) continue;
    sizes[*count] = bytes;
    numbers_of[(*count)++] = i;
    uint64_t *have = map_get(of_size, bytes);
    if (have != NULL)
      ++*have;
    else
      STOW_TRY(map_put(of_size, bytes, 1));
  }
  return STOW_OK;
}

/* If the model was created twice, the second one is the copy. */
static void take_second(copies *c, const evidence *e, const uint64_t *sizes,
                        const uint32_t *numbers_of, uint32_t count) {
  uint64_t bytes = 0;
  /* Not if it failed while only weights existed. */
  if (!e->has_stacks && e->fail_phase != PHASE_BUILD) count = twice_at_start(sizes, count);
  uint32_t from = built_twice(sizes, count);
  /* Tables of different sizes made in one loop are one model: a second model is made elsewhere. */
  if (e->has_stacks && from < count &&
      e->time.lifetimes[numbers_of[0]].stack_id == e->time.lifetimes[numbers_of[from]].stack_id)
    return;
  for (uint32_t i = 0; i < count; i++) {
    if (!is_weight(e, numbers_of[i])) return; /* created again, not twice */
    if (i >= from) bytes += sizes[i];
  }
  if (bytes <= c->copy_bytes) return;
  c->copy_bytes = bytes;
  c->weight_bytes -= bytes;
  c->twice_built = true;
  c->stack_id = 0;
  c->copy_count = 0;
  for (uint32_t i = from; i < count; i++) c->list[c->copy_count++] = numbers_of[i];
}

stow_status copies_find(copies *c, const evidence *e) {
  *c = (copies){0};
  map of_size = {0};
  uint32_t count = 0, total = 0;
  for (uint32_t i = 0; i < e->time.lifetime_count; i++) total += e->phase_of[i] == PHASE_BUILD;
  uint64_t *sizes = malloc((total + 1u) * sizeof *sizes);
  uint32_t *numbers_of = malloc((total + 1u) * sizeof *numbers_of);
  c->list = malloc((total + 1u) * sizeof *c->list);
  stow_status status = STOW_OK;
  if (sizes == NULL || numbers_of == NULL || c->list == NULL)
    status = stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %u weights", total);
  else
    status = count_weights(c, e, sizes, numbers_of, &count, &of_size);
  if (status == STOW_OK) {
    match_copies(c, e, &of_size);
    if (!e->has_stacks) match_run(c, e, sizes, count);
    take_second(c, e, sizes, numbers_of, count);
  }
  map_free(&of_size);
  free(sizes);
  free(numbers_of);
  return status;
}

bool copies_piled_up(const copies *c, const evidence *e) {
  return c->copy_bytes > 0 && c->more_bytes >= 2 * c->copy_bytes && c->stack_id != 0 &&
         e->phase_of_stack[c->stack_id] != PHASE_LOAD;
}

void cause_loaded_twice(cause *c, const evidence *e, const findings *f) {
  const copies *k = &f->copies;
  double found = evidence_share(k->copy_bytes, k->weight_bytes);
  if (k->copy_bytes == 0 || evidence_share(k->copy_bytes, e->n.live_bytes) < LIVE_SHARE) return;
  phase p = k->stack_id != 0 ? e->phase_of_stack[k->stack_id] : PHASE_UNKNOWN;
  bool copying = e->fail_phase == PHASE_LOAD || e->fail_phase == PHASE_COPY ||
                 (e->fail_phase == PHASE_USER && e->fail_stack_id == k->stack_id);
  uint64_t like = p == PHASE_USER && !k->twice_built
                      ? e->live_by_phase[PHASE_USER]
                      : e->live_by_phase[PHASE_LOAD] + e->live_by_phase[PHASE_COPY];
  bool part_of_copy =
      copying && found >= COPY_PART && evidence_share(k->copy_bytes, like) >= COPY_IS_COPY;
  if (found >= COPY_WHOLE || part_of_copy)
    c->confidence = 0.95;
  else if (k->twice_built && found >= 0.3)
    c->confidence = 0.85;
  else if ((p == PHASE_LOAD || p == PHASE_COPY) && found >= 0.3)
    c->confidence = 0.7;
  if (!e->has_stacks) c->confidence *= 0.9;
  if ((f->growth.found && k->more_bytes * 2 > k->copy_bytes) || copies_piled_up(k, e))
    c->confidence *= 0.5;
  char place[256];
  if (k->stack_id != 0)
    cause_head(c, "The weights are on the device twice: %s of copies beside them, from %s",
               cause_size(k->copy_bytes),
               evidence_place(e, place, sizeof place, e->user_of_stack[k->stack_id]));
  else
    cause_head(c, "The weights are on the device twice: %s of copies beside them",
               cause_size(k->copy_bytes));
  cause_say(c, "%s of weights, and %s in allocations of the same sizes",
            cause_size(k->weight_bytes), cause_size(k->copy_bytes));
  if (p == PHASE_LOAD) cause_say(c, "they were made while a checkpoint was loaded");
  if (p == PHASE_COPY) cause_say(c, "they were made by a deep copy");
  if (k->twice_built) cause_say(c, "the model's sizes occur twice, in the same order");
}

void cause_weights_too_big(cause *c, const evidence *e, const findings *f) {
  uint64_t weights = e->live_by_phase[PHASE_BUILD] + e->live_by_phase[PHASE_LOAD];
  double part = evidence_share(weights, e->n.live_bytes);
  bool building = e->fail_phase == PHASE_BUILD || e->fail_phase == PHASE_LOAD;
  if (building)
    c->confidence = part >= 0.7 || e->n.live_bytes == 0 ? 0.96 : 0.8;
  else if (part >= 0.4)
    c->confidence = part >= 0.6 ? 0.6 : 0.3;
  if (!e->has_stacks) { /* nothing was freed yet: all that is known is that it came first */
    c->confidence *= 0.75;
    if (spike_stands_alone(e, &f->spike)) c->confidence *= 0.7;
  }
  if (evidence_share(f->copies.copy_bytes, f->copies.weight_bytes) >= COPY_PART)
    c->confidence *= 0.5;
  if (c->confidence == 0) return;
  uint64_t capacity = evidence_capacity(e);
  char place[256];
  if (evidence_plain(e)) {
    cause_head(c, "What was allocated before the first free does not fit: %s, of %s",
               cause_size(weights), capacity > 0 ? cause_size(capacity) : "the device's memory");
    cause_say(c, "%.0f%% of live memory was allocated then; its purpose is not known", part * 100);
    return;
  }
  if (building && evidence_requested_bytes(e) > weights)
    cause_head(c, "The model's weights do not fit: one of them takes %s, of %s",
               cause_size(evidence_requested_bytes(e)),
               capacity > 0 ? cause_size(capacity) : "the device's memory");
  else if (building)
    cause_head(c, "The model's weights alone do not fit: %s was loaded, of %s", cause_size(weights),
               capacity > 0 ? cause_size(capacity) : "the device's memory");
  else
    cause_head(c, "The model's weights take most of the memory: %s of %s", cause_size(weights),
               cause_size(e->n.live_bytes));
  cause_say(c, "%.0f%% of live memory is weights", part * 100);
  if (building && e->fail_stack_id != 0)
    cause_say(c, "it failed while they were moved to the device, at %s",
              evidence_place(e, place, sizeof place, e->user_of_stack[e->fail_stack_id]));
}

/* Returns the size of the optimizer's state when every weight has its own: as the recording shows
 * later, or as the part of the first step that was reached shows. */
static uint64_t whole_state(const evidence *e, const findings *f, uint64_t so_far) {
  forecast o = {0};
  if (e->whole == NULL) forecast_find(&o, e, copies_weights(&f->copies));
  uint64_t whole =
      e->whole != NULL ? e->whole->live_by_phase[PHASE_OPTIMIZER] : o.whole_state_bytes;
  return whole > so_far ? whole : so_far;
}

void cause_optimizer_state(cause *c, const evidence *e, const findings *f) {
  uint64_t state = e->live_by_phase[PHASE_OPTIMIZER];
  bool stepping = e->fail_phase == PHASE_OPTIMIZER;
  uint64_t asked = stepping && e->n.asked_bytes != MESSAGE_UNKNOWN ? e->n.asked_bytes : 0;
  double part = evidence_share(state + asked, e->n.live_bytes + asked);
  if (stepping)
    c->confidence = part >= 0.2 ? 0.93 : part >= 0.1 ? 0.75 : 0.55;
  else if (part >= 0.3)
    c->confidence = part >= 0.45 ? 0.6 : 0.4;
  if (!e->has_stacks) c->confidence *= 0.9;
  if (c->confidence == 0) return;
  char place[256];
  uint64_t whole = whole_state(e, f, state + asked);
  cause_head(c, "The optimizer's state does not fit: %s beside %s of weights", cause_size(whole),
             cause_size(e->live_by_phase[PHASE_BUILD]));
  if (whole > state + asked)
    cause_say(c, "%s of that was there or requested; the rest follows in the same step",
              cause_size(state + asked));
  cause_say(c, "%s of live memory was requested by an optimizer step, %.0f%% of all live memory",
            cause_size(state), evidence_share(state, e->n.live_bytes) * 100);
  if (stepping && e->fail_stack_id != 0)
    cause_say(c, "it failed inside the step called at %s",
              evidence_place(e, place, sizeof place, e->user_of_stack[e->fail_stack_id]));
}
