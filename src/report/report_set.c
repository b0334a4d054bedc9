/* Report set: one report per device, and the page as a file (report_set.h). */
#include "report/report_set.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "files/outfile.h"

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

stow_status report_set_add(report_set *s, const recording *source, const char *path) {
  if (s->recording_count == REPORT_SET_RECORDINGS_MAX)
    return stow_fail(STOW_ERR_INVALID, "report: more than %d recordings side by side",
                     REPORT_SET_RECORDINGS_MAX);
  char *name = strdup(strcmp(path, "-") == 0 ? "standard input" : base_name(path));
  if (name == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "report: no host memory");
  s->names[s->recording_count++] = name;
  uint16_t devices[REPORT_SET_DEVICES_MAX + 1];
  size_t count = timeline_devices(source, devices, REPORT_SET_DEVICES_MAX + 1);
  if (count > REPORT_SET_DEVICES_MAX) {
    s->devices_left_out += count - REPORT_SET_DEVICES_MAX;
    count = REPORT_SET_DEVICES_MAX;
  }
  for (size_t i = 0; i < count; i++) {
    report *next = &s->list[s->count++];
    STOW_TRY(report_build(next, source, name, devices[i]));
    STOW_TRY(report_replay(next));
  }
  return STOW_OK;
}

void report_set_free(report_set *s) {
  for (size_t i = 0; i < s->count; i++) report_free(&s->list[i]);
  for (size_t i = 0; i < s->recording_count; i++) free(s->names[i]);
}

stow_status report_save(const char *path, const buffer *page) {
  outfile out;
  STOW_TRY(outfile_open(&out, path));
  stow_status status = outfile_write(&out, page->data, page->length);
  if (status == STOW_OK) return outfile_commit(&out);
  outfile_abandon(&out);
  return status;
}
