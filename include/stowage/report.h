/* Report: what a recording shows, as one HTML page, as text and as JSON; two side by side.
 *
 *   stow_report *report;
 *   stow_report_open(&report, recording, NULL);
 *   stow_report_save(report, "report.html");
 *   const char *text;
 *   stow_report_text(report, &text);
 *   stow_report_close(report);
 *
 * Threads: a report is for one thread at a time. Fork: a child may use its copy.
 * Link with -lstowage-analysis. */
#ifndef STOWAGE_REPORT_H
#define STOWAGE_REPORT_H

#include <stdint.h>

#include <stowage/recording.h>
#include <stowage/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stow_report stow_report;

/* The report of `recording`, beside that of `other` (NULL: alone). Both must stay open until the
 * report is closed. Replays every allocator policy once and explains each recording. `*report` is
 * NULL on failure. */
STOW_API stow_status stow_report_open(stow_report **report, const stow_recording *recording,
                                      const stow_recording *other);
/* NULL is fine. */
STOW_API void stow_report_close(stow_report *report);

/* The essentials for a terminal, as JSON, and as one HTML page that needs no other file. The texts
 * are UTF-8, end with a zero byte and stay valid until the report is closed. */
STOW_API stow_status stow_report_text(stow_report *report, const char **text);
STOW_API stow_status stow_report_json(stow_report *report, const char **text);
STOW_API stow_status stow_report_html(stow_report *report, const char **text);

/* Writes the page: the file is the old one or the complete new one. STOW_ERR_IO: why not. */
STOW_API stow_status stow_report_save(stow_report *report, const char *path);

#ifdef __cplusplus
}
#endif
#endif
