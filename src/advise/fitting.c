/* Fitting: decides what grows with the batch, and searches the largest part that replays. */
#include "advise/fitting.h"

#include <stdlib.h>
#include <string.h>

#include "advise/whatif.h"
#include "base/hash.h"

#define BATCH_MAX (1u << 20) /* larger numbers in a recording are ignored */
/* Part of the limit that a smaller batch leaves free, as in stowage.tune: the sizes of workspaces
 * and the order of requests change a little with the batch. */
#define HEADROOM 0.05

/* ---- what grows with the batch ---- */

static uint64_t request_key(const lifetime *l) {
  return hash_u64(l->bytes, l->stack_id);
}

/* Counts the requests by place and size, and collects the sizes of weights. Blocks from before the
 * recording may be weights. */
static stow_status count_requests(const evidence *e, map *seen, map *weights) {
  for (uint32_t i = 0; i < e->time.lifetime_count; i++) {
    const lifetime *l = &e->time.lifetimes[i];
    phase p = e->phase_of[i];
    if (l->before || p == PHASE_BUILD || p == PHASE_LOAD || p == PHASE_COPY)
      STOW_TRY(map_put(weights, l->bytes, 0));
    uint64_t *count = map_get(seen, request_key(l));
    if (count != NULL)
      ++*count;
    else
      STOW_TRY(map_put(seen, request_key(l), 1));
  }
  return STOW_OK;
}

/* Returns true if the request was made once and never freed, in a program that repeats its steps: a
 * workspace, a table, a data set. */
static bool is_kept(const map *seen, const lifetime *l, bool repeats) {
  return repeats && l->end == TIMELINE_OPEN && *map_get(seen, request_key(l)) == 1;
}

/* Marks what a smaller batch makes smaller with factor `FACTOR_GROWS`; returns its bytes in
 * *bytes. A weight's gradient has the size of a weight and outlives the backward pass it was made
 * in. */
#define FACTOR_GROWS 0.5
static stow_status mark_growing(whatif *w, uint64_t *bytes) {
  const evidence *e = w->e;
  map seen = {0}, weights = {0};
  bool in_backward = false, repeats = e->loop.count >= 2;
  uint32_t backward_end = 0;
  *bytes = 0;
  stow_status status = count_requests(e, &seen, &weights);
  for (uint32_t i = e->time.lifetime_count; status == STOW_OK && i-- > e->time.before_count;) {
    const lifetime *l = &e->time.lifetimes[i];
    phase p = e->phase_of[i];
    if (p == PHASE_BACKWARD) {
      if (!in_backward) backward_end = l->start;
      in_backward = true;
      if (l->end > backward_end && map_get(&weights, l->bytes) != NULL) continue;
    } else if (p == PHASE_FORWARD || p == PHASE_USER) {
      in_backward = false;
      if (l->start < e->first_work_tick || is_kept(&seen, l, repeats)) continue;
    } else {
      in_backward = in_backward && p != PHASE_OPTIMIZER;
      continue;
    }
    whatif_scale(w, i, FACTOR_GROWS);
    *bytes += l->bytes;
  }
  phase failed = e->fail_phase;
  if (failed == PHASE_FORWARD || failed == PHASE_USER || failed == PHASE_BACKWARD)
    whatif_scale_failed(w, FACTOR_GROWS);
  map_free(&seen);
  map_free(&weights);
  return status;
}

/* Replaces the factor of everything that grows. */
static void set_part(whatif *w, const double *grows, double part) {
  for (size_t i = 0; i <= w->e->source->event_count; i++) w->factor[i] = grows[i] < 1 ? part : 1;
}

/* ---- the search ---- */

typedef struct search {
  whatif *what;
  const double *grows;
  const replay_job *job;
  const tuning *tuned; /* NULL: only expandable segments, and as it was recorded */
  uint32_t whole;
} search;

#define EXPANDABLE_SETTING "expandable_segments:True"
/* In place of the index of a setting, without a tuning. */
#define EXPANDABLE  (UINT32_MAX - 1)
#define AS_RECORDED UINT32_MAX

static stow_status replays(const search *s, uint32_t which, uint32_t part, uint64_t limit_bytes,
                           replay_result *r) {
  const steps *changed;
  replay_job job = *s->job;
  job.options.limit_bytes = limit_bytes;
  set_part(s->what, s->grows, (double)part / s->whole);
  STOW_TRY(whatif_steps(s->what, &changed));
  if (which == AS_RECORDED)
    return replay_run(
        r, changed, steps_expandable(job.record) ? &policy_torch_expandable : &policy_torch_default,
        &job.options);
  return tune_replay(r, changed, &job,
                     which == EXPANDABLE ? EXPANDABLE_SETTING : s->tuned->list[which].settings);
}

/* Replays under the limit and under a little less. More memory does not always help an allocator,
 * so one alone would show too little. */
static stow_status finishes(const search *s, uint32_t which, uint32_t part, replay_result *r) {
  for (int share = 0; share <= 2; share++) {
    double limit = (double)s->job->options.limit_bytes * (1 - HEADROOM * (2 - share) / 2);
    STOW_TRY(replays(s, which, part, (uint64_t)limit, r));
    if (!r->finishes) break;
  }
  return STOW_OK;
}

