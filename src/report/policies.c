/* The policy comparison: the same requests through every allocator policy.
 *
 * Without a limit, so that each runs to the end and shows what it would reserve. The smallest limit
 * at which each still finishes takes many replays; it is looked for only where the trace is short
 * enough that nobody waits for it, and not given otherwise. */
#include <stdlib.h>
#include <sys/resource.h>

#include "report/report.h"

#define POLICIES_MAX    8
#define MIN_LIMIT_STEPS 20000 /* in a trace: above, only the plain replays are made */

/* The heap of the stowage policy reserves more addresses than ulimit -v usually leaves. The report
 * is made without it then, and says so. Any other failure is the report's own. */
static bool lacks_address_space(const policy_ops *which, stow_status status) {
  struct rlimit limit;
  return status != STOW_OK && which == &policy_stowage && getrlimit(RLIMIT_AS, &limit) == 0 &&
         limit.rlim_cur != RLIM_INFINITY;
}

static stow_status replay_each(report *r, const steps *s) {
  replay_options options = REPLAY_OPTIONS_INIT;
  steps_settings(&options.settings, s->source);
  for (size_t i = 0; i < POLICIES_MAX && policy_at(i) != NULL; i++) {
    replay_result *result = &r->policies[r->policy_count];
    stow_status status = replay_run(result, s, policy_at(i), &options);
    if (status == STOW_OK && s->count <= MIN_LIMIT_STEPS)
      status = replay_min_limit(result, s, policy_at(i), &options);
    if (lacks_address_space(policy_at(i), status)) {
      r->policy_missing = policy_at(i);
      continue;
    }
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
