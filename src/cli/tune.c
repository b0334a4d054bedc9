/* stowage tune: the allocator settings that let a recorded program run in the least memory. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/size.h>

#include "base/json.h"
#include "base/progress.h"
#include "base/status.h"
#include "cli/output.h"
#include "cli/replay_input.h"
#include "cli/verb.h"
#include "report/table.h"

/* What is tried: each setting PyTorch has that moves blocks, at the values people use. The first is
 * what everything is measured against. */
static const char *const candidates[] = {
    "",
    "expandable_segments:True",
    "expandable_segments:True,roundup_power2_divisions:8",
    "max_split_size_mb:32",
    "max_split_size_mb:64",
    "max_split_size_mb:128",
    "max_split_size_mb:256",
    "max_split_size_mb:512",
    "roundup_power2_divisions:2",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:8",
    "roundup_power2_divisions:16",
    "garbage_collection_threshold:0.6",
    "garbage_collection_threshold:0.8",
};
/* Steps replayed for each before its smallest limit is bisected: a second or so. */
#define SEARCH_STEPS UINT64_C(3000000)
#define CANDIDATES   (sizeof candidates / sizeof candidates[0])

typedef struct tuned {
  const char *settings;
  replay_result result; /* unlimited, or under the limit that was given */
  bool own;             /* what the recording was made with */
} tuned;

static bool is_expandable(const char *settings) {
  return strstr(settings, "expandable_segments:True") != NULL;
}

static stow_status try_one(tuned *out, const replay_input *in, const char *settings) {
  replay_options options = in->options;
  options.settings = POLICY_SETTINGS_INIT;
  options.search_steps = SEARCH_STEPS;
  STOW_TRY(policy_settings_parse(&options.settings, settings));
  const policy_ops *which =
      is_expandable(settings) ? &policy_torch_expandable : &policy_torch_default;
  out->settings = settings;
  STOW_TRY(replay_run(&out->result, &in->steps, which, &options));
  options.limit_is_told = true; /* the smallest limit is one that PyTorch is told */
  return replay_min_limit(&out->result, &in->steps, which, &options);
}

/* The recording's own: told by comparing what was parsed. */
static void mark_own(tuned *list, const replay_input *in) {
  for (size_t i = 0; i < CANDIDATES; i++) {
    policy_settings s = POLICY_SETTINGS_INIT;
    if (policy_settings_parse(&s, list[i].settings) != STOW_OK) continue;
    list[i].own = is_expandable(list[i].settings) == steps_expandable(&in->record) &&
                  memcmp(&s, &in->options.settings, sizeof s) == 0;
  }
}

/* Better: finishes, then the smaller limit that it needs, then fewer bytes taken, then less driver
 * time. The table's order decides between equals, so that plain settings stand before odd ones. */
static int compare(const void *x, const void *y) {
  const tuned *a = x, *b = y;
  const replay_result *r = &a->result, *q = &b->result;
  if (r->finishes != q->finishes) return r->finishes ? -1 : 1;
  if (r->min_limit_bytes != q->min_limit_bytes)
    return r->min_limit_bytes < q->min_limit_bytes ? -1 : 1;
  if (r->stats.peak_reserved_bytes != q->stats.peak_reserved_bytes)
    return r->stats.peak_reserved_bytes < q->stats.peak_reserved_bytes ? -1 : 1;
  if (r->stats.page_time_ns != q->stats.page_time_ns)
    return r->stats.page_time_ns < q->stats.page_time_ns ? -1 : 1;
  return strcmp(a->settings, b->settings);
}

static int64_t saved(uint64_t of, uint64_t now) {
  return (int64_t)of - (int64_t)now;
}

/* Figures of a run that failed end where it failed: they are not compared. */
static bool has_limits(const replay_result *a, const replay_result *b) {
  return a->min_limit_bytes != 0 && b->min_limit_bytes != 0;
}

static bool both_finish(const replay_result *a, const replay_result *b) {
  return a->finishes && b->finishes;
}

