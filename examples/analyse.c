/* Explains a recording, replays and tunes it, and writes its report.
 *
 *   cc analyse.c -lstowage-analysis -lstowage && ./a.out snapshot.pickle report.html */
#include <inttypes.h>
#include <stdio.h>

#include <stowage/explain.h>
#include <stowage/replay.h>
#include <stowage/report.h>
#include <stowage/size.h>
#include <stowage/tune.h>

static int stop(const char *what) {
  fprintf(stderr, "%s: %s\n", what, stow_status_message());
  return 1;
}

static int explain(const stow_recording *recording) {
  stow_explanation *x;
  stow_explanation_info info = STOW_EXPLANATION_INFO_INIT;
  if (stow_explain_recording(&x, recording, NULL) != STOW_OK) return stop("explain");
  stow_explanation_get_info(x, &info);
  printf("%s.\n", info.headline);
  for (uint32_t i = 0; i < info.fix_count; i++) {
    stow_fix fix = STOW_FIX_INIT;
    char size[STOW_SIZE_TEXT_MAX];
    stow_explanation_get_fix(x, i, &fix);
    if (fix.saves_bytes == STOW_BYTES_UNKNOWN)
      printf("  fix: %s\n", fix.change);
    else
      printf("  fix: %s (saves %s)\n", fix.change, stow_size_format(size, fix.saves_bytes));
  }
  stow_explanation_close(x);
  return 0;
}

static int replay(const stow_recording *recording) {
  stow_replay *replay;
  if (stow_replay_open(&replay, recording, NULL) != STOW_OK) return stop("replay");
  for (uint32_t i = 0; stow_replay_policy(i) != NULL; i++) {
    stow_replay_result result = STOW_REPLAY_RESULT_INIT;
    char size[STOW_SIZE_TEXT_MAX];
    if (stow_replay_run(replay, stow_replay_policy(i), 0, &result) != STOW_OK)
      return stop(stow_replay_policy(i));
    printf("  %-18s reserves %s\n", result.policy,
           stow_size_format(size, result.peak_reserved_bytes));
  }
  stow_replay_close(replay);
  return 0;
}

static int tune(const stow_recording *recording) {
  stow_tune *tune;
  stow_tune_info info = STOW_TUNE_INFO_INIT;
  stow_tune_setting best = STOW_TUNE_SETTING_INIT;
  char size[STOW_SIZE_TEXT_MAX];
  if (stow_tune_open(&tune, recording, NULL) != STOW_OK) return stop("tune");
  stow_tune_get_info(tune, &info);
  stow_tune_get_setting(tune, info.best, &best);
  printf("  PYTORCH_ALLOC_CONF=%s runs in %s\n", best.settings,
         stow_size_format(size, best.min_limit_bytes));
  stow_tune_close(tune);
  return 0;
}

static int report(const stow_recording *recording, const char *path) {
  stow_report *report;
  if (stow_report_open(&report, recording, NULL) != STOW_OK) return stop("report");
  if (stow_report_save(report, path) != STOW_OK) return stop(path);
  stow_report_close(report);
  printf("wrote %s\n", path);
  return 0;
}

int main(int argc, char **argv) {
  stow_recording *recording;
  stow_recording_info info = STOW_RECORDING_INFO_INIT;
  if (argc < 3) return fprintf(stderr, "usage: analyse RECORDING REPORT.html\n"), 2;
  if (stow_recording_open(&recording, argv[1], NULL) != STOW_OK) return stop(argv[1]);
  stow_recording_get_info(recording, &info);
  printf("%s: %" PRIu64 " events\n", argv[1], info.events);
  int failed =
      explain(recording) || replay(recording) || tune(recording) || report(recording, argv[2]);
  stow_recording_close(recording);
  return failed;
}
