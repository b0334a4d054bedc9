/* The public report (stowage/report.h) over report_set.h. Each form is rendered once. */
#include <stowage/report.h>

#include <stdlib.h>

#include "base/status.h"
#include "recordings/recording_api.h"
#include "report/report_set.h"

struct stow_report {
  report_set set;
  buffer text, json, html; /* empty: not rendered yet */
};

stow_status stow_report_open(stow_report **out, const stow_recording *first,
                             const stow_recording *other) {
  if (out == NULL) return stow_fail(STOW_ERR_INVALID, "stow_report_open: report is NULL");
  *out = NULL;
  if (first == NULL) return stow_fail(STOW_ERR_INVALID, "stow_report_open: recording is NULL");
  stow_report *made = calloc(1, sizeof *made);
  if (made == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "stow_report_open: no host memory");
  made->text = made->json = made->html = BUFFER_INIT;
  stow_status status = report_set_add(&made->set, &first->data, first->path);
  if (status == STOW_OK && other != NULL)
    status = report_set_add(&made->set, &other->data, other->path);
  if (status != STOW_OK) {
    stow_report_close(made);
    return status;
  }
  *out = made;
  return STOW_OK;
}

void stow_report_close(stow_report *r) {
  if (r == NULL) return;
  report_set_free(&r->set);
  buffer_free(&r->text);
  buffer_free(&r->json);
  buffer_free(&r->html);
  free(r);
}

static stow_status text_plain(const report *all, size_t count, buffer *out) {
  return report_text(all, count, out, false);
}

static stow_status render(const report_set *set, buffer *into, const char **text,
                          stow_status (*form)(const report *, size_t, buffer *)) {
  stow_status status = into->length > 0 ? STOW_OK : form(set->list, set->count, into);
  if (status != STOW_OK) { /* the next call tries again */
    buffer_free(into);
    *into = BUFFER_INIT;
  }
  *text = status == STOW_OK && into->data != NULL ? into->data : "";
  return status;
}

stow_status stow_report_text(stow_report *r, const char **text) {
  if (r == NULL || text == NULL)
    return stow_fail(STOW_ERR_INVALID, "stow_report_text: report or text is NULL");
  return render(&r->set, &r->text, text, text_plain);
}

stow_status stow_report_json(stow_report *r, const char **text) {
  if (r == NULL || text == NULL)
    return stow_fail(STOW_ERR_INVALID, "stow_report_json: report or text is NULL");
  return render(&r->set, &r->json, text, report_json);
}

stow_status stow_report_html(stow_report *r, const char **text) {
  if (r == NULL || text == NULL)
    return stow_fail(STOW_ERR_INVALID, "stow_report_html: report or text is NULL");
  return render(&r->set, &r->html, text, report_html);
}

stow_status stow_report_save(stow_report *r, const char *path) {
  const char *page;
  if (r == NULL || path == NULL)
    return stow_fail(STOW_ERR_INVALID, "stow_report_save: report or path is NULL");
  STOW_TRY(stow_report_html(r, &page));
  return report_save(path, &r->html);
}
