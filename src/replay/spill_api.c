/* The public simulation of spilling (stowage/replay.h) over spill.h. */
#include <stowage/replay.h>

#include "base/growing.h"
#include "recordings/recording_api.h"
#include "replay/replay_job.h"
#include "replay/spill.h"
#include "replay/steps.h"

stow_status stow_replay_spill(const stow_recording *of, uint64_t device_bytes,
                              stow_replay_spill_result *result) {
  if (of == NULL) return stow_fail(STOW_ERR_INVALID, "stow_replay_spill: recording is NULL");
  if (device_bytes == 0)
    return stow_fail(STOW_ERR_INVALID, "stow_replay_spill: device_bytes is 0; give the size of the "
                                       "device");
  stow_replay_spill_result full = STOW_REPLAY_SPILL_RESULT_INIT;
  STOW_TRY(growing_write(result, &full, sizeof full, "stow_replay_spill_result"));
  spill_program program = {0};
  spill_result found;
  stow_status status = spill_program_build(&program, &of->data, steps_main_device(&of->data));
  if (status == STOW_ERR_NOT_FOUND)
    status = stow_fail(STOW_ERR_NOT_FOUND,
                       "%s has no launches with touches, so what a kernel uses is not known; "
                       "record it with stowage run --record FILE --touches",
                       of->path);
  if (status == STOW_OK) {
    spill_options options = {.vram_bytes = device_bytes, .context_bytes = REPLAY_CONTEXT_BYTES};
    status = spill_run(&found, &program, &options);
  }
  full.peak_live_bytes = program.peak_live_bytes;
  spill_program_free(&program);
  STOW_TRY(status);
  full.fits = found.fits;
  full.capacity_bytes = found.capacity_bytes;
  full.excess_bytes = found.excess_bytes;
  full.bare_ns = found.bare_ns;
  full.step_ns = found.steady.step_ns;
  full.floor_ns = found.floor_ns;
  full.in_bytes = found.steady.in_bytes;
  full.out_bytes = found.steady.out_bytes;
  return growing_write(result, &full, sizeof full, "stow_replay_spill_result");
}
