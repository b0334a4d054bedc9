/* stowage tune: the allocator settings that let a recorded program run in the least memory, and for
 * a device that is too small the batch that fits. */
#include <inttypes.h>
#include <stdio.h>

#include <stowage/size.h>

#include "advise/fitting.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/status.h"
#include "base/table.h"
#include "cli/output.h"
#include "cli/replay_input.h"
#include "cli/verb.h"
#include "replay/tune.h"

static void saved_cell(table *t, int64_t bytes) {
  char size[STOW_SIZE_TEXT_MAX];
  if (bytes == 0)
    table_cell(t, "");
  else
    table_printf(t, "%s%s", bytes < 0 ? "-" : "",
                 stow_size_format(size, (uint64_t)(bytes < 0 ? -bytes : bytes)));
}

static const char *words(const char *settings) {
  return settings[0] == '\0' ? "(default)" : settings;
}

static void print_no_limit(buffer *out, const replay_result *r) {
  char size[STOW_SIZE_TEXT_MAX];
  buffer_printf(out, "No setting lets it run: it requests %s at event %" PRIu64 "%s.\n",
                stow_size_format(size, r->failed_bytes), r->failed_at_event,
                r->failed_bytes > POLICY_REQUEST_MAX ? ", more than any device has" : "");
}

/* The live figure comes from the recording: the figure of a replay that failed early would be too
 * small. */
static void print_best(buffer *out, const replay_input *in, const tuned *best,
                       const replay_result *plain) {
  char size[STOW_SIZE_TEXT_MAX], least[STOW_SIZE_TEXT_MAX], live[STOW_SIZE_TEXT_MAX];
  const replay_result *r = &best->result;
  buffer_char(out, '\n');
  if (r->min_limit_bytes == 0) {
    print_no_limit(out, r);
    return;
  }
  if (best->settings[0] == '\0') {
    buffer_text(out, "No setting is better than PyTorch's default: leave "
                     "PYTORCH_ALLOC_CONF and PYTORCH_CUDA_ALLOC_CONF unset.\n");
    return;
  }
  uint64_t less =
      plain->min_limit_bytes > r->min_limit_bytes ? plain->min_limit_bytes - r->min_limit_bytes : 0;
  buffer_printf(
      out,
      "Best: it runs in %s (%s live)%s%s%s. Set before the program starts:\n"
      "  export PYTORCH_ALLOC_CONF=%s\n"
      "  export PYTORCH_CUDA_ALLOC_CONF=%s   # the older name; some versions know only one\n",
      stow_size_format(least, r->min_limit_bytes),
      stow_size_format(live, in->job.steps.peak_live_bytes), less > 0 ? ", " : "",
      less > 0 ? stow_size_format(size, less) : "",
      less > 0 ? " less than with the default settings" : "", best->settings, best->settings);
  if (best->own) buffer_text(out, "The recorded run already used it.\n");
}

/* "batch 24 instead of 32", or "58% of the recorded batch". */
static void print_part(buffer *out, const fitting *fit) {
  if (fit->batch > 1)
    buffer_printf(out, "batch %u instead of %" PRIu64, fit->part, fit->batch);
  else
    buffer_printf(out, "%u%% of the recorded batch", fit->part * 100 / fit->whole);
}

static void print_fitting(buffer *out, const replay_input *in, const tuning *all,
                          const fitting *fit) {
  char limit[STOW_SIZE_TEXT_MAX], size[STOW_SIZE_TEXT_MAX];
  const char *settings = all->list[fit->setting].settings;
  stow_size_format(limit, in->job.options.limit_bytes);
  stow_size_format(size, fit->peak_reserved_bytes);
  if (fit->answer == FITTING_UNKNOWN) return;
  buffer_char(out, '\n');
  if (fit->answer == FITTING_WHOLE) {
    buffer_printf(out, "Fits %s as recorded, with %s: takes %s (replayed).\n", limit,
                  settings[0] == '\0' ? "no settings" : settings, size);
  } else if (fit->answer == FITTING_PART) {
    buffer_printf(out, "Does not fit %s as recorded. Fits with ", limit);
    print_part(out, fit);
    buffer_printf(out, "%s%s: takes %s (replayed).\n", settings[0] == '\0' ? "" : " and ", settings,
                  size);
    buffer_text(out, "Accumulate gradients over the smaller batches for the same training.\n");
  } else {
    buffer_printf(out,
                  "Does not fit %s with any batch: the rest takes %s. Next: stowage explain %s "
                  "--vram SIZE lists ways to make it smaller.\n",
                  limit, size, in->path);
  }
  if (fit->until_fail)
    buffer_text(out, "The recording ends with a failure; what comes after it is not known.\n");
}

