/* Replay job: a recording prepared for any number of replays under one limit.
 *
 *   replay_job job;
 *   replay_job_open(&job, &recording, &options);
 *   replay_job_run(&job, policy_find("torch_default"), REPLAY_MIN_LIMIT, &result);
 *   replay_job_close(&job);
 *
 * Called by `stowage replay`, `stowage tune` and the public API (stowage/replay.h). */
#ifndef REPLAY_REPLAY_JOB_H
#define REPLAY_REPLAY_JOB_H

#include "replay/replay.h"

/* Device memory that the allocator cannot use: the CUDA context and loaded kernels. Measured on an
 * H200 (driver 580, PyTorch 2.11): a process used 15.62 GiB while its allocator had reserved
 * 14.955. */
#define REPLAY_CONTEXT_BYTES (UINT64_C(680) << 20)

typedef struct replay_job_options {
  uint64_t device_bytes; /* a device of this size, minus REPLAY_CONTEXT_BYTES; 0: any */
  uint64_t limit_bytes;  /* limit on the allocator's reserve; 0: none. Not together with
                          * device_bytes */
  const char *settings;  /* override the recording's own, as in PYTORCH_ALLOC_CONF; NULL: none */
} replay_job_options;

typedef struct replay_job {
  const recording *record;
  steps steps;
  replay_options options;
  uint64_t device_bytes;
} replay_job;

/* Checks only the options, so that a mistake is reported before a long read. */
stow_status replay_job_check(const replay_job_options *given);
/* Prepares a job. `record` must outlive it. `name` is for messages. STOW_ERR_INVALID: wrong
 * options, or a recording without allocations. Close the job after a failure too. */
stow_status replay_job_open(replay_job *job, const recording *record, const char *name,
                            const replay_job_options *given);
void replay_job_close(replay_job *job);

/* Additional work for replay_job_run. */
#define REPLAY_MIN_LIMIT 1u /* find the smallest limit that finishes */
#define REPLAY_CHECK     2u /* compare with the recorded segments, if `which` made them */

stow_status replay_job_run(const replay_job *job, const policy_ops *which, unsigned flags,
                           replay_result *result);
/* Finds a policy by name. STOW_ERR_NOT_FOUND if there is none; the message lists all. */
stow_status replay_policy(const policy_ops **which, const char *name);

#endif
