/* stowage doctor: shows what works here and what does not, each with the reason and the next step.
 * The checks are in checks.c. */
#include "cli/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/version.h>

#include "base/json.h"
#include "base/table.h"
#include "cli/output.h"
#include "cli/verb.h"

static const char *const verdict_names[] = {"ok", "note", "none", "broken"};

static stow_status print_text(const findings *all) {
  static const char *const colors[] = {"\033[32m", "\033[33m", "\033[2m", "\033[31m"};
  size_t width = 0;
  for (size_t i = 0; i < all->count; i++)
    if (strlen(all->list[i].name) > width) width = strlen(all->list[i].name);
  for (size_t i = 0; i < all->count; i++) {
    const finding *f = &all->list[i];
    bool color = output_color();
    output_printf("%-*s  %s%-6s%s  %s\n", (int)width, f->name, color ? colors[f->verdict] : "",
                  verdict_names[f->verdict], color ? "\033[0m" : "", f->reason);
    if (f->next[0] != '\0') output_printf("%-*s          next: %s\n", (int)width, "", f->next);
  }
  return STOW_OK;
}

static stow_status print_json(const findings *all) {
  buffer out = BUFFER_INIT;
  json j = JSON_PRETTY(&out);
  json_begin_object(&j);
  json_key(&j, "version"), json_text(&j, stow_version());
  json_key(&j, "findings");
  json_begin_array(&j);
  for (size_t i = 0; i < all->count; i++) {
    const finding *f = &all->list[i];
    json_begin_object(&j);
    json_key(&j, "name"), json_text(&j, f->name);
    json_key(&j, "verdict"), json_text(&j, verdict_names[f->verdict]);
    json_key(&j, "reason"), json_text(&j, f->reason);
    json_key(&j, "next"), json_text(&j, f->next[0] != '\0' ? f->next : NULL);
    json_end_object(&j);
  }
  json_end_array(&j);
  json_end_object(&j);
  return output_buffer(&out);
}

static int run(verb_call *call) {
  findings *all = calloc(1, sizeof *all);
  if (all == NULL)
    return verb_fail(call, stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for the findings"));
  stow_status status = checks_run(all, verb_value(call, "device"), verb_flag(call, "probe"));
  if (status == STOW_OK) status = verb_flag(call, "json") ? print_json(all) : print_text(all);
  int code = EXIT_DONE;
  for (size_t i = 0; i < all->count; i++)
    if (all->list[i].verdict == FINDING_BROKEN) code = EXIT_FAILED;
  free(all);
  return status == STOW_OK ? code : verb_fail(call, status);
}

static const verb_option options[] = {
    VERB_OPTION_DEVICE,
    {"probe", NULL, "try the paths to host memory again instead of using the cached result"},
    VERB_OPTION_JSON,
    VERB_OPTIONS_END,
};

const verb verb_doctor = {
    .name = "doctor",
    .summary =
        "check what works on this machine; for what does not, print the reason and the next step",
    .example = "stowage doctor\nstowage doctor --device sim:16G",
    .options = options,
    .run = run,
};
