/* The policy comparison: the same requests through every allocator policy.
 *
 * Without a limit, so that each runs to the end and shows what it would reserve. The smallest limit
 * at which each still finishes takes many replays; it is looked for only where the trace is short
 * enough that nobody waits for it, and not given otherwise. */
#include <stdlib.h>

#include "report/report.h"

#define POLICIES_MAX    8
#define MIN_LIMIT_STEPS 20000 /* in a trace: above, only the plain replays are made */

static stow_status replay_each(report *r, const steps *s) {
  replay_options options = REPLAY_OPTIONS_INIT;
  steps_settings(&options.settings, s->source);
  for (size_t i = 0; i < POLICIES_MAX && policy_at(i) != NULL; i++) {
    replay_result *result = &r->policies[r->policy_count];
    stow_status status = replay_run(result, s, policy_at(i), &options);
    if (status == STOW_OK && s->count <= MIN_LIMIT_STEPS)
      status = replay_min_limit(result, s, policy_at(i), &options);
    /* Little address space (ulimit -v) is no reason to have no report. */
    if (status == STOW_ERR_HOST_MEMORY || status == STOW_ERR_STATE) continue;
    STOW_TRY(status);
    r->policy_count++;
  }
  return STOW_OK;
}

stow_status report_replay(report *r) {
  if (r->time.lifetime_count == 0) return STOW_OK;
  r->policies = calloc(POLICIES_MAX, sizeof *r->policies);
  if (r->policies == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to replay");
  steps s;
  stow_status status = steps_build(&s, r->time.source, r->time.device);
  if (status == STOW_OK) status = replay_each(r, &s);
  steps_free(&s);
  /* More streams than a replay tells apart: the rest of the report is none the worse. */
  return status == STOW_ERR_UNSUPPORTED ? STOW_OK : status;
}
