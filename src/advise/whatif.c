/* What if: filters the steps of a replay. */
#include "advise/whatif.h"

#include <stdlib.h>
#include <string.h>

stow_status whatif_open(whatif *w, const evidence *e) {
  *w = (whatif){.e = e};
  STOW_TRY(steps_build(&w->base, e->source, e->time.device));
  uint32_t last = e->time.tick_count > 0 ? e->time.events[e->fail_tick] : 0;
  size_t count = 0;
  while (count < w->base.count && (!e->failed || w->base.list[count].event <= last)) count++;
  w->base.count = count;
  w->factor = malloc((e->source->event_count + 1) * sizeof *w->factor);
  w->changed = w->base;
  w->changed.list = malloc((count + 1) * sizeof *w->changed.list);
  if (w->factor == NULL || w->changed.list == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to replay %zu steps", count);
  whatif_reset(w);
  return STOW_OK;
}

void whatif_close(whatif *w) {
  free(w->factor);
  free(w->changed.list);
  steps_free(&w->base);
  *w = (whatif){0};
}

void whatif_reset(whatif *w) {
  w->max_split_bytes = 0;
  for (size_t i = 0; i <= w->e->source->event_count; i++) w->factor[i] = 1;
}

void whatif_scale(whatif *w, uint32_t lifetime_number, double factor) {
  const lifetime *l = &w->e->time.lifetimes[lifetime_number];
  if (!l->before) w->factor[w->e->time.events[l->start]] = factor;
}

void whatif_scale_failed(whatif *w, double factor) {
  if (w->e->failed) w->factor[w->e->time.events[w->e->fail_tick]] = factor;
}

static uint64_t scaled(uint64_t bytes, double factor) {
  if (factor >= 1) return bytes;
  uint64_t less = (uint64_t)((double)bytes * factor);
  return less > 0 ? less : 1;
}

/* Ids are reused after a free, so what became of an id is known from its last allocation. */
static stow_status change(whatif *w) {
  steps *out = &w->changed;
  out->count = 0;
  out->peak_live_bytes = 0;
  double *of_id = malloc((w->base.id_count + 1u) * sizeof *of_id);
  if (of_id == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %u blocks", w->base.id_count);
  uint64_t live = 0;
  uint32_t failed = w->e->failed ? w->e->time.events[w->e->fail_tick] : UINT32_MAX;
  for (size_t i = 0; i < w->base.count; i++) {
    step s = w->base.list[i];
    if (s.kind == STEP_FAIL && s.event != failed) continue; /* one the program survived */
    if (s.kind == STEP_ALLOC) of_id[s.id] = s.initial ? 1 : w->factor[s.event];
    double factor = s.kind == STEP_TRIM   ? 1
                    : s.kind == STEP_FAIL ? w->factor[s.event]
                                          : of_id[s.id];
    if (factor <= 0) continue;
    s.bytes = scaled(s.bytes, factor);
    if (s.kind == STEP_ALLOC || s.kind == STEP_FAIL) live += s.bytes;
    if (live > out->peak_live_bytes) out->peak_live_bytes = live;
    if (s.kind == STEP_FREE) live -= s.bytes < live ? s.bytes : live;
    out->list[out->count++] = s;
  }
  out->end_live_bytes = live; /* the failed request is the last step */
  free(of_id);
  return STOW_OK;
}

stow_status whatif_steps(whatif *w, const steps **out) {
  *out = &w->changed;
  return change(w);
}

stow_status whatif_run(whatif *w, whatif_result *out, bool expandable, uint64_t limit_bytes) {
  STOW_TRY(change(w));
  replay_options options = REPLAY_OPTIONS_INIT;
  steps_settings(&options.settings, w->e->source);
  if (w->max_split_bytes > 0) options.settings.max_split_bytes = w->max_split_bytes;
  if (limit_bytes > 0 && limit_bytes < POLICY_NO_LIMIT) options.limit_bytes = limit_bytes;
  options.limit_in_framework = !w->device_is_full && evidence_limit_bound(w->e);
  const policy_ops *which =
      expandable || w->e->expandable ? &policy_torch_expandable : &policy_torch_default;
  replay_result r;
  STOW_TRY(replay_run(&r, &w->changed, which, &options));
  *out = (whatif_result){.finishes = r.finishes,
                         .peak_reserved_bytes = r.stats.peak_reserved_bytes,
                         .peak_live_bytes = r.peak_live_bytes,
                         .reserved_bytes = r.stats.reserved_bytes,
                         .largest_hole_bytes = r.stats.largest_hole_bytes,
                         .failed_at_event = r.failed_at_event,
                         .failed_bytes = r.failed_bytes,
                         .failure_bytes = w->changed.end_live_bytes};
  return STOW_OK;
}