static void saved_cell(table *t, int64_t bytes) {
  char size[STOW_SIZE_TEXT_MAX];
  if (bytes == 0)
    table_cell(t, "");
  else
    table_printf(t, "%s%s", bytes < 0 ? "-" : "",
                 stow_size_format(size, (uint64_t)(bytes < 0 ? -bytes : bytes)));
}

static const char *words(const char *settings) {
  return settings[0] == '\0' ? "(none: as it comes)" : settings;
}

/* Of those that need no limit of their own to work, and run in at most 1% more than the least of
 * them, the one that takes the fewest bytes: a last MiB of limit is not worth gigabytes of reserve.
 */
static const tuned *best_of(const tuned *list) {
  const tuned *best = NULL;
  uint64_t least = 0;
  for (size_t i = 0; i < CANDIDATES; i++) {
    const replay_result *r = &list[i].result;
    if (strstr(list[i].settings, "garbage_collection") != NULL || r->min_limit_bytes == 0) continue;
    if (best == NULL) least = r->min_limit_bytes; /* the list is sorted by it */
    bool near = r->min_limit_bytes <= least + least / 100 &&
                r->finishes == (best == NULL || best->result.finishes);
    if (best == NULL ||
        (near && r->stats.peak_reserved_bytes < best->result.stats.peak_reserved_bytes))
      best = &list[i];
  }
  return best != NULL ? best : &list[0];
}

static void print_no_limit(buffer *out, const replay_result *r) {
  char size[STOW_SIZE_TEXT_MAX];
  buffer_printf(out, "No setting lets it run: it asks for %s at event %" PRIu64 "%s.\n",
                stow_size_format(size, r->failed_bytes), r->failed_at_event,
                r->failed_bytes > POLICY_REQUEST_MAX ? ", more than any device has" : "");
}

/* The live figure is the recording's own: that of a run that failed early would be too small. */
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
    buffer_text(out, "No setting does better than PyTorch as it comes: leave "
                     "PYTORCH_ALLOC_CONF and PYTORCH_CUDA_ALLOC_CONF unset.\n");
    return;
  }
  uint64_t less =
      plain->min_limit_bytes > r->min_limit_bytes ? plain->min_limit_bytes - r->min_limit_bytes : 0;
  buffer_printf(
      out,
      "Best: it runs in %s (%s live)%s%s%s. Set before it starts\n"
      "  export PYTORCH_ALLOC_CONF=%s\n"
      "  export PYTORCH_CUDA_ALLOC_CONF=%s   # the older name; some versions know only one\n",
      stow_size_format(least, r->min_limit_bytes),
      stow_size_format(live, in->steps.peak_live_bytes), less > 0 ? ", " : "",
      less > 0 ? stow_size_format(size, less) : "", less > 0 ? " less than as it comes" : "",
      best->settings, best->settings);
  if (best->own) buffer_text(out, "The recorded run had it already.\n");
}

static stow_status print_text(const replay_input *in, const tuned *list,
                              const replay_result *plain) {
  buffer out = BUFFER_INIT;
  replay_input_describe(in, &out);
  buffer_char(&out, '\n');
  table t = TABLE_INIT(6, 0x3eu);
  static const char *const header[] = {"settings",      "smallest limit", "saves",
                                       "peak reserved", "saves",          "page time"};
  for (size_t i = 0; i < t.columns; i++) table_cell(&t, header[i]);
  for (size_t i = 0; i < CANDIDATES; i++) {
    const replay_result *r = &list[i].result;
    char size[STOW_SIZE_TEXT_MAX];
    table_printf(&t, "%s%s", words(list[i].settings), list[i].own ? "  <- recorded with" : "");
    if (r->min_limit_bytes == 0)
      table_cell(&t, "none");
    else
      table_printf(&t, "%s%s", stow_size_format(size, r->min_limit_bytes),
                   r->min_limit_proved ? "" : "*");
    saved_cell(&t, has_limits(plain, r) ? saved(plain->min_limit_bytes, r->min_limit_bytes) : 0);
    if (r->finishes)
      table_size(&t, r->stats.peak_reserved_bytes);
    else
      table_printf(&t, "fails at event %" PRIu64, r->failed_at_event);
    saved_cell(&t, both_finish(plain, r)
                       ? saved(plain->stats.peak_reserved_bytes, r->stats.peak_reserved_bytes)
                       : 0);
    table_printf(&t, "%.1f ms", (double)r->stats.page_time_ns / 1e6);
  }
  table_write(&t, &out, 0, output_color());
  buffer_text(&out, "*: found by bisection, with each 2 MiB step of the 64 MiB above tried\n"
                    "garbage_collection_threshold works only under a memory fraction\n");
  print_best(&out, in, best_of(list), plain);
  return output_buffer(&out);
}

