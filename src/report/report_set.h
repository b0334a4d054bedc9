/* Report set: the reports of one recording, or of two side by side; one report per device.
 *
 * Called by `stowage report` and by the public API (stowage/report.h). */
#ifndef REPORT_REPORT_SET_H
#define REPORT_REPORT_SET_H

#include "report/report.h"

#define REPORT_SET_RECORDINGS_MAX 2
#define REPORT_SET_DEVICES_MAX    16 /* of one recording; more are counted and left out */

typedef struct report_set {
  report list[REPORT_SET_RECORDINGS_MAX * REPORT_SET_DEVICES_MAX];
  size_t count;
  char *names[REPORT_SET_RECORDINGS_MAX]; /* file names, for people */
  size_t recording_count;
  size_t devices_left_out;
} report_set;

/* Adds every device of a recording that was read from `path`; `source` must outlive the set. At
 * most REPORT_SET_RECORDINGS_MAX times. Free the set after a failure too. */
stow_status report_set_add(report_set *s, const recording *source, const char *path);
void report_set_free(report_set *s);

/* Replaces the file `path` with the page: it is the old file or the complete new one. */
stow_status report_save(const char *path, const buffer *page);

#endif
