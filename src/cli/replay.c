/* stowage replay: shows what another allocator, or another limit, would have done with a recorded
 * run. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <stowage/size.h>

#include "base/json.h"
#include "base/status.h"
#include "base/table.h"
#include "cli/output.h"
#include "cli/replay_input.h"
#include "cli/replay_spill.h"
#include "cli/verb.h"

#define POLICIES_MAX 16

typedef struct replay_table {
  replay_input in;
  const policy_ops *policies[POLICIES_MAX];
  size_t count;
  bool min_limit, check;
  replay_result results[POLICIES_MAX];
} replay_table;

/* Finds a policy. If there is none, the message suggests a similar name. */
static stow_status find_policy(const policy_ops **which, const char *name) {
  const char *names[POLICIES_MAX + 1] = {NULL};
  stow_status status = replay_policy(which, name);
  if (status == STOW_OK) return status;
  size_t count = 0;
  for (; policy_at(count) != NULL && count + 1 < POLICIES_MAX; count++)
    names[count] = policy_at(count)->name;
  names[count] = policy_planned.name;
  const char *near = verb_nearest(name, names);
  if (near == NULL) return STOW_ERR_INVALID;
  return stow_fail(STOW_ERR_INVALID, "%.300s (did you mean %s?)", stow_status_message(), near);
}

static stow_status add_policy(replay_table *job, const char *name) {
  const policy_ops *which;
  STOW_TRY(find_policy(&which, name));
  for (size_t i = 0; i < job->count; i++)
    if (job->policies[i] == which) return STOW_OK;
  if (job->count == POLICIES_MAX)
    return stow_fail(STOW_ERR_INVALID, "--policy: at most %d can be given", POLICIES_MAX);
  job->policies[job->count++] = which;
  return STOW_OK;
}

static stow_status read_policies(replay_table *job, const char *list) {
  if (list == NULL) {
    for (size_t i = 0; policy_at(i) != NULL; i++) STOW_TRY(add_policy(job, policy_at(i)->name));
    return STOW_OK;
  }
  while (*list != '\0') {
    char name[64];
    size_t length = strcspn(list, ",");
    snprintf(name, sizeof name, "%.*s", (int)length, list);
    STOW_TRY(add_policy(job, name));
    list += length + (list[length] == ',');
  }
  if (job->count == 0) return stow_fail(STOW_ERR_INVALID, "--policy: no name was given");
  return STOW_OK;
}

/* PyTorch's garbage collection depends on its memory fraction, so it runs only if one was set. */
static bool lacks_limit(const replay_table *job) {
  return job->in.job.options.settings.gc_threshold > 0 &&
         job->in.job.options.limit_bytes == POLICY_NO_LIMIT;
}

static stow_status run_one(replay_table *job, size_t i) {
  unsigned flags = (job->min_limit ? REPLAY_MIN_LIMIT : 0) | (job->check ? REPLAY_CHECK : 0);
  return replay_job_run(&job->in.job, job->policies[i], flags, &job->results[i]);
}

/* ---- for people ---- */

static void print_row(table *t, const replay_table *job, const replay_result *r) {
  char size[STOW_SIZE_TEXT_MAX];
  table_cell(t, r->policy->name);
  if (r->finishes)
    table_cell(t, "finishes");
  else
    table_printf(t, "fails at event %" PRIu64 ", requesting %s%s", r->failed_at_event,
                 stow_size_format(size, r->failed_bytes),
                 r->failed_bytes > POLICY_REQUEST_MAX ? ", more than any device has" : "");
  table_color(t, r->finishes ? TABLE_GOOD : TABLE_BAD);
  if (job->min_limit && r->min_limit_bytes == 0)
    table_cell(t, "none");
  else if (job->min_limit)
    table_printf(t, "%s%s", stow_size_format(size, r->min_limit_bytes),
                 r->min_limit_proved ? "" : "*");
  table_size(t, r->peak_live_bytes);
  table_size(t, r->stats.peak_reserved_bytes);
  table_size(t, r->stats.largest_hole_bytes);
  table_printf(t, "%" PRIu64, r->stats.page_calls);
  table_printf(t, "%.1f ms", (double)r->stats.page_time_ns / 1e6);
}

static void print_notes(buffer *out, const replay_table *job) {
  char size[STOW_SIZE_TEXT_MAX];
  bool explained = false;
  for (size_t i = 0; i < job->count; i++) {
    const replay_result *r = &job->results[i];
    if (r->stats.retries > 0)
      buffer_printf(out, "%s dropped its cache and retried: %" PRIu64 "\n", r->policy->name,
                    r->stats.retries);
    if (r->policy == &policy_planned)
      buffer_printf(out,
                    "planned: one layout for the recorded lifetimes, found %s; no layout can need "
                    "less than %s\n",
                    r->planned_by, stow_size_format(size, r->lower_bound_bytes));
    if (r->checked)
      buffer_printf(out,
                    "%s against the recording: %" PRIu64 " of %" PRIu64
                    " segment events and %" PRIu64 " of %" PRIu64 " addresses differ\n",
                    r->policy->name, r->segment_mismatches, r->segments_checked,
                    r->address_mismatches, r->addresses_checked);
    if (job->min_limit && r->min_limit_bytes != 0 && !r->min_limit_proved && !explained) {
      buffer_printf(out,
                    "*: found by bisection; every 2 MiB step in the %s above it finishes too; not "
                    "all further ones were tried\n",
                    stow_size_format(size, r->min_limit_window_bytes));
      explained = true;
    }
  }
  if (job->min_limit)
    buffer_text(out, "smallest limit: from there every 2 MiB step upward finishes\n");
}

