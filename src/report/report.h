/* Report: everything a trace shows about one device.
 *
 *   report r;
 *   report_build(&r, &recording, "run.pickle.gz", device);
 *   report_text(&r, 1, &out);  or  report_json(…)  or  report_html(…)
 *   report_free(&r);
 *
 * Several reports (runs, ranks, or the devices of one trace) are shown side by side. Nothing here
 * reads or writes files, and everything shown is computed here or by the page from what is here. */
#ifndef REPORT_REPORT_H
#define REPORT_REPORT_H

#include "base/buffer.h"
#include "replay/census.h"
#include "replay/iteration.h"
#include "replay/replay.h"
#include "replay/site.h"
#include "replay/timeline.h"

/* One out-of-memory error, and who held the memory then. */
typedef struct failure {
  uint32_t tick;
  uint64_t asked_bytes;
  uint64_t device_free_bytes; /* as the driver reported it to the program; 0: not reported */
  uint64_t live_bytes, reserved_bytes, hole_bytes, largest_hole_bytes;
} failure;

/* Host memory of the run that made a trace, as sampled by `stowage run`. */
typedef struct host_point {
  uint64_t wall_ns; /* since 1970 */
  uint64_t bytes;
} host_point;

typedef struct host_curve {
  host_point *points; /* ascending */
  size_t count;
  uint64_t limit_bytes, peak_bytes; /* 0: not known */
} host_curve;

#define REPORT_FAILURES_MAX 1000 /* examined in detail; more are only counted */

typedef struct report {
  const char *file; /* name of the source, for display */
  timeline time;
  site_table sites;
  iterations iterations;
  group_by group;
  census peak; /* at the tick with most live bytes */
  uint64_t peak_reserved_bytes;
  uint32_t peak_reserved_tick;
  uint64_t end_live_bytes;
  uint64_t alloc_count, free_count, failure_count;
  failure *failures;
  uint32_t failures_kept;
  replay_result *policies; /* from report_replay */
  /* A policy that was not replayed because address space is limited (ulimit -v); NULL: none. */
  const policy_ops *policy_missing;
  uint32_t policy_count;
  /* Set by report_set.h and owned by it; NULL if there is none. */
  const buffer *why;      /* the explanation, as explanation_json writes it */
  const buffer *headline; /* its first sentence */
  const host_curve *host;
  const buffer *profile; /* memory by line, as line_profile_page writes it */
} report;

/* Builds a report. `file` and `source` must outlive it. Call report_free even after an error. */
stow_status report_build(report *r, const recording *source, const char *file, uint16_t device);
/* Adds the policy comparison: the requests replayed through each policy, without a limit. */
stow_status report_replay(report *r);
/* Returns the wall time of the device's first event in nanoseconds since 1970, or 0 if the
 * recording does not have it. */
uint64_t report_wall_start_ns(const report *r);
void report_free(report *r);

/* Writes a summary for a terminal; for two or more reports, each in turn and then the differences.
 * `bold` adds escape sequences. */
stow_status report_text(const report *all, size_t count, buffer *out, bool bold);
stow_status report_json(const report *all, size_t count, buffer *out);
/* Writes one self-contained page. */
stow_status report_html(const report *all, size_t count, buffer *out);

#endif
