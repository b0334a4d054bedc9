/* Replay job: checks options, builds steps, runs policies (replay_job.h). */
#include "replay/replay_job.h"

#include <stdio.h>
#include <string.h>

#include <stowage/size.h>

#include "base/status.h"

stow_status replay_job_check(const replay_job_options *given) {
  policy_settings checked = POLICY_SETTINGS_INIT;
  if (given->device_bytes != 0 && given->limit_bytes != 0)
    return stow_fail(STOW_ERR_INVALID,
                     "give either the size of the device or a limit of the reserve, not both");
  char device[STOW_SIZE_TEXT_MAX], context[STOW_SIZE_TEXT_MAX];
  if (given->device_bytes != 0 && given->device_bytes <= REPLAY_CONTEXT_BYTES)
    return stow_fail(STOW_ERR_INVALID,
                     "a device of %s cannot hold the CUDA context of %s; name a larger one, such "
                     "as 16G",
                     stow_size_format(device, given->device_bytes),
                     stow_size_format(context, REPLAY_CONTEXT_BYTES));
  return given->settings != NULL ? policy_settings_parse(&checked, given->settings) : STOW_OK;
}

stow_status replay_job_open(replay_job *job, const recording *record, const char *name,
                            const replay_job_options *given) {
  *job = (replay_job){
      .record = record, .options = REPLAY_OPTIONS_INIT, .device_bytes = given->device_bytes};
  STOW_TRY(replay_job_check(given));
  uint64_t limit = given->limit_bytes;
  if (given->device_bytes != 0) {
    limit = given->device_bytes - REPLAY_CONTEXT_BYTES;
    job->options.limit_in_framework = false;
  }
  if (limit != 0 && limit < POLICY_NO_LIMIT) job->options.limit_bytes = limit;
  steps_settings(&job->options.settings, record);
  if (given->settings != NULL)
    STOW_TRY(policy_settings_parse(&job->options.settings, given->settings));
  STOW_TRY(steps_build(&job->steps, record, steps_main_device(record)));
  if (job->steps.alloc_count == 0)
    return stow_fail(STOW_ERR_INVALID, "%s: the recording has no allocations to replay", name);
  return STOW_OK;
}

void replay_job_close(replay_job *job) {
  steps_free(&job->steps);
}

/* Returns whether a replay can be checked. Only PyTorch's recordings have segments, and only the
 * policy that made them can reproduce them. */
static bool can_check(const replay_job *job, const policy_ops *which) {
  if (job->record->source != SOURCE_TORCH) return false;
  if (job->steps.initial_blocks > 0) return false; /* the initial pools are unknown */
  return which ==
         (steps_expandable(job->record) ? &policy_torch_expandable : &policy_torch_default);
}

stow_status replay_job_run(const replay_job *job, const policy_ops *which, unsigned flags,
                           replay_result *r) {
  STOW_TRY(replay_run(r, &job->steps, which, &job->options));
  if ((flags & REPLAY_CHECK) != 0 && can_check(job, which)) {
    replay_result checked;
    STOW_TRY(replay_check(&checked, &job->steps, which, &job->options));
    r->checked = true;
    r->segment_mismatches = checked.segment_mismatches;
    r->address_mismatches = checked.address_mismatches;
    r->segments_checked = checked.segments_checked;
    r->addresses_checked = checked.addresses_checked;
  }
  if ((flags & REPLAY_MIN_LIMIT) == 0) return STOW_OK;
  return replay_min_limit(r, &job->steps, which, &job->options);
}

stow_status replay_policy(const policy_ops **which, const char *name) {
  char known[256] = "";
  *which = policy_find(name);
  if (*which != NULL) return STOW_OK;
  for (size_t i = 0; policy_at(i) != NULL; i++) {
    strncat(known, i > 0 ? ", " : "", sizeof known - strlen(known) - 1);
    strncat(known, policy_at(i)->name, sizeof known - strlen(known) - 1);
  }
  strncat(known, ", planned", sizeof known - strlen(known) - 1);
  return stow_fail(STOW_ERR_NOT_FOUND, "unknown policy \"%.60s\"; use one of %s", name, known);
}