static stow_status print_text(const replay_table *job) {
  buffer out = BUFFER_INIT;
  replay_input_describe(&job->in, &out);
  if (job->check && job->in.record.source != SOURCE_TORCH)
    buffer_text(&out, "--check: only PyTorch's recordings show segments; nothing to compare\n");
  if (job->check && job->in.job.steps.initial_blocks > 0)
    buffer_text(&out, "--check: the recording began late, so the addresses of its first blocks are "
                      "not known; nothing was compared\n");
  if (job->check && lacks_limit(job))
    buffer_printf(
        &out,
        "--check: PyTorch's garbage collection ran at %g of a limit that is not in the recording; "
        "add that limit with --vram-limit, otherwise the collected segments count as different\n",
        job->in.job.options.settings.gc_threshold);
  buffer_char(&out, '\n');
  /* What was asked for comes first: a narrow screen drops columns from the end. */
  table t = TABLE_INIT(job->min_limit ? 8 : 7, 0xfcu);
  static const char *const header[] = {"policy",     "result",        "smallest limit",
                                       "peak live",  "peak reserved", "largest hole",
                                       "page calls", "page time"};
  for (size_t i = 0; i < sizeof header / sizeof *header; i++)
    if (job->min_limit || i != 2) table_cell(&t, header[i]);
  for (size_t i = 0; i < job->count; i++) print_row(&t, job, &job->results[i]);
  table_write(&t, &out, 0, output_color());
  print_notes(&out, job);
  return output_buffer(&out);
}

/* ---- for programs ---- */

static stow_status print_json(const replay_table *job) {
  buffer out = BUFFER_INIT;
  json j = JSON_PRETTY(&out);
  json_begin_array(&j);
  for (size_t i = 0; i < job->count; i++) {
    const replay_result *r = &job->results[i];
    json_begin_object(&j);
    json_key(&j, "policy"), json_text(&j, r->policy->name);
    json_key(&j, "finishes"), json_bool(&j, r->finishes);
    json_number_or_null(&j, "failed_at_event", !r->finishes, r->failed_at_event);
    json_number_or_null(&j, "failed_bytes", !r->finishes, r->failed_bytes);
    json_key(&j, "peak_live_bytes"), json_u64(&j, r->peak_live_bytes);
    json_key(&j, "peak_reserved_bytes"), json_u64(&j, r->stats.peak_reserved_bytes);
    json_number_or_null(&j, "min_limit_bytes", r->min_limit_bytes != 0, r->min_limit_bytes);
    json_number_or_null(&j, "lower_bound_bytes", r->lower_bound_bytes != 0, r->lower_bound_bytes);
    json_key(&j, "page_calls"), json_u64(&j, r->stats.page_calls);
    json_key(&j, "page_time_us"), json_u64(&j, r->stats.page_time_ns / 1000);
    json_number_or_null(&j, "segment_mismatches", r->checked, r->segment_mismatches);
    json_number_or_null(&j, "address_mismatches", r->checked, r->address_mismatches);
    json_end_object(&j);
  }
  json_end_array(&j);
  return output_buffer(&out);
}

/* Returns 1 for a negative answer: no policy finishes, or the check found a difference. */
static int answer(const replay_table *job) {
  bool finishes = false, differs = false;
  for (size_t i = 0; i < job->count; i++) {
    const replay_result *r = &job->results[i];
    finishes |= r->finishes;
    differs |= r->segment_mismatches + r->address_mismatches > 0;
  }
  return finishes && !differs ? EXIT_DONE : EXIT_FAILED;
}

static int run(verb_call *call) {
  if (verb_value(call, "spill") != NULL) return replay_spill(call);
  replay_table job = {.min_limit = verb_flag(call, "min-limit"), .check = verb_flag(call, "check")};
  stow_status status = read_policies(&job, verb_value(call, "policy"));
  if (status != STOW_OK) return verb_fail(call, status);
  status = replay_input_open(&job.in, call, verb_value(call, "settings"));
  for (size_t i = 0; status == STOW_OK && i < job.count; i++) status = run_one(&job, i);
  if (status == STOW_OK) status = verb_flag(call, "json") ? print_json(&job) : print_text(&job);
  int code = status == STOW_OK ? answer(&job) : verb_fail(call, status);
  replay_input_close(&job.in);
  return code;
}

static const verb_option options[] = {
    {"policy", "LIST",
     "allocators, separated by commas (default all), or planned: a layout computed in advance"},
    {"vram", "SIZE", "replay on a device of this size, less the CUDA context"},
    {"vram-limit", "SIZE",
     "limit the memory that the framework may reserve, like PyTorch's memory fraction"},
    {"settings", "TEXT",
     "allocator settings instead of the recorded ones, as in PYTORCH_ALLOC_CONF"},
    {"min-limit", NULL, "find the smallest limit that finishes"},
    {"spill", "auto",
     "spill to host memory, and show how long a step takes (needs a recording with --touches)"},
    {"check", NULL, "compare with the recording's own segments and addresses"},
    VERB_OPTION_JSON,
    VERB_OPTIONS_END,
};

const verb verb_replay = {
    .name = "replay",
    .summary = "run a recording through other allocators and limits",
    .example =
        "stowage replay snapshot.pickle --vram 16G\n"
        "stowage replay snapshot.pickle --policy torch_default,torch_expandable --min-limit\n"
        "stowage replay run.stow --vram 10G --spill auto",
    .operands = "TRACE",
    .operands_min = 1,
    .operands_max = 1,
    .options = options,
    .run = run,
};
