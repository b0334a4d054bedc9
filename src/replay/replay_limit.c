/* Finds the smallest limit that finishes, without assuming that more memory always helps.
 *
 * It does not: a limit 2 MiB higher can move a retry, and with it every later block, and fail. So
 * the search looks for the smallest limit from which *every* 2 MiB step upward finishes.
 *
 * A replay under limit L decides the same under any limit between L and the highest reserve it was
 * granted (same_down_to_bytes). Walking down from the unlimited run, each replay proves a whole
 * interval, the next starts one step below it, and the first failure ends the walk: no limit in
 * between is skipped. If a policy depends on the limit itself (PyTorch's garbage collection, the
 * real heap), or the walk takes too long, a bisection finds a candidate and every step of a window
 * above it is tried; the result says so. */
#include "base/checked.h"
#include "replay/replay.h"

#define STEP_BYTES (UINT64_C(2) << 20)
/* Steps that a walk may replay in total: about ten seconds. */
#define WALK_STEPS   UINT64_C(100000000)
#define WINDOW_STEPS 32
/* After this many replays in a row that proved no more than their own limit, walking only
 * counts. */
#define WALK_STALLS 48

typedef struct limit_search {
  const steps *s;
  const policy_ops *which;
  replay_options options;
  uint64_t replays, replays_max;
  uint64_t least; /* the live bytes: no smaller limit can finish */
} limit_search;

static stow_status try_limit(limit_search *search, uint64_t limit, bool *finishes, uint64_t *same) {
  replay_result r;
  search->options.limit_bytes = limit;
  search->replays++;
  STOW_TRY(replay_run(&r, search->s, search->which, &search->options));
  *finishes = r.finishes;
  *same = r.stats.same_down_to_bytes < limit ? r.stats.same_down_to_bytes : limit;
  return STOW_OK;
}

/* Walks down from *low, which is known to finish with everything above it. Sets *proved to true if
 * it reached a failure or the live bytes, to false if it ran out of replays. */
static stow_status walk_down(limit_search *search, uint64_t *low, bool *proved) {
  *proved = true;
  uint32_t stalls = 0;
  while (*low > search->least) {
    uint64_t limit = round_down(*low - 1, STEP_BYTES), same;
    bool finishes;
    if (limit < search->least) break;
    if (search->replays == search->replays_max || stalls == WALK_STALLS) {
      *proved = false;
      break;
    }
    STOW_TRY(try_limit(search, limit, &finishes, &same));
    if (!finishes) break;
    stalls = same < limit ? 0 : stalls + 1;
    *low = same;
  }
  *low = round_up(*low, STEP_BYTES);
  return STOW_OK;
}

/* Finds a limit that finishes while the one below it fails; *high finishes. */
static stow_status bisect(limit_search *search, uint64_t *high) {
  uint64_t low = round_down(search->least, STEP_BYTES), same;
  low = low >= STEP_BYTES ? low - STEP_BYTES : 0;
  *high = round_up(*high, STEP_BYTES);
  while (*high - low > STEP_BYTES) {
    uint64_t middle = round_down(low + (*high - low) / 2, STEP_BYTES);
    bool finishes;
    STOW_TRY(try_limit(search, middle, &finishes, &same));
    if (finishes)
      *high = middle;
    else
      low = middle;
  }
  return STOW_OK;
}

/* Checks that every step of the window above the candidate finishes; if one fails, moves the
 * candidate above it. `top` is known to finish with everything above. */
static stow_status verify_window(limit_search *search, uint64_t *low, uint64_t top) {
  for (uint64_t limit = *low + STEP_BYTES; limit < top && limit <= *low + WINDOW_STEPS * STEP_BYTES;
       limit += STEP_BYTES) {
    bool finishes;
    uint64_t same;
    STOW_TRY(try_limit(search, limit, &finishes, &same));
    if (!finishes) *low = limit + STEP_BYTES;
  }
  return STOW_OK;
}

stow_status replay_min_limit(replay_result *out, const steps *s, const policy_ops *which,
                             const replay_options *options) {
  uint64_t budget = options->search_steps != 0 ? options->search_steps : WALK_STEPS;
  limit_search search = {.s = s,
                         .which = which,
                         .options = *options,
                         .replays_max = 1 + budget / (s->count + 1),
                         .least = s->peak_live_bytes};
  replay_result unlimited;
  search.options.limit_bytes = POLICY_NO_LIMIT;
  out->min_limit_bytes = 0;
  STOW_TRY(replay_run(&unlimited, s, which, &search.options));
  search.replays++;
  if (which == &policy_planned) { /* the same layout under every limit: no search is needed */
    if (unlimited.finishes)
      out->min_limit_bytes = round_up(unlimited.stats.peak_reserved_bytes, STEP_BYTES);
    out->min_limit_proved = true;
  } else if (unlimited.finishes) {
    uint64_t top = unlimited.stats.same_down_to_bytes, low = top;
    STOW_TRY(walk_down(&search, &low, &out->min_limit_proved));
    if (!out->min_limit_proved) {
      STOW_TRY(bisect(&search, &low));
      STOW_TRY(verify_window(&search, &low, top));
      out->min_limit_window_bytes = WINDOW_STEPS * STEP_BYTES;
    }
    out->min_limit_bytes = low;
  }
  out->min_limit_replays = (uint32_t)search.replays;
  return STOW_OK;
}
