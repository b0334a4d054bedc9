/* Replay: runs a recording through a policy, without the program.
 *
 * `stowage replay`, `stowage tune` and the report call it. The same steps and options always give
 * the same result. torch_default and torch_expandable place every block where PyTorch did
 * (replay_check counts the exceptions). */
#ifndef REPLAY_REPLAY_H
#define REPLAY_REPLAY_H

#include "replay/steps.h"

#define REPLAY_NO_EVENT UINT64_MAX

typedef struct replay_options {
  uint64_t limit_bytes;    /* POLICY_NO_LIMIT: none */
  bool limit_in_framework; /* see policy_options */
  policy_settings settings;
  uint64_t search_steps; /* replay_min_limit: steps it may replay before it bisects; 0: 10^8 */
} replay_options;

#define REPLAY_OPTIONS_INIT                                                                        \
  ((replay_options){.limit_bytes = POLICY_NO_LIMIT,                                                \
                    .limit_in_framework = true,                                                    \
                    .settings = POLICY_SETTINGS_INIT})

typedef struct replay_result {
  const policy_ops *policy;
  bool finishes;
  uint64_t failed_at_event; /* index in the recording; REPLAY_NO_EVENT if it finishes */
  uint64_t failed_bytes;    /* the request that failed; above POLICY_REQUEST_MAX no device has it */
  uint64_t peak_live_bytes; /* up to the failure */
  policy_stats stats;
  uint64_t lower_bound_bytes; /* planned: no layout can need less; 0 otherwise */
  const char *planned_by;     /* planned: the order of the best layout */
  /* Set by replay_min_limit. */
  uint64_t min_limit_bytes; /* 0: not searched, or not found */
  bool min_limit_proved;    /* every 2 MiB step above it was shown to finish; otherwise only those
                             * within min_limit_window_bytes above it and those from the policy's
                             * unlimited peak up */
  uint64_t min_limit_window_bytes;
  uint32_t min_limit_replays;
  /* Set by replay_check. */
  bool checked;
  uint64_t segment_mismatches, address_mismatches, segments_checked, addresses_checked;
} replay_result;

/* Replays once, or makes a plan (policy_planned, plan.h). Stops at the first request that does not
 * fit, which is a result, not an error. */
stow_status replay_run(replay_result *out, const steps *s, const policy_ops *which,
                       const replay_options *options);

/* Finds the smallest limit from which every 2 MiB step upward finishes and stores it in
 * out->min_limit_…; leaves the rest of `out` unchanged. More memory does not always help, so a
 * binary search would be wrong: see replay_limit.c. */
stow_status replay_min_limit(replay_result *out, const steps *s, const policy_ops *which,
                             const replay_options *options);

/* Replays with the recording as the driver: segments get the recorded addresses and are refused
 * when the recording shows it, and each segment event and block address is compared. With a limit
 * in `options` the policy itself decides when it is out of memory. Only for policies with PyTorch's
 * segments. Continues after an out-of-memory, as the program did. */
stow_status replay_check(replay_result *out, const steps *s, const policy_ops *which,
                         const replay_options *options);

#endif
