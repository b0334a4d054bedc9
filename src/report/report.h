/* Report: everything a trace says about one device, ready to be shown.
 *
 *   report r;
 *   report_build(&r, &recording, "run.pickle.gz", device);
 *   report_text(&r, 1, &out);  or  report_json(…)  or  report_html(…)
 *   report_free(&r);
 *
 * Two reports (two runs, or two devices of one) are shown side by side. Nothing here reads or
 * writes files, and everything shown is computed here or by the page from what is here. */
#ifndef REPORT_REPORT_H
#define REPORT_REPORT_H

#include "base/buffer.h"
#include "replay/census.h"
#include "replay/iteration.h"
#include "replay/replay.h"
#include "replay/site.h"
#include "replay/timeline.h"

/* One out-of-memory: who held what then. */
typedef struct failure {
  uint32_t tick;
  uint64_t asked_bytes;
  uint64_t device_free_bytes; /* as the driver told the program; 0 if it did not */
  uint64_t live_bytes, reserved_bytes, hole_bytes, largest_hole_bytes;
} failure;

#define REPORT_FAILURES_MAX 1000 /* looked at closely; more are only counted */

typedef struct report {
  const char *file; /* what it was read from, for people */
  timeline time;
  site_table sites;
  iterations rounds;
  group_by group;
  census peak; /* at the tick with most live bytes */
  uint64_t peak_reserved_bytes;
  uint32_t peak_reserved_tick;
  uint64_t end_live_bytes;
  uint64_t alloc_count, free_count, failure_count;
  failure *failures;
  uint32_t failures_kept;
  replay_result *policies; /* from report_replay */
  /* A policy that could not be replayed under a limit on address space (ulimit -v); NULL none. */
  const policy_ops *policy_missing;
  uint32_t policy_count;
} report;

/* `file` and `source` must outlive it. Free with report_free in any case. */
stow_status report_build(report *r, const recording *source, const char *file, uint16_t device);
/* Adds the policy comparison: the requests replayed through each policy, without a limit. */
stow_status report_replay(report *r);
void report_free(report *r);

/* The essentials for a terminal; with two or more, each in turn and then the differences. `bold`:
 * with escape sequences. */
stow_status report_text(const report *all, size_t count, buffer *out, bool bold);
stow_status report_json(const report *all, size_t count, buffer *out);
/* One self-contained page. */
stow_status report_html(const report *all, size_t count, buffer *out);

#endif
