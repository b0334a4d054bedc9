/* Report set: one report per device, and the page as a file (report_set.h). */
#include "report/report_set.h"

#include <stdlib.h>
#include <string.h>

#include "advise/explain.h"
#include "base/status.h"
#include "files/outfile.h"

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

void report_source_free(report_source *more) {
  free(more->name);
  buffer_free(&more->why);
  buffer_free(&more->headline);
  free(more->host.points);
  buffer_free(&more->profile);
  if (more->own != NULL) recording_free(more->own);
  free(more->own);
  *more = (report_source){0};
}

stow_status report_set_put(report_set *s, const recording *source, report_source *more) {
  if (s->recording_count == REPORT_SET_RECORDINGS_MAX) {
    report_source_free(more);
    return stow_fail(STOW_ERR_INVALID, "report: at most %d traces can be shown side by side",
                     REPORT_SET_RECORDINGS_MAX);
  }
  report_source *kept = &s->sources[s->recording_count++];
  *kept = *more;
  *more = (report_source){0};
  uint16_t devices[REPORT_SET_DEVICES_MAX + 1];
  size_t count = timeline_devices(source, devices, REPORT_SET_DEVICES_MAX + 1), most = count;
  if (most > REPORT_SET_DEVICES_MAX) most = REPORT_SET_DEVICES_MAX;
  if (most > REPORT_SET_REPORTS_MAX - s->count) most = REPORT_SET_REPORTS_MAX - s->count;
  s->devices_left_out += count - most;
  for (size_t i = 0; i < most; i++) {
    report *next = &s->list[s->count++];
    STOW_TRY(report_build(next, source, kept->name, devices[i]));
    next->why = &kept->why;
    next->headline = &kept->headline;
    next->host = &kept->host;
    next->profile = &kept->profile;
    STOW_TRY(report_replay(next));
  }
  return STOW_OK;
}

/* Fails as explain does: a report whose explanation is missing would look complete. */
static stow_status explain(buffer *why, const recording *source) {
  explanation x = {0};
  *why = BUFFER_INIT;
  if (source->event_count == 0 && source->error_id == 0) return STOW_OK;
  stow_status status = explain_recording(&x, source, NULL);
  if (status == STOW_OK) status = explanation_json(&x, why);
  explanation_free(&x);
  return status;
}

stow_status report_set_add(report_set *s, const recording *source, const char *path) {
  report_source more = {.name = strdup(strcmp(path, "-") == 0 ? "standard input" : base_name(path)),
                        .why = BUFFER_INIT,
                        .headline = BUFFER_INIT,
                        .profile = BUFFER_INIT};
  if (more.name == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "report: no host memory");
  stow_status status = explain(&more.why, source);
  if (status == STOW_OK) return report_set_put(s, source, &more);
  report_source_free(&more);
  return status;
}

void report_set_free(report_set *s) {
  for (size_t i = 0; i < s->count; i++) report_free(&s->list[i]);
  for (size_t i = 0; i < s->recording_count; i++) report_source_free(&s->sources[i]);
}

stow_status report_save(const char *path, const buffer *page) {
  outfile out;
  STOW_TRY(outfile_open(&out, path));
  stow_status status = outfile_write(&out, page->data, page->length);
  if (status == STOW_OK) return outfile_commit(&out);
  outfile_abandon(&out);
  return status;
}
