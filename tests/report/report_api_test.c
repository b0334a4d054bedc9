/* The public report API: text, JSON, a page and a file; two recordings side by side. */
#include "harness.h"

#include <sys/stat.h>

#include <stowage/report.h>

TEST(a_report_is_text_json_and_a_page)
{
  stow_recording *r;
  stow_report *report;
  const char *text, *json, *html, *again;
  CHECK_OK(stow_recording_open(&r, harness_data("fragmentation.pickle.gz"), NULL));
  CHECK_OK(stow_report_open(&report, r, NULL));
  CHECK_OK(stow_report_text(report, &text));
  CHECK_OK(stow_report_json(report, &json));
  CHECK_OK(stow_report_html(report, &html));
  CHECK(strstr(text, "fragmentation.pickle.gz") != NULL && strchr(text, '\033') == NULL);
  CHECK(strstr(json, "peak_live_bytes") != NULL);
  CHECK(strstr(html, "</html>") != NULL);
  CHECK_OK(stow_report_html(report, &again));
  CHECK(again == html); /* rendered once, valid until the report is closed */
  stow_report_close(report);
  stow_recording_close(r);
}

TEST(a_page_is_saved_whole)
{
  stow_recording *r, *other;
  stow_report *report;
  const char *html;
  char path[4096];
  struct stat info;
  CHECK_OK(stow_recording_open(&r, harness_data("fragmentation.pickle.gz"), NULL));
  CHECK_OK(stow_recording_open(&other, harness_data("one_spike.pickle.gz"), NULL));
  CHECK_OK(stow_report_open(&report, r, other));
  CHECK_OK(stow_report_html(report, &html));
  snprintf(path, sizeof path, "%s/report.html", harness_folder());
  CHECK_OK(stow_report_save(report, path));
  CHECK(stat(path, &info) == 0 && (size_t)info.st_size == strlen(html));
  snprintf(path, sizeof path, "%s/none/report.html", harness_folder());
  CHECK_STATUS(stow_report_save(report, path), STOW_ERR_IO);
  CHECK_STATUS(stow_report_save(report, NULL), STOW_ERR_INVALID);
  stow_report_close(report);
  stow_recording_close(other);
  stow_recording_close(r);
  CHECK_STATUS(stow_report_open(&report, NULL, NULL), STOW_ERR_INVALID);
  CHECK(report == NULL);
}

TEST_MAIN
