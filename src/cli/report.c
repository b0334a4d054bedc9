/* stowage report: shows one or more traces or runs as one HTML page, as text or as JSON. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <stowage/size.h>

#include "base/status.h"
#include "cli/losses.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "files/outfile.h"
#include "recordings/recording_file.h"
#include "report/report_set.h"
#include "run/folder.h"

#define PAGE "report.html"
/* Limit in memory for each: about 100 million events. */
#define RECORDING_BYTES (UINT64_C(8) << 30)

typedef struct reports {
  recording recordings[REPORT_SET_RECORDINGS_MAX];
  int recording_count;
  report_set set;
} reports;

static bool is_folder(const char *path) {
  struct stat info;
  return strcmp(path, "-") != 0 && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static stow_status read_trace(reports *all, const char *path) {
  recording *r = &all->recordings[all->recording_count++];
  recording_init(r, RECORDING_BYTES);
  STOW_TRY(recording_read(r, path, KIND_AUTO, NULL));
  losses_warn(r, path);
  return report_set_add(&all->set, r, path);
}

/* Reads a trace, or the folder of a run. */
static stow_status read_one(reports *all, const char *path) {
  size_t before = all->set.devices_left_out;
  STOW_TRY(is_folder(path) ? report_set_add_run(&all->set, path) : read_trace(all, path));
  if (all->set.devices_left_out > before)
    output_error("stowage report: %s: only the first %d devices are shown\n", output_name(path),
                 REPORT_SET_DEVICES_MAX);
  return STOW_OK;
}

/* Reads the run of --last, or what the operands name. */
static stow_status read_all(reports *all, const verb_call *call) {
  char last[PATH_MAX];
  if (verb_flag(call, "last")) {
    STOW_TRY(run_folder_last(last));
    STOW_TRY(read_one(all, last));
  }
  for (int i = 0; i < call->operand_count; i++) STOW_TRY(read_one(all, call->operands[i]));
  if (all->set.traces_left_out > 0)
    output_error("stowage report: %zu more traces are not shown; a page has at most %d\n",
                 all->set.traces_left_out, REPORT_SET_RECORDINGS_MAX);
  return STOW_OK;
}

static void reports_free(reports *all) {
  report_set_free(&all->set);
  for (int i = 0; i < all->recording_count; i++) recording_free(&all->recordings[i]);
}

static stow_status write_page(const reports *all, const char *path) {
  buffer page = BUFFER_INIT;
  stow_status status = report_html(all->set.list, all->set.count, &page);
  if (status == STOW_OK && strcmp(path, "-") == 0) return output_buffer(&page);
  if (status == STOW_OK) status = report_save(path, &page);
  if (status == STOW_OK) {
    char size[STOW_SIZE_TEXT_MAX];
    output_error("%s: %s; open it in a browser\n", output_name(path),
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
  stow_status status = facts ? report_json(all->set.list, all->set.count, &out)
                             : report_text(all->set.list, all->set.count, &out, output_color());
  if (status == STOW_OK) return output_buffer(&out);
  buffer_free(&out);
  return status;
}

static int run(verb_call *call) {
  if (verb_flag(call, "text") && verb_flag(call, "json"))
    return verb_usage(call, "--text and --json both go to standard output; choose one");
  if (verb_flag(call, "last") && call->operand_count > 0)
    return verb_usage(call, "--last is the last run; give it or a TRACE, not both");
  if (!verb_flag(call, "last") && call->operand_count == 0)
    return verb_usage(call, "give a trace, the folder of a run, or --last for the last run");
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
  if (status == STOW_OK) status = read_all(all, call);
  if (status == STOW_OK) status = show(all, call);
  if (all != NULL) reports_free(all);
  free(all);
  return status == STOW_OK ? EXIT_DONE : verb_fail(call, status);
}

static const verb_option options[] = {
    {"output", "FILE", "the page to write (also -o); - for standard output; default report.html"},
    {"last", NULL, "use the last run of stowage run"},
    {"text", NULL, "print a summary; write a page only if --output names one"},
    VERB_OPTION_JSON,
    VERB_OPTIONS_END};

const verb verb_report = {
    .name = "report",
    .summary = "show a trace: memory over time, the peak and what holds it, the address space",
    .example =
        "stowage report snapshot.pickle -o report.html\nstowage report before.pickle after.pickle\n"
        "stowage report --last",
    .operands = "[TRACE…]",
    .operands_min = 0,
    .operands_max = REPORT_SET_RECORDINGS_MAX,
    .options = options,
    .run = run,
};