/* Finds the largest part that finishes with one setting. */
static stow_status search_setting(fitting *out, const search *s, uint32_t which) {
  uint32_t good = 0, bad = s->whole;
  while (bad - good > 1) {
    uint32_t part = good + (bad - good) / 2;
    replay_result r;
    STOW_TRY(finishes(s, which, part, &r));
    if (!r.finishes) {
      bad = part;
      continue;
    }
    good = part;
    out->part = part;
    out->setting = which;
    out->peak_reserved_bytes = r.stats.peak_reserved_bytes;
  }
  return STOW_OK;
}

static uint32_t setting_named(const tuning *t, const char *settings) {
  for (uint32_t i = 0; i < TUNE_CANDIDATES; i++)
    if (strcmp(t->list[i].settings, settings) == 0) return i;
  return t->best;
}

/* Drops the setting if the part fits without it too. */
static stow_status check_as_recorded(fitting *out, const search *s) {
  replay_result r;
  STOW_TRY(replays(s, AS_RECORDED, out->part, s->job->options.limit_bytes, &r));
  if (r.finishes) out->setting = AS_RECORDED;
  return STOW_OK;
}

/* Expandable segments first: with them the allocator wastes least, so the result depends least on
 * the exact sizes that another batch requests. */
static stow_status search_parts(fitting *out, const search *s) {
  if (s->tuned == NULL) {
    STOW_TRY(search_setting(out, s, EXPANDABLE));
    return out->part == 0 ? search_setting(out, s, AS_RECORDED) : check_as_recorded(out, s);
  }
  STOW_TRY(search_setting(out, s, setting_named(s->tuned, EXPANDABLE_SETTING)));
  if (out->part == 0) STOW_TRY(search_setting(out, s, setting_named(s->tuned, "")));
  if (out->part == 0) STOW_TRY(search_setting(out, s, s->tuned->best));
  if (out->part > 0) {
    out->answer = FITTING_PART;
    return STOW_OK;
  }
  out->answer = FITTING_NONE;
  out->setting = s->tuned->best;
  replay_result r;
  STOW_TRY(replays(s, out->setting, 1, POLICY_NO_LIMIT, &r));
  out->peak_reserved_bytes = r.stats.peak_reserved_bytes;
  return STOW_OK;
}

static stow_status find_part(fitting *out, const evidence *e, const replay_job *job,
                             const tuning *t) {
  whatif what;
  uint64_t growing = 0;
  double *grows = NULL;
  stow_status status = whatif_open(&what, e);
  if (status == STOW_OK) status = mark_growing(&what, &growing);
  if (status == STOW_OK && growing > 0) {
    size_t bytes = (e->source->event_count + 1) * sizeof *grows;
    grows = malloc(bytes);
    if (grows == NULL)
      status = stow_fail(STOW_ERR_HOST_MEMORY, "tune: no host memory for %zu events",
                         e->source->event_count);
    else
      memcpy(grows, what.factor, bytes);
  }
  out->until_fail = e->failed;
  out->batch = e->program.batch <= BATCH_MAX ? e->program.batch : 0;
  out->whole = out->batch > 0 ? (uint32_t)out->batch : FITTING_PARTS;
  if (status == STOW_OK && grows != NULL) {
    search s = {.what = &what, .grows = grows, .job = job, .tuned = t, .whole = out->whole};
    status = search_parts(out, &s);
  }
  free(grows);
  whatif_close(&what);
  return status;
}

stow_status fitting_part(evidence_given *given, const evidence *e, uint64_t device_bytes) {
  replay_job job;
  fitting found = {0};
  given->part = 0;
  given->of = FITTING_PARTS;
  if (e->failed) return STOW_OK; /* what comes later is not known */
  stow_status status = replay_job_open(&job, e->source, "the recording",
                                       &(replay_job_options){.device_bytes = device_bytes});
  if (status == STOW_OK) status = find_part(&found, e, &job, NULL);
  if (status == STOW_OK && found.whole > 0) {
    given->part = found.part;
    given->of = found.whole;
    given->expandable = found.part > 0 && found.setting == EXPANDABLE;
  }
  replay_job_close(&job);
  return status;
}

stow_status fitting_find(fitting *out, const replay_job *job, const tuning *t) {
  *out = (fitting){0};
  if (job->options.limit_bytes == POLICY_NO_LIMIT) return STOW_OK;
  evidence e;
  evidence_given given = {0};
  stow_status status = evidence_gather(&e, job->record, &given);
  if (status == STOW_OK) {
    const tuned *best = &t->list[t->best];
    out->batch = e.program.batch <= BATCH_MAX ? e.program.batch : 0;
    out->until_fail = e.failed;
    if (best->result.finishes) {
      out->answer = FITTING_WHOLE;
      out->setting = t->best;
      out->peak_reserved_bytes = best->result.stats.peak_reserved_bytes;
    } else {
      status = find_part(out, &e, job, t);
    }
  }
  evidence_free(&e);
  return status;
}
