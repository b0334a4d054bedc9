/* The public replay (stowage/replay.h) over replay_job.h. */
#include <stowage/replay.h>

#include <stdlib.h>

#include "base/growing.h"
#include "recordings/recording_api.h"
#include "replay/replay_job.h"

struct stow_replay {
  replay_job job;
};

_Static_assert(STOW_REPLAY_MIN_LIMIT == REPLAY_MIN_LIMIT && STOW_REPLAY_CHECK == REPLAY_CHECK,
               "public flags are those of replay_job.h");
_Static_assert(STOW_REPLAY_NO_EVENT == REPLAY_NO_EVENT, "no event is the same number");

stow_status stow_replay_open(stow_replay **out, const stow_recording *of,
                             const stow_replay_options *given) {
  if (out == NULL) return stow_fail(STOW_ERR_INVALID, "stow_replay_open: replay is NULL");
  *out = NULL;
  if (of == NULL) return stow_fail(STOW_ERR_INVALID, "stow_replay_open: recording is NULL");
  stow_replay_options options = STOW_REPLAY_OPTIONS_INIT;
  STOW_TRY(growing_read(&options, sizeof options, given, "stow_replay_options"));
  stow_replay *made = calloc(1, sizeof *made);
  if (made == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "stow_replay_open: no host memory");
  replay_job_options job = {.device_bytes = options.device_bytes,
                            .limit_bytes = options.limit_bytes,
                            .settings = options.settings};
  stow_status status = replay_job_open(&made->job, &of->data, of->path, &job);
  if (status != STOW_OK) {
    stow_replay_close(made);
    return status;
  }
  *out = made;
  return STOW_OK;
}

void stow_replay_close(stow_replay *replay) {
  if (replay == NULL) return;
  replay_job_close(&replay->job);
  free(replay);
}

const char *stow_replay_policy(uint32_t index) {
  return policy_at(index) != NULL ? policy_at(index)->name : NULL;
}

stow_status stow_replay_run(const stow_replay *replay, const char *name, uint32_t flags,
                            stow_replay_result *result) {
  const policy_ops *which;
  replay_result r = {0};
  if (replay == NULL || name == NULL)
    return stow_fail(STOW_ERR_INVALID, "stow_replay_run: replay or policy is NULL");
  if ((flags & ~(STOW_REPLAY_MIN_LIMIT | STOW_REPLAY_CHECK)) != 0)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "stow_replay_run: unknown flags 0x%x: use a newer library", flags);
  stow_replay_result full = STOW_REPLAY_RESULT_INIT;
  STOW_TRY(growing_write(result, &full, sizeof full, "stow_replay_result"));
  STOW_TRY(replay_policy(&which, name));
  STOW_TRY(replay_job_run(&replay->job, which, flags, &r));
  full = (stow_replay_result){
      .struct_bytes = sizeof full,
      .finishes = r.finishes,
      .policy = which->name,
      .failed_at_event = r.failed_at_event,
      .failed_bytes = r.failed_bytes,
      .peak_live_bytes = r.peak_live_bytes,
      .peak_reserved_bytes = r.stats.peak_reserved_bytes,
      .largest_hole_bytes = r.stats.largest_hole_bytes,
      .page_calls = r.stats.page_calls,
      .page_time_us = r.stats.page_time_ns / 1000,
      .retries = r.stats.retries,
      .min_limit_bytes = r.min_limit_bytes,
      .min_limit_proved = r.min_limit_proved,
      .checked = r.checked,
      .segment_mismatches = r.segment_mismatches,
      .segments_checked = r.segments_checked,
      .address_mismatches = r.address_mismatches,
      .addresses_checked = r.addresses_checked,
      .lower_bound_bytes = r.lower_bound_bytes,
  };
  return growing_write(result, &full, sizeof full, "stow_replay_result");
}
