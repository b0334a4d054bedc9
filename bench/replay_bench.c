/* How fast recordings are replayed: events a second of processor time, for each policy. The target
 * for torch_default is ten million (events of all kinds, as the recording counts them). */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "recordings/recording_file.h"
#include "replay/replay.h"

static void bench(const char *name, const steps *s, const policy_ops *which) {
  replay_options options = REPLAY_OPTIONS_INIT;
  replay_result r;
  double best = 0;
  for (int round = 0; round < 7; round++) {
    uint64_t start = clock_read_ns(CLOCK_PROCESS_CPUTIME_ID);
    if (replay_run(&r, s, which, &options) != STOW_OK) {
      fprintf(stderr, "%s: %s\n", which->name, stow_status_message());
      exit(1);
    }
    double rate =
        (double)s->event_count * 1e3 / (double)(clock_read_ns(CLOCK_PROCESS_CPUTIME_ID) - start);
    if (rate > best) best = rate;
  }
  printf("replay %-30s %-17s %6.1f million events/s (%.1f million allocs and frees)\n", name,
         which->name, best, best * (double)s->count / (double)s->event_count);
}

int main(int argc, char **argv) {
  static const char *const carried[] = {"tests/samples/gpt_varlen_limit36.5.pickle.gz",
                                        "tests/samples/leak.pickle.gz"};
  int count = argc > 1 ? argc - 1 : 2;
  for (int i = 0; i < count; i++) {
    const char *path = argc > 1 ? argv[i + 1] : carried[i];
    recording record;
    steps s;
    recording_init(&record, 0);
    if (recording_read(&record, path, KIND_AUTO, NULL) != STOW_OK ||
        steps_build(&s, &record, steps_main_device(&record)) != STOW_OK) {
      fprintf(stderr, "%s (run it in the project's folder)\n", stow_status_message());
      return 1;
    }
    for (size_t k = 0; policy_at(k) != NULL; k++) bench(path, &s, policy_at(k));
    steps_free(&s);
    recording_free(&record);
  }
  return 0;
}
