/* Replay: a recording run through a policy, without the program.
 *
 * `stowage replay`, `stowage tune` and the report call it. It guarantees that the same steps and
 * options always give the same result, and that torch_default and torch_expandable put every block
 * where PyTorch put it (replay_check counts where they would not). */
#ifndef REPLAY_REPLAY_H
#define REPLAY_REPLAY_H

#include "replay/steps.h"

#define REPLAY_NO_EVENT UINT64_MAX

typedef struct replay_options {
  uint64_t limit_bytes; /* POLICY_NO_LIMIT: none */
  bool limit_is_told;   /* see policy_options */
  policy_settings settings;
  uint64_t search_steps; /* replay_min_limit: steps it may replay before it bisects; 0: 10^8 */
} replay_options;

#define REPLAY_OPTIONS_INIT                                                                        \
  ((replay_options){                                                                               \
      .limit_bytes = POLICY_NO_LIMIT, .limit_is_told = true, .settings = POLICY_SETTINGS_INIT})

typedef struct replay_result {
  const policy_ops *policy;
  bool finishes;
  uint64_t failed_at_event; /* index in the recording; REPLAY_NO_EVENT if it finishes */
  uint64_t failed_bytes;    /* what was asked there; above POLICY_REQUEST_MAX no device has it */
  uint64_t peak_live_bytes; /* as far as it came */
  policy_stats stats;
  /* From replay_min_limit. */
  uint64_t min_limit_bytes; /* 0: not looked for, or none was found */
  bool min_limit_proved;    /* every 2 MiB step from it upward was shown to finish; otherwise those
                               within min_limit_window_bytes above it were, and those at and above the
                               policy's unlimited peak */
  uint64_t min_limit_window_bytes;
  uint32_t min_limit_replays;
  /* From replay_check. */
  bool checked;
  uint64_t segment_mismatches, address_mismatches, segments_checked, addresses_checked;
} replay_result;

/* One replay. Stops at the first request that does not fit, which is a result, not an error. */
stow_status replay_run(replay_result *out, const steps *s, const policy_ops *which,
                       const replay_options *options);

/* The smallest limit from which every 2 MiB step upward finishes, into out->min_limit_…; the rest
 * of `out` is left alone. Finishing is not monotonic in the limit, so a plain binary search would
 * lie: see replay_limit.c for what is done instead. */
stow_status replay_min_limit(replay_result *out, const steps *s, const policy_ops *which,
                             const replay_options *options);

/* A replay with the driver played by the recording: segments come at the addresses and are refused
 * at the moments it tells, and each segment event and block address is compared. With a limit in
 * `options` the policy itself decides when it is out of memory. Only for policies that have
 * PyTorch's segments; goes on after an out-of-memory, as the program did. */
stow_status replay_check(replay_result *out, const steps *s, const policy_ops *which,
                         const replay_options *options);

#endif