/* null where one of the two is not known. */
static void saved_json(json *j, const char *key, bool known, uint64_t of, uint64_t now) {
  json_key(j, key);
  if (known)
    json_i64(j, saved(of, now));
  else
    json_null(j);
}

static stow_status print_json(const tuned *list, const replay_result *plain) {
  buffer out = BUFFER_INIT;
  json j = JSON_PRETTY(&out);
  json_begin_array(&j);
  for (size_t i = 0; i < CANDIDATES; i++) {
    const replay_result *r = &list[i].result;
    json_begin_object(&j);
    json_key(&j, "settings"), json_text(&j, list[i].settings);
    json_key(&j, "best"), json_bool(&j, &list[i] == best_of(list));
    json_key(&j, "recorded_with"), json_bool(&j, list[i].own);
    json_key(&j, "finishes"), json_bool(&j, r->finishes);
    json_number_or_null(&j, "min_limit_bytes", r->min_limit_bytes != 0, r->min_limit_bytes);
    saved_json(&j, "min_limit_saved_bytes", has_limits(plain, r), plain->min_limit_bytes,
               r->min_limit_bytes);
    json_key(&j, "peak_reserved_bytes"), json_u64(&j, r->stats.peak_reserved_bytes);
    saved_json(&j, "peak_reserved_saved_bytes", both_finish(plain, r),
               plain->stats.peak_reserved_bytes, r->stats.peak_reserved_bytes);
    json_key(&j, "page_time_us"), json_u64(&j, r->stats.page_time_ns / 1000);
    json_end_object(&j);
  }
  json_end_array(&j);
  return output_buffer(&out);
}

static int run(verb_call *call) {
  replay_input in;
  tuned list[CANDIDATES] = {{0}};
  progress bar;
  stow_status status = replay_input_open(&in, call, NULL);
  progress_begin(&bar, "replaying", CANDIDATES, false);
  for (size_t i = 0; status == STOW_OK && i < CANDIDATES; i++) {
    status = try_one(&list[i], &in, candidates[i]);
    progress_at(&bar, i + 1);
  }
  progress_end(&bar);
  if (status == STOW_OK) {
    replay_result plain = list[0].result;
    mark_own(list, &in);
    qsort(list, CANDIDATES, sizeof list[0], compare);
    status = verb_flag(call, "json") ? print_json(list, &plain) : print_text(&in, list, &plain);
  }
  int code = status == STOW_OK ? EXIT_DONE : verb_fail(call, status);
  /* The answer is no where no setting lets it run; the list is sorted by the smallest limit. */
  if (status == STOW_OK && best_of(list)->result.min_limit_bytes == 0) code = EXIT_FAILED;
  replay_input_close(&in);
  return code;
}

static const verb_option options[] = {
    {"vram", "SIZE", "show which settings fit a card of this size, the CUDA context taken off"},
    {"vram-limit", "SIZE", "show which fit this cap on PyTorch's own reserve"},
    VERB_OPTION_JSON,
    VERB_OPTIONS_END,
};

const verb verb_tune = {
    .name = "tune",
    .summary = "find the allocator settings a recorded program needs the least memory with",
    .example = "stowage tune snapshot.pickle\nstowage tune snapshot.pickle --vram 16G",
    .operands = "TRACE",
    .operands_min = 1,
    .operands_max = 1,
    .options = options,
    .run = run,
};
