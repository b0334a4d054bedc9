/* Report set: the reports of one recording or of several side by side (runs, ranks); one report per
 * device.
 *
 * Called by `stowage report` and by the public API (stowage/report.h). */
#ifndef REPORT_REPORT_SET_H
#define REPORT_REPORT_SET_H

#include "report/report.h"

#define REPORT_SET_RECORDINGS_MAX 16
#define REPORT_SET_DEVICES_MAX    16 /* per recording; further devices are counted and left out */
#define REPORT_SET_REPORTS_MAX    64

/* One recording of the set, and what else is known about it. */
typedef struct report_source {
  char *name;      /* for people: the file, or "rank 3" */
  buffer why;      /* the explanation as JSON; empty: none */
  buffer headline; /* its first sentence */
  host_curve host;
  buffer profile; /* memory by line as JSON; empty: none */
  recording *own; /* read by report_set_add_run; NULL: the recording belongs to the caller */
} report_source;

typedef struct report_set {
  report list[REPORT_SET_REPORTS_MAX];
  size_t count;
  report_source sources[REPORT_SET_RECORDINGS_MAX];
  size_t recording_count;
  size_t devices_left_out, traces_left_out;
} report_set;

/* Adds every device of a recording that was read from `path`, with an explanation of the recording;
 * `source` must outlive the set. At most REPORT_SET_RECORDINGS_MAX times. Free the set after a
 * failure too. */
stow_status report_set_add(report_set *s, const recording *source, const char *path);
/* Adds the traces in the folder of a run of `stowage run`: those of its processes, rank by rank,
 * with the explanation of the run and its host memory. A run without a trace is shown by its host
 * memory. STOW_ERR_NOT_FOUND: it is not the folder of a run, or the run left neither. */
stow_status report_set_add_run(report_set *s, const char *folder);
void report_set_free(report_set *s);

/* Replaces the file `path` with the page: it is the old file or the complete new one. */
stow_status report_save(const char *path, const buffer *page);

/* ---- for report_run.c ---- */

/* Adds the devices of `source`. Takes over `more`, whose name is set, also on failure. */
stow_status report_set_put(report_set *s, const recording *source, report_source *more);
void report_source_free(report_source *more);

#endif
