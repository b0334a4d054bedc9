/* Loops bench: the smallest memory for recorded loops: the smallest limit from which every 2 MiB
 * step upward finishes, compared with the peak of live bytes, and the cost of the page calls at
 * that limit.
 *
 * Recordings are named by the arguments, or are all of the folder STOWAGE_RECORDINGS, or the two
 * kept beside the tests. They run through the real heap on a simulated device whose calls take the
 * time they take on an H200, waits for events included (modelled). The time of the calls is
 * compared with the recorded time of the same range: from the fourth iteration on where the
 * recording marks iterations. A generation loop marks none: its first iteration is the pass over
 * the prompt, where live bytes peak, and what counts begins right after that peak, with the second.
 * A recording that ends out of memory is not a loop and has no such figure. at_1.01 (1.03 for
 * generation, as much as it may have) is the same at that limit. */
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recordings/recording_file.h"
#include "replay/replay.h"

static void must(stow_status status) {
  if (status == STOW_OK) return;
  fprintf(stderr, "loops_bench: %s\n", stow_status_message());
  exit(1);
}

/* Returns the event where the first mark begins for the fourth time; 0 if there are no marks. */
static size_t fourth(const recording *r) {
  uint32_t first = 0;
  int seen = 0;
  for (size_t i = 0; i < r->event_count; i++) {
    const event *e = &r->events[i];
    if (e->kind != EVENT_MARK_BEGIN) continue;
    uint32_t name = event_origin(r, e)->tag_id;
    if (seen == 0) first = name;
    if (name == first && ++seen == 4) return i;
  }
  return 0;
}

/* Returns the event after the one at which live bytes first reach their peak. */
static size_t peaked(const steps *s) {
  uint64_t live = 0, most = 0;
  size_t at = 0;
  for (size_t i = 0; i < s->count; i++) {
    if (s->list[i].kind == STEP_ALLOC) live += s->list[i].bytes;
    if (s->list[i].kind == STEP_FREE) live -= s->list[i].bytes;
    if (live > most) most = live, at = s->list[i].event + 1;
  }
  return at;
}

static bool fails(const recording *r) {
  for (size_t i = 0; i < r->event_count; i++)
    if (r->events[i].kind == EVENT_FAIL) return true;
  return false;
}

static uint64_t page_time(const steps *s, uint64_t limit) {
  replay_options o = REPLAY_OPTIONS_INIT;
  o.limit_bytes = limit;
  replay_result r;
  must(replay_run(&r, s, &policy_stowage, &o));
  return r.stats.page_time_ns;
}

#define STEP (UINT64_C(2) << 20)

/* Tries every step from `limit` up to where the heap requests no more memory, unless that is
 * already known. Returns the lowest limit above which none fails. Takes half a minute of CPU time
 * for the longest recording, so it is done only for recordings named on the command line. */
static uint64_t prove(const steps *s, const replay_result *found) {
  replay_options o = REPLAY_OPTIONS_INIT;
  replay_result r;
  uint64_t limit = found->min_limit_bytes;
  if (found->min_limit_proved) return limit;
  must(replay_run(&r, s, &policy_stowage, &o));
  uint64_t top = r.stats.peak_reserved_bytes;
  for (uint64_t at = limit + found->min_limit_window_bytes; at < top; at += STEP) {
    o.limit_bytes = at;
    must(replay_run(&r, s, &policy_stowage, &o));
    if (!r.finishes) limit = at + STEP;
  }
  return limit;
}

static void loop(const char *path, bool thorough) {
  recording r;
  steps s;
  recording_init(&r, 0);
  must(recording_read(&r, path, KIND_AUTO, NULL));
  must(steps_build(&s, &r, steps_main_device(&r)));
  replay_options o = REPLAY_OPTIONS_INIT;
  replay_result found;
  must(replay_min_limit(&found, &s, &policy_stowage, &o));
  uint64_t limit = thorough ? prove(&s, &found) : found.min_limit_bytes;
  const char *name = strrchr(path, '/');
  double most = strstr(path, "generate") ? 1.03 : 1.01;
  printf("case=loop_%s ours=%.4f unit=limit/peak_live (of %.2f%s)", name ? name + 1 : path,
         (double)limit / (double)s.peak_live_bytes, most,
         thorough || found.min_limit_proved ? "" : "; the 32 steps above it tried");
  if (!fails(&r)) {
    size_t marked = fourth(&r), from = marked ? marked : peaked(&s);
    steps head = s;
    for (head.count = 0; head.count < s.count && s.list[head.count].event < from;) head.count++;
    uint64_t bound = (uint64_t)((double)s.peak_live_bytes * most);
    double ms = (double)(page_time(&s, limit) - page_time(&head, limit)) / 1e6;
    double bound_ms = (double)(page_time(&s, bound) - page_time(&head, bound)) / 1e6;
    double of_ms = (double)(r.events[r.event_count - 1].time_ns - r.events[from].time_ns) / 1e6;
    printf(" page_time_ms=%.2f of_ms=%.0f percent=%.2f (of 1, modelled, from %s) at_%.2f=%.2f", ms,
           of_ms, of_ms > 0 ? 100 * ms / of_ms : 0,
           marked ? "the fourth iteration" : "the prompt's peak", most,
           of_ms > 0 ? 100 * bound_ms / of_ms : 0);
  }
  printf("\n");
  steps_free(&s);
  recording_free(&r);
}

int main(int argc, char **argv) {
  static const char *const carried[] = {"tests/samples/gpt_varlen_limit36.5.pickle.gz",
                                        "tests/samples/gpt_varlen_expandable.pickle.gz"};
  const char *folder = getenv("STOWAGE_RECORDINGS");
  char pattern[4096];
  glob_t in = {0};
  const char *const *paths = argc > 1 ? (const char *const *)argv + 1 : carried;
  size_t count = argc > 1 ? (size_t)argc - 1 : 2;
  if (argc == 1 && folder &&
      snprintf(pattern, sizeof pattern, "%s/*.pickle.gz", folder) < (int)sizeof pattern &&
      glob(pattern, 0, NULL, &in) == 0) {
    paths = (const char *const *)in.gl_pathv;
    count = in.gl_pathc;
  }
  for (size_t i = 0; i < count; i++) loop(paths[i], paths != carried);
  globfree(&in);
  return 0;
}
