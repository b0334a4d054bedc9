/* The public tuning API: sorted settings, the one to use, and stopping. */
#include "harness.h"

#include <stowage/replay.h>
#include <stowage/tune.h>

static stow_recording *open_data(void) {
  stow_recording *r;
  CHECK_OK(stow_recording_open(&r, harness_data("fragmentation.pickle.gz"), NULL));
  return r;
}

static int count(void *user, uint64_t done, uint64_t total) {
  ++*(int *)user;
  return done <= total ? 0 : -1;
}

static int stop(void *user, uint64_t done, uint64_t total) {
  (void)user, (void)total;
  return done == 2 ? STOW_ERR_INTERRUPTED : 0;
}

TEST(the_best_setting_runs_in_the_limit_it_names)
{
  stow_recording *r = open_data();
  stow_tune *tune;
  stow_tune_options options = STOW_TUNE_OPTIONS_INIT;
  stow_tune_info info = STOW_TUNE_INFO_INIT;
  stow_tune_setting best = STOW_TUNE_SETTING_INIT, one = STOW_TUNE_SETTING_INIT;
  int calls = 0;
  options.progress = count, options.progress_user = &calls;
  CHECK_OK(stow_tune_open(&tune, r, &options));
  CHECK_OK(stow_tune_get_info(tune, &info));
  CHECK(info.setting_count > 5 && (uint32_t)calls == info.setting_count);
  CHECK_OK(stow_tune_get_setting(tune, info.best, &best));
  CHECK(best.min_limit_saved_bytes >= 0 && best.finishes == 1);
  uint32_t without = 0;
  for (uint32_t i = 0; i < info.setting_count; i++) {
    CHECK_OK(stow_tune_get_setting(tune, i, &one));
    if (one.settings[0] != '\0') continue;
    without++;
    CHECK(one.min_limit_saved_bytes == 0 && one.peak_reserved_saved_bytes == 0);
    CHECK_U64(one.min_limit_bytes, best.min_limit_bytes + (uint64_t)best.min_limit_saved_bytes);
  }
  CHECK_U64(without, 1);
  CHECK_STATUS(stow_tune_get_setting(tune, info.setting_count, &one), STOW_ERR_NOT_FOUND);
  stow_replay_options limited = STOW_REPLAY_OPTIONS_INIT;
  stow_replay_result result = STOW_REPLAY_RESULT_INIT;
  stow_replay *replay;
  limited.limit_bytes = best.min_limit_bytes, limited.settings = best.settings;
  CHECK_OK(stow_replay_open(&replay, r, &limited));
  bool expandable = strstr(best.settings, "expandable") != NULL;
  CHECK_OK(stow_replay_run(replay, expandable ? "torch_expandable" : "torch_default", 0, &result));
  CHECK_U64(result.finishes, 1);
  stow_replay_close(replay);
  stow_tune_close(tune);
  stow_recording_close(r);
}

TEST(tuning_can_be_stopped_and_refuses_wrong_options)
{
  stow_recording *r = open_data();
  stow_tune *tune;
  stow_tune_options options = STOW_TUNE_OPTIONS_INIT;
  options.progress = stop;
  CHECK_STATUS(stow_tune_open(&tune, r, &options), STOW_ERR_INTERRUPTED);
  CHECK(tune == NULL);
  options.limit_bytes = options.device_bytes = 1 << 30;
  CHECK_STATUS(stow_tune_open(&tune, r, &options), STOW_ERR_INVALID);
  options.struct_bytes = 1;
  CHECK_STATUS(stow_tune_open(&tune, r, &options), STOW_ERR_INVALID);
  CHECK_STATUS(stow_tune_open(&tune, NULL, NULL), STOW_ERR_INVALID);
  stow_recording_close(r);
}

TEST_MAIN
