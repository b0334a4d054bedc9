/* Tune: finds the allocator settings that let a recorded program run in the least memory.
 *
 * Called by `stowage tune` and by the public API (stowage/tune.h). Replays each candidate and
 * searches its smallest limit. */
#ifndef REPLAY_TUNE_H
#define REPLAY_TUNE_H

#include "replay/replay_job.h"

#define TUNE_CANDIDATES 14

typedef struct tuned {
  const char *settings; /* as PYTORCH_ALLOC_CONF; "": none. Constant text */
  replay_result result; /* without a limit, or under the limit of the job */
  bool own;             /* the recording was made with these */
} tuned;

typedef struct tuning {
  tuned list[TUNE_CANDIDATES]; /* best first: finishes, smaller limit, fewer bytes, less driver time
                                */
  replay_result plain;         /* without any setting: the baseline for savings */
  uint32_t best;               /* index in `list` */
} tuning;

/* Called after each candidate; any result but STOW_OK stops the search and is returned. */
typedef stow_status (*tune_progress)(void *user, uint64_t done, uint64_t total);

stow_status tune_run(tuning *t, const replay_job *job, tune_progress progress, void *user);
/* Replays other steps of the same recording with `settings` under the limit of the job. */
stow_status tune_replay(replay_result *out, const steps *s, const replay_job *job,
                        const char *settings);
/* Computes how many bytes less `one` needs than without settings: of limit, and of reserve. Returns
 * false if unknown: the figures of a failed run end at its failure. */
bool tune_limit_saved(const tuning *t, const tuned *one, int64_t *bytes);
bool tune_reserved_saved(const tuning *t, const tuned *one, int64_t *bytes);

#endif
