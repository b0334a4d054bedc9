/* Replay: the loop over the steps. */
#include "replay/replay.h"

#include "base/driver_cost.h"
#include "replay/plan.h"

static stow_status open_policy(policy **p, const steps *s, const policy_ops *which,
                               const replay_options *options) {
  policy_options o = {.limit_bytes = options->limit_bytes,
                      .limit_in_framework = options->limit_in_framework,
                      .settings = options->settings,
                      .lanes = s->lanes,
                      .lane_count = s->lane_count,
                      .id_count = s->id_count};
  return which->open(p, &o);
}

static inline policy_answer take_step(policy *p, const policy_ops *ops, const step *at) {
  if (at->bytes > POLICY_REQUEST_MAX && (at->kind == STEP_ALLOC || at->kind == STEP_FAIL))
    return POLICY_FULL;
  switch (at->kind) {
  case STEP_ALLOC: return ops->alloc(p, at->id, at->bytes, at->lane);
  case STEP_FREE: return ops->release(p, at->id);
  case STEP_PEND: return ops->pend != NULL ? ops->pend(p, at->id) : POLICY_DONE;
  case STEP_TRIM: return ops->trim != NULL ? ops->trim(p) : POLICY_DONE;
  default: {
    policy_answer answer = ops->alloc(p, at->id, at->bytes, at->lane);
    return answer == POLICY_DONE ? ops->release(p, at->id) : answer;
  }
  }
}

/* Returns the program's maximum of live bytes before step `end`. */
static uint64_t peak_live_until(const steps *s, size_t end) {
  uint64_t live = 0, peak = 0;
  for (size_t i = 0; i < end; i++) {
    const step *at = &s->list[i];
    if (at->kind == STEP_ALLOC) live += at->bytes;
    if (at->kind == STEP_FREE) live -= at->bytes;
    uint64_t now = at->kind == STEP_FAIL ? live + at->bytes : live;
    if (now > peak) peak = now;
  }
  return peak;
}

/* Sets `out` to what the plan needs: one allocation at the start, as large as the layout. Under a
 * limit the first block that ends above it fails. */
static void take_plan(replay_result *out, const steps *s, const plan *made, uint64_t limit) {
  uint64_t top = 0;
  uint32_t next = 0;
  size_t i = 0;
  for (; i < s->count; i++) {
    const step *at = &s->list[i];
    if (at->kind != STEP_ALLOC && at->kind != STEP_FAIL) continue;
    if (at->bytes > POLICY_REQUEST_MAX || i >= made->step_count) break;
    const plan_block *b = &made->blocks[next++];
    if (b->offset + b->bytes > limit) break;
    if (b->offset + b->bytes > top) top = b->offset + b->bytes;
  }
  out->peak_live_bytes = s->peak_live_bytes;
  if (i < s->count) {
    out->finishes = false;
    out->failed_at_event = s->list[i].event;
    out->failed_bytes = s->list[i].bytes;
    out->peak_live_bytes = peak_live_until(s, i);
  }
  out->lower_bound_bytes = made->bound_bytes;
  out->planned_by = made->found_by;
  out->stats = (policy_stats){.reserved_bytes = top,
                              .peak_reserved_bytes = top,
                              .page_calls = 1,
                              .page_time_ns = driver_cost_ns(DRIVER_ALLOC, top),
                              .same_down_to_bytes = top};
}

static stow_status run_planned(replay_result *out, const steps *s, const replay_options *options) {
  plan made;
  stow_status status = plan_build(&made, s, 0);
  if (status == STOW_OK) {
    take_plan(out, s, &made, options->limit_bytes);
    out->stats.largest_hole_bytes = plan_largest_hole(&made);
    if (out->stats.largest_hole_bytes == UINT64_MAX)
      status = stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to plan %zu steps", s->count);
  }
  plan_free(&made);
  return status;
}

stow_status replay_run(replay_result *out, const steps *s, const policy_ops *which,
                       const replay_options *options) {
  *out = (replay_result){.policy = which, .finishes = true, .failed_at_event = REPLAY_NO_EVENT};
  if (which == &policy_planned) return run_planned(out, s, options);
  policy *p;
  STOW_TRY(open_policy(&p, s, which, options));
  const event *events = s->source->events;
  policy_answer answer = POLICY_DONE;
  size_t i = 0;
  for (; i < s->count; i++) {
    const step *at = &s->list[i];
    if (which->advance != NULL) which->advance(p, events[at->event].time_ns);
    answer = take_step(p, which, at);
    if (answer != POLICY_DONE) break;
  }
  if (answer == POLICY_FULL) {
    out->finishes = false;
    out->failed_at_event = s->list[i].event;
    out->failed_bytes = s->list[i].bytes;
  }
  out->peak_live_bytes = answer == POLICY_DONE ? s->peak_live_bytes : peak_live_until(s, i);
  which->stats(p, &out->stats);
  which->close(p);
  return answer == POLICY_BROKEN ? STOW_ERR_STATE : STOW_OK; /* the policy set the message */
}
