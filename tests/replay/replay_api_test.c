/* The public replay API: policies, limits, and the check with PyTorch's own segments. */
#include "harness.h"

#include <stddef.h>

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

TEST(events_in_memory_are_replayed_as_from_a_file)
{
  enum { MIB = 1 << 20 };
  /* 30 MiB and 20 MiB; the first is freed, and 40 MiB does not fit into what it leaves. */
  stow_trace_record events[] = {
      {.addr = 1 << 30, .bytes = 30 * MIB},
      {.addr = 2 << 28, .bytes = 20 * MIB},
      {.addr = 1 << 30, .bytes = 30 * MIB, .kind = STOW_TRACE_FREE},
      {.addr = 1 << 30, .bytes = 40 * MIB},
  };
  stow_recording *r;
  stow_replay *replay;
  stow_replay_result result = STOW_REPLAY_RESULT_INIT;
  CHECK_OK(stow_recording_make(&r, events, 4));
  CHECK_OK(stow_replay_open(&replay, r, NULL));
  CHECK_OK(stow_replay_run(replay, "torch_default", STOW_REPLAY_MIN_LIMIT, &result));
  CHECK(result.finishes == 1);
  CHECK_U64(result.peak_live_bytes, 60 * MIB);
  CHECK_U64(result.peak_reserved_bytes, 90 * MIB);
  CHECK_U64(result.min_limit_bytes, 60 * MIB); /* the cached 30 MiB are returned first */
  stow_replay_close(replay);
  stow_recording_close(r);
  CHECK_STATUS(stow_recording_make(&r, events, 0), STOW_ERR_INVALID);
  CHECK(r == NULL);
  CHECK_STATUS(stow_recording_make(NULL, events, 4), STOW_ERR_INVALID);
  CHECK_STATUS(stow_recording_make(&r, NULL, 4), STOW_ERR_INVALID);
  events[1].stack = 1;
  CHECK_STATUS(stow_recording_make(&r, events, 4), STOW_ERR_INVALID);
  events[1].stack = 0;
  events[3].kind = STOW_TRACE_LAUNCH;
  CHECK_STATUS(stow_recording_make(&r, events, 4), STOW_ERR_INVALID);
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

TEST(a_smaller_device_spills_and_a_step_takes_longer)
{
  stow_recording *r = open_data("touches/gan.stow");
  stow_replay_spill_result small = STOW_REPLAY_SPILL_RESULT_INIT, large = small;
  CHECK_OK(stow_replay_spill(r, UINT64_C(9) << 30, &small));
  CHECK(!small.fits && small.excess_bytes > 0 && small.in_bytes > 0 && small.out_bytes > 0);
  CHECK(small.step_ns > small.bare_ns && small.floor_ns > small.bare_ns);
  CHECK(small.capacity_bytes < UINT64_C(9) << 30 && small.peak_live_bytes > small.capacity_bytes);
  CHECK_OK(stow_replay_spill(r, UINT64_C(40) << 30, &large));
  CHECK(large.fits && large.excess_bytes == 0 && large.step_ns <= large.bare_ns * 101 / 100);
  CHECK_U64(large.bare_ns, small.bare_ns);
  /* A caller with an older header has a shorter struct: nothing past its end is written. */
  stow_replay_spill_result old = {.struct_bytes = offsetof(stow_replay_spill_result, floor_ns)};
  CHECK_OK(stow_replay_spill(r, UINT64_C(9) << 30, &old));
  CHECK_U64(old.step_ns, small.step_ns);
  CHECK_U64(old.floor_ns + old.in_bytes, 0);
  CHECK_STATUS(stow_replay_spill(r, 0, &small), STOW_ERR_INVALID);
  CHECK_STATUS(stow_replay_spill(r, UINT64_C(512) << 20, &small), STOW_ERR_INVALID);
  CHECK_STATUS(stow_replay_spill(NULL, UINT64_C(9) << 30, &small), STOW_ERR_INVALID);
  CHECK_STATUS(stow_replay_spill(r, UINT64_C(9) << 30, NULL), STOW_ERR_INVALID);
  stow_recording_close(r);
  r = open_data("fragmentation.pickle.gz");
  CHECK_STATUS(stow_replay_spill(r, UINT64_C(9) << 30, &small), STOW_ERR_NOT_FOUND);
  CHECK_MESSAGE("--touches");
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
