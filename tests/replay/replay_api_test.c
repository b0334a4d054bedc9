/* The public replay API: policies, limits, and the check with PyTorch's own segments. */
#include "harness.h"

#include <stowage/replay.h>

static stow_recording *open_data(const char *name) {
  stow_recording *r;
  CHECK_OK(stow_recording_open(&r, harness_data(name), NULL));
  return r;
}

TEST(every_policy_finishes_without_a_limit)
{
  stow_recording *r = open_data("fragmentation.pickle.gz");
  stow_replay *replay;
  uint32_t count = 0;
  CHECK_OK(stow_replay_open(&replay, r, NULL));
  for (const char *name; (name = stow_replay_policy(count)) != NULL; count++) {
    stow_replay_result result = STOW_REPLAY_RESULT_INIT;
    CHECK_OK(stow_replay_run(replay, name, 0, &result));
    CHECK(result.finishes == 1 && result.failed_at_event == STOW_REPLAY_NO_EVENT);
    CHECK_TEXT(result.policy, name);
    CHECK(result.peak_reserved_bytes >= result.peak_live_bytes && result.peak_live_bytes > 0);
    CHECK(result.min_limit_bytes == 0 && result.checked == 0);
  }
  CHECK_U64(count, 5);
  stow_replay_close(replay);
  stow_recording_close(r);
}

TEST(a_limit_fails_where_the_smallest_limit_says)
{
  stow_recording *r = open_data("fragmentation.pickle.gz");
  stow_replay *replay;
  stow_replay_result found = STOW_REPLAY_RESULT_INIT, result = STOW_REPLAY_RESULT_INIT;
  CHECK_OK(stow_replay_open(&replay, r, NULL));
  CHECK_OK(stow_replay_run(replay, "torch_default", STOW_REPLAY_MIN_LIMIT, &found));
  CHECK(found.min_limit_bytes >= found.peak_live_bytes);
  stow_replay_close(replay);
  for (int less = 0; less < 2; less++) {
    stow_replay_options options = STOW_REPLAY_OPTIONS_INIT;
    options.limit_bytes = found.min_limit_bytes - (less ? UINT64_C(2) << 20 : 0);
    CHECK_OK(stow_replay_open(&replay, r, &options));
    CHECK_OK(stow_replay_run(replay, "torch_default", 0, &result));
    CHECK_U64(result.finishes, !less);
    CHECK(!less || (result.failed_at_event != STOW_REPLAY_NO_EVENT && result.failed_bytes > 0));
    stow_replay_close(replay);
  }
  stow_recording_close(r);
}

TEST(pytorch_is_repeated_exactly)
{
  stow_recording *r = open_data("fragmentation.pickle.gz");
  stow_replay *replay;
  stow_replay_result result = STOW_REPLAY_RESULT_INIT;
  CHECK_OK(stow_replay_open(&replay, r, NULL));
  CHECK_OK(stow_replay_run(replay, "torch_default", STOW_REPLAY_CHECK, &result));
  CHECK(result.checked == 1 && result.segments_checked > 0 && result.addresses_checked > 0);
  CHECK_U64(result.segment_mismatches + result.address_mismatches, 0);
  CHECK_OK(stow_replay_run(replay, "bfc", STOW_REPLAY_CHECK, &result));
  CHECK_U64(result.checked, 0); /* this policy did not make these segments */
  stow_replay_close(replay);
  stow_recording_close(r);
}

TEST(wrong_options_are_refused)
{
  stow_recording *r = open_data("fragmentation.pickle.gz");
  stow_replay *replay;
  stow_replay_options options = STOW_REPLAY_OPTIONS_INIT;
  options.device_bytes = options.limit_bytes = UINT64_C(8) << 30;
  CHECK_STATUS(stow_replay_open(&replay, r, &options), STOW_ERR_INVALID);
  CHECK(replay == NULL);
  options.limit_bytes = 0, options.device_bytes = 1;
  CHECK_STATUS(stow_replay_open(&replay, r, &options), STOW_ERR_INVALID);
  options.device_bytes = 0, options.settings = "no_such_setting:1";
  CHECK_STATUS(stow_replay_open(&replay, r, &options), STOW_ERR_INVALID);
  CHECK_OK(stow_replay_open(&replay, r, NULL));
  stow_replay_result result = STOW_REPLAY_RESULT_INIT;
  CHECK_STATUS(stow_replay_run(replay, "no_such_policy", 0, &result), STOW_ERR_NOT_FOUND);
  CHECK_STATUS(stow_replay_run(replay, "bfc", 1u << 31, &result), STOW_ERR_UNSUPPORTED);
  result.struct_bytes = 0;
  CHECK_STATUS(stow_replay_run(replay, "bfc", 0, &result), STOW_ERR_INVALID);
  stow_replay_close(replay);
  stow_recording_close(r);
}

TEST_MAIN
