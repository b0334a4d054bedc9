/* The public tuning (stowage/tune.h) over replay/tune.h and fitting.h. */
#include <stowage/tune.h>

#include <stdlib.h>

#include "advise/fitting.h"
#include "base/growing.h"
#include "recordings/recording_api.h"

struct stow_tune {
  tuning found;
  fitting fit;
};

_Static_assert(FITTING_UNKNOWN == STOW_TUNE_UNKNOWN && FITTING_WHOLE == STOW_TUNE_WHOLE &&
                   FITTING_PART == STOW_TUNE_PART && FITTING_NONE == STOW_TUNE_NONE,
               "the answers are those of the header");

typedef struct caller {
  stow_tune_progress progress;
  void *user;
} caller;

static stow_status pass_on(void *user, uint64_t done, uint64_t total) {
  const caller *c = user;
  int answer = c->progress(c->user, done, total);
  if (answer == 0) return STOW_OK;
  return stow_fail(answer < 0 ? (stow_status)answer : STOW_ERR_INTERRUPTED,
                   "tune: stopped by the caller after %llu of %llu settings",
                   (unsigned long long)done, (unsigned long long)total);
}

stow_status stow_tune_open(stow_tune **out, const stow_recording *of,
                           const stow_tune_options *given) {
  if (out == NULL) return stow_fail(STOW_ERR_INVALID, "stow_tune_open: tune is NULL");
  *out = NULL;
  if (of == NULL) return stow_fail(STOW_ERR_INVALID, "stow_tune_open: recording is NULL");
  stow_tune_options options = STOW_TUNE_OPTIONS_INIT;
  STOW_TRY(growing_read(&options, sizeof options, given, "stow_tune_options"));
  stow_tune *made = calloc(1, sizeof *made);
  if (made == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "stow_tune_open: no host memory");
  replay_job job;
  replay_job_options limits = {.device_bytes = options.device_bytes,
                               .limit_bytes = options.limit_bytes};
  caller by = {options.progress, options.progress_user};
  stow_status status = replay_job_open(&job, &of->data, of->path, &limits);
  if (status == STOW_OK)
    status = tune_run(&made->found, &job, options.progress != NULL ? pass_on : NULL, &by);
  if (status == STOW_OK) status = fitting_find(&made->fit, &job, &made->found);
  replay_job_close(&job);
  if (status != STOW_OK) {
    stow_tune_close(made);
    return status;
  }
  *out = made;
  return STOW_OK;
}

void stow_tune_close(stow_tune *t) {
  free(t);
}

stow_status stow_tune_get_info(const stow_tune *t, stow_tune_info *info) {
  if (t == NULL) return stow_fail(STOW_ERR_INVALID, "stow_tune_get_info: tune is NULL");
  const fitting *fit = &t->fit;
  stow_tune_info full = {.struct_bytes = sizeof full,
                         .setting_count = TUNE_CANDIDATES,
                         .best = t->found.best,
                         .fits = fit->answer,
                         .batch = fit->batch,
                         .batch_part = fit->part,
                         .batch_whole = fit->whole,
                         .batch_setting = fit->setting,
                         .batch_until_failure = fit->until_fail,
                         .batch_reserved_bytes = fit->peak_reserved_bytes};
  return growing_write(info, &full, sizeof full, "stow_tune_info");
}

stow_status stow_tune_get_setting(const stow_tune *t, uint32_t index, stow_tune_setting *to) {
  if (t == NULL) return stow_fail(STOW_ERR_INVALID, "stow_tune_get_setting: tune is NULL");
  if (index >= TUNE_CANDIDATES)
    return stow_fail(STOW_ERR_NOT_FOUND, "stow_tune_get_setting: no setting %u; there are %d",
                     index, TUNE_CANDIDATES);
  const tuned *one = &t->found.list[index];
  const replay_result *r = &one->result;
  int64_t limit_saved = 0, reserved_saved = 0;
  if (!tune_limit_saved(&t->found, one, &limit_saved)) limit_saved = 0;
  if (!tune_reserved_saved(&t->found, one, &reserved_saved)) reserved_saved = 0;
  stow_tune_setting full = {.struct_bytes = sizeof full,
                            .recorded_with = one->own,
                            .settings = one->settings,
                            .min_limit_bytes = r->min_limit_bytes,
                            .min_limit_saved_bytes = limit_saved,
                            .peak_reserved_bytes = r->stats.peak_reserved_bytes,
                            .peak_reserved_saved_bytes = reserved_saved,
                            .page_time_us = r->stats.page_time_ns / 1000,
                            .finishes = r->finishes,
                            .min_limit_proved = r->min_limit_proved};
  return growing_write(to, &full, sizeof full, "stow_tune_setting");
}
