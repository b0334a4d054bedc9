/* stowage report: what a trace says, as one HTML page, as text or as JSON; two traces side by side.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/size.h>

#include "base/status.h"
#include "cli/losses.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "files/outfile.h"
#include "recordings/recording_file.h"
#include "report/report.h"

#define PAGE            "report.html"
#define TRACES_MAX      2
#define DEVICES_MAX     16                  /* of one trace; more are not shown, and that is said */
#define RECORDING_BYTES (UINT64_C(8) << 30) /* in memory, each: about 100 million events */

typedef struct reports {
  recording recordings[TRACES_MAX];
  int recording_count;
  report list[TRACES_MAX * DEVICES_MAX];
  size_t count;
} reports;

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

static stow_status read_trace(reports *all, const char *path) {
  recording *r = &all->recordings[all->recording_count++];
  recording_init(r, RECORDING_BYTES);
  STOW_TRY(recording_read(r, path, KIND_AUTO, NULL));
  losses_warn(r, path);
  uint16_t devices[DEVICES_MAX + 1];
  size_t count = timeline_devices(r, devices, DEVICES_MAX + 1);
  if (count > DEVICES_MAX) {
    output_error("stowage report: %s: only the first %d devices are shown\n", output_name(path),
                 DEVICES_MAX);
    count = DEVICES_MAX;
  }
  const char *name = strcmp(path, "-") == 0 ? "standard input" : base_name(path);
  for (size_t i = 0; i < count; i++) {
    report *next = &all->list[all->count++];
    STOW_TRY(report_build(next, r, name, devices[i]));
    STOW_TRY(report_replay(next));
  }
  return STOW_OK;
}

static void reports_free(reports *all) {
  for (size_t i = 0; i < all->count; i++) report_free(&all->list[i]);
  for (int i = 0; i < all->recording_count; i++) recording_free(&all->recordings[i]);
}

static stow_status replace_file(const char *path, const buffer *b) {
  outfile out;
  STOW_TRY(outfile_open(&out, path));
  stow_status status = outfile_write(&out, b->data, b->length);
  if (status == STOW_OK) return outfile_commit(&out);
  outfile_abandon(&out);
  return status;
}

static stow_status write_page(const reports *all, const char *path) {
  buffer page = BUFFER_INIT;
  stow_status status = report_html(all->list, all->count, &page);
  if (status == STOW_OK && strcmp(path, "-") == 0) return output_buffer(&page);
  if (status == STOW_OK) status = replace_file(path, &page);
  if (status == STOW_OK) {
    char size[STOW_SIZE_TEXT_MAX];
    output_error("%s: %s; open it in a browser, nothing else is needed\n", output_name(path),
                 stow_size_format(size, page.length));
  }
  buffer_free(&page);
  return status;
}

static stow_status show(const reports *all, const verb_call *call) {
  bool text = verb_flag(call, "text"), facts = verb_flag(call, "json");
  const char *path = verb_value(call, "output");
  if (path != NULL || (!text && !facts)) STOW_TRY(write_page(all, path != NULL ? path : PAGE));
  if (!text && !facts) return STOW_OK;
  buffer out = BUFFER_INIT;
  stow_status status = facts ? report_json(all->list, all->count, &out)
                             : report_text(all->list, all->count, &out, output_color());
  if (status == STOW_OK) return output_buffer(&out);
  buffer_free(&out);
  return status;
}

static int run(verb_call *call) {
  if (verb_flag(call, "text") && verb_flag(call, "json"))
    return verb_usage(call, "--text and --json both go to standard output; choose one");
  const char *path = verb_value(call, "output");
  if (path != NULL && strcmp(path, "-") == 0 &&
      (verb_flag(call, "text") || verb_flag(call, "json")))
    return verb_usage(call, "--output - and --%s both go to standard output; choose one",
                      verb_flag(call, "text") ? "text" : "json");
  stow_status status = STOW_OK;
  if (path != NULL || (!verb_flag(call, "text") && !verb_flag(call, "json")))
    for (int i = 0; i < call->operand_count && status == STOW_OK; i++)
      status = outfile_check_input(path != NULL ? path : PAGE, call->operands[i]);
  reports *all = calloc(1, sizeof *all);
  if (all == NULL && status == STOW_OK)
    status = stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a report");
  for (int i = 0; i < call->operand_count && status == STOW_OK; i++)
    status = read_trace(all, call->operands[i]);
  if (status == STOW_OK) status = show(all, call);
  if (all != NULL) reports_free(all);
  free(all);
  return status == STOW_OK ? EXIT_DONE : verb_fail(call, status);
}

static const verb_option options[] = {
    {"output", "FILE", "the page to write, also as -o; - for standard output; default report.html"},
    {"text", NULL, "print the essentials here; the page only if --output names one"},
    VERB_OPTION_JSON,
    VERB_OPTIONS_END};

const verb verb_report = {
    .name = "report",
    .summary = "show a trace: memory over time, the peak, its holders, the address space",
    .example =
        "stowage report snapshot.pickle -o report.html\nstowage report before.pickle after.pickle",
    .operands = "TRACE [TRACE]",
    .operands_min = 1,
    .operands_max = TRACES_MAX,
    .options = options,
    .run = run,
};