static stow_status print_text(const replay_input *in, const tuning *all, const fitting *fit) {
  const tuned *list = all->list;
  buffer out = BUFFER_INIT;
  replay_input_describe(in, &out);
  buffer_char(&out, '\n');
  table t = TABLE_INIT(6, 0x3eu);
  static const char *const header[] = {"settings",      "smallest limit", "saves",
                                       "peak reserved", "saves",          "page time"};
  for (size_t i = 0; i < t.columns; i++) table_cell(&t, header[i]);
  for (size_t i = 0; i < TUNE_CANDIDATES; i++) {
    const replay_result *r = &list[i].result;
    char size[STOW_SIZE_TEXT_MAX];
    table_printf(&t, "%s%s", words(list[i].settings), list[i].own ? "  <- recorded with" : "");
    if (r->min_limit_bytes == 0)
      table_cell(&t, "none");
    else
      table_printf(&t, "%s%s", stow_size_format(size, r->min_limit_bytes),
                   r->min_limit_proved ? "" : "*");
    int64_t saved = 0;
    saved_cell(&t, tune_limit_saved(all, &list[i], &saved) ? saved : 0);
    if (r->finishes)
      table_size(&t, r->stats.peak_reserved_bytes);
    else
      table_printf(&t, "fails at event %" PRIu64, r->failed_at_event);
    if (!r->finishes) table_color(&t, TABLE_BAD);
    saved_cell(&t, tune_reserved_saved(all, &list[i], &saved) ? saved : 0);
    table_printf(&t, "%.1f ms", (double)r->stats.page_time_ns / 1e6);
  }
  table_write(&t, &out, 0, output_color());
  buffer_text(&out, "*: found by bisection, with each 2 MiB step of the 64 MiB above tried\n"
                    "garbage_collection_threshold works only under a memory fraction\n");
  print_best(&out, in, &list[all->best], &all->plain);
  print_fitting(&out, in, all, fit);
  return output_buffer(&out);
}

/* Writes null if one of the two is unknown. */
static void saved_json(json *j, const char *key, bool known, int64_t bytes) {
  json_key(j, key);
  if (known)
    json_i64(j, bytes);
  else
    json_null(j);
}

/* What fits with this setting: null except for the one to use. */
static void fitting_json(json *j, const fitting *fit, uint32_t index) {
  bool here = fit->answer != FITTING_UNKNOWN && fit->setting == index;
  bool part = here && fit->answer == FITTING_PART;
  double fraction = part ? (double)fit->part / fit->whole : fit->answer == FITTING_WHOLE ? 1 : 0;
  json_key(j, "batch_part");
  if (here)
    json_double(j, fraction);
  else
    json_null(j);
  bool known = here && fit->batch > 1;
  json_number_or_null(j, "batch_samples", known,
                      part                           ? fit->part
                      : fit->answer == FITTING_WHOLE ? fit->batch
                                                     : 0);
}

static stow_status print_json(const tuning *all, const fitting *fit) {
  const tuned *list = all->list;
  buffer out = BUFFER_INIT;
  json j = JSON_PRETTY(&out);
  json_begin_array(&j);
  for (size_t i = 0; i < TUNE_CANDIDATES; i++) {
    const replay_result *r = &list[i].result;
    json_begin_object(&j);
    json_key(&j, "settings"), json_text(&j, list[i].settings);
    json_key(&j, "best"), json_bool(&j, i == all->best);
    json_key(&j, "recorded_with"), json_bool(&j, list[i].own);
    json_key(&j, "finishes"), json_bool(&j, r->finishes);
    json_number_or_null(&j, "min_limit_bytes", r->min_limit_bytes != 0, r->min_limit_bytes);
    int64_t saved = 0;
    bool known = tune_limit_saved(all, &list[i], &saved);
    saved_json(&j, "min_limit_saved_bytes", known, saved);
    json_key(&j, "peak_reserved_bytes"), json_u64(&j, r->stats.peak_reserved_bytes);
    known = tune_reserved_saved(all, &list[i], &saved);
    saved_json(&j, "peak_reserved_saved_bytes", known, saved);
    json_key(&j, "page_time_us"), json_u64(&j, r->stats.page_time_ns / 1000);
    fitting_json(&j, fit, (uint32_t)i);
    json_end_object(&j);
  }
  json_end_array(&j);
  return output_buffer(&out);
}

static stow_status show_progress(void *bar, uint64_t done, uint64_t total) {
  (void)total;
  progress_at(bar, done);
  return STOW_OK;
}

static int run(verb_call *call) {
  replay_input in;
  tuning all;
  fitting fit = {0};
  progress bar;
  stow_status status = replay_input_open(&in, call, NULL);
  progress_begin(&bar, "replaying", TUNE_CANDIDATES, false);
  if (status == STOW_OK) status = tune_run(&all, &in.job, show_progress, &bar);
  if (status == STOW_OK) status = fitting_find(&fit, &in.job, &all);
  progress_end(&bar);
  if (status == STOW_OK)
    status = verb_flag(call, "json") ? print_json(&all, &fit) : print_text(&in, &all, &fit);
  int code = status == STOW_OK ? EXIT_DONE : verb_fail(call, status);
  /* If no setting lets the program run, the exit code is that of a negative answer. */
  if (status == STOW_OK && all.list[all.best].result.min_limit_bytes == 0) code = EXIT_FAILED;
  replay_input_close(&in);
  return code;
}

static const verb_option options[] = {
    {"vram", "SIZE",
     "find settings and a batch that fit a device of this size, less the CUDA context"},
    {"vram-limit", "SIZE", "find those that fit this limit on what PyTorch reserves"},
    VERB_OPTION_JSON,
    VERB_OPTIONS_END,
};

const verb verb_tune = {
    .name = "tune",
    .summary = "find the allocator settings with which a recorded program needs the least memory",
    .example = "stowage tune snapshot.pickle\nstowage tune snapshot.pickle --vram 16G",
    .operands = "TRACE",
    .operands_min = 1,
    .operands_max = 1,
    .options = options,
    .run = run,
};
