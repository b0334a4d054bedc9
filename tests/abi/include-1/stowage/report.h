/* Report: one recording, or two side by side, as an HTML page, as text and as JSON.
 *
 *   stow_report *report;
 *   stow_report_open(&report, recording, NULL);
 *   stow_report_save(report, "report.html");
 *   const char *text;
 *   stow_report_text(report, &text);
 *   stow_report_close(report);
 *
 * Threads: a report is for one thread at a time. Fork: a child may use its copy. Link with
 * -lstowage-analysis. */
#ifndef STOWAGE_REPORT_H
#define STOWAGE_REPORT_H

#include <stdint.h>

#include <stowage/recording.h>
#include <stowage/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stow_report stow_report;

/* Makes the report of `recording`, side by side with `other` if it is not NULL. Both must stay open
 * until the report is closed. Replays every allocator policy once and explains each recording.
 * `*report` is NULL on failure. */
STOW_API stow_status stow_report_open(stow_report **report, const stow_recording *recording,
                                      const stow_recording *other);
/* Closes a report; NULL is allowed. */
STOW_API void stow_report_close(stow_report *report);

/* Return the report as a short text for a terminal, as JSON, and as one HTML page that needs no
 * other file. The texts are UTF-8, end with a zero byte and stay valid until the report is
 * closed. */
STOW_API stow_status stow_report_text(stow_report *report, const char **text);
STOW_API stow_status stow_report_json(stow_report *report, const char **text);
STOW_API stow_status stow_report_html(stow_report *report, const char **text);

/* Writes the HTML page. On failure the old file stays and the message says why. */
STOW_API stow_status stow_report_save(stow_report *report, const char *path);

#ifdef __cplusplus
}
#endif
#endif
