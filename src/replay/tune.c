/* Tune: replays candidates, sorts them and chooses the best (tune.h). */
#include "replay/tune.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* The candidates: each PyTorch setting that moves blocks, at common values. The first is the
 * baseline. */
static const char *const candidates[TUNE_CANDIDATES] = {
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
/* Steps replayed per candidate before its smallest limit is bisected: about a second. */
#define SEARCH_STEPS UINT64_C(3000000)

static bool is_expandable(const char *settings) {
  return strstr(settings, "expandable_segments:True") != NULL;
}

static stow_status try_one(tuned *out, const replay_job *job, const char *settings) {
  replay_options options = job->options;
  options.settings = POLICY_SETTINGS_INIT;
  options.search_steps = SEARCH_STEPS;
  STOW_TRY(policy_settings_parse(&options.settings, settings));
  const policy_ops *which =
      is_expandable(settings) ? &policy_torch_expandable : &policy_torch_default;
  out->settings = settings;
  STOW_TRY(replay_run(&out->result, &job->steps, which, &options));
  options.limit_in_framework = true; /* PyTorch enforces the smallest limit */
  return replay_min_limit(&out->result, &job->steps, which, &options);
}

/* Marks the recording's own settings, comparing parsed values. */
static void mark_own(tuned *list, const replay_job *job) {
  for (size_t i = 0; i < TUNE_CANDIDATES; i++) {
    policy_settings s = POLICY_SETTINGS_INIT;
    if (policy_settings_parse(&s, list[i].settings) != STOW_OK) continue;
    list[i].own = is_expandable(list[i].settings) == steps_expandable(job->record) &&
                  memcmp(&s, &job->options.settings, sizeof s) == 0;
  }
}

/* Orders results: those that finish, then a smaller limit, then fewer bytes, then less driver time.
 * The table's order decides between equals, so plain settings come before unusual ones. */
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

/* Among the settings that work without a limit and need at most 1% more than the smallest limit,
 * chooses the one that uses the fewest bytes: a last MiB of limit is not worth gigabytes of
 * reserve. */
static uint32_t best_of(const tuned *list) {
  const tuned *best = NULL;
  uint64_t least = 0;
  for (size_t i = 0; i < TUNE_CANDIDATES; i++) {
    const replay_result *r = &list[i].result;
    if (strstr(list[i].settings, "garbage_collection") != NULL || r->min_limit_bytes == 0) continue;
    if (best == NULL) least = r->min_limit_bytes; /* the list is sorted by it */
    bool near = r->min_limit_bytes <= least + least / 100 &&
                r->finishes == (best == NULL || best->result.finishes);
    if (best == NULL ||
        (near && r->stats.peak_reserved_bytes < best->result.stats.peak_reserved_bytes))
      best = &list[i];
  }
  return best != NULL ? (uint32_t)(best - list) : 0;
}

stow_status tune_run(tuning *t, const replay_job *job, tune_progress progress, void *user) {
  *t = (tuning){0};
  for (uint32_t i = 0; i < TUNE_CANDIDATES; i++) {
    STOW_TRY(try_one(&t->list[i], job, candidates[i]));
    if (progress != NULL) STOW_TRY(progress(user, i + 1, TUNE_CANDIDATES));
  }
  t->plain = t->list[0].result;
  mark_own(t->list, job);
  qsort(t->list, TUNE_CANDIDATES, sizeof t->list[0], compare);
  t->best = best_of(t->list);
  return STOW_OK;
}

bool tune_limit_saved(const tuning *t, const tuned *one, int64_t *bytes) {
  *bytes = (int64_t)t->plain.min_limit_bytes - (int64_t)one->result.min_limit_bytes;
  return t->plain.min_limit_bytes != 0 && one->result.min_limit_bytes != 0;
}

bool tune_reserved_saved(const tuning *t, const tuned *one, int64_t *bytes) {
  *bytes =
      (int64_t)t->plain.stats.peak_reserved_bytes - (int64_t)one->result.stats.peak_reserved_bytes;
  return t->plain.finishes && one->result.finishes;
}
