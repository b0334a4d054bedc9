/* Run folder: making one, pointing `last` at it, clearing away old ones. */
#include "cli/run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"

#define RUNS_KEPT 20

/* mkdir -p. */
static stow_status make_all(char *path) {
  for (char *at = path + 1;; at++) {
    if (*at != '/' && *at != '\0') continue;
    char saved = *at;
    *at = '\0';
    int failed = mkdir(path, 0700) != 0 && errno != EEXIST ? errno : 0;
    if (failed) return stow_fail(STOW_ERR_IO, "making the folder %s: %s", path, strerror(failed));
    *at = saved;
    if (saved == '\0') return STOW_OK;
  }
}

static stow_status runs_path(char path[PATH_MAX]) {
  const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
  int length = 0;
  if (state != NULL && state[0] == '/')
    length = snprintf(path, PATH_MAX, "%s/stowage/runs", state);
  else if (home != NULL && home[0] == '/')
    length = snprintf(path, PATH_MAX, "%s/.local/state/stowage/runs", home);
  else
    return stow_fail(STOW_ERR_IO, "no folder for the files of the run: set HOME or XDG_STATE_HOME");
  if (length >= PATH_MAX - 64)
    return stow_fail(STOW_ERR_IO, "the folder for the files of the run has too long a path");
  return STOW_OK;
}

static stow_status runs_folder(char path[PATH_MAX]) {
  STOW_TRY(runs_path(path));
  return make_all(path);
}

stow_status run_folder_last(char path[PATH_MAX]) {
  char runs[PATH_MAX];
  struct stat info;
  STOW_TRY(runs_path(runs));
  if (snprintf(path, PATH_MAX, "%s/last", runs) >= PATH_MAX || stat(path, &info) != 0)
    return stow_fail(STOW_ERR_NOT_FOUND,
                     "there is no last run in %s: run the program with stowage run first", runs);
  return STOW_OK;
}

/* ---- the end ---- */

void run_folder_write_end(const char *path, const run_end *end) {
  char at[PATH_MAX + 8];
  snprintf(at, sizeof at, "%s/end", path);
  FILE *file = fopen(at, "we");
  if (file == NULL) return; /* a full disk: the run is then told as one without an end */
  fprintf(file, "code %d\nsignal %d\ncommand %s\n", end->code, end->signal_number, end->command);
  fclose(file);
}

bool run_folder_end(const char *path, run_end *end) {
  char at[PATH_MAX + 8];
  *end = (run_end){0};
  snprintf(at, sizeof at, "%s/end", path);
  FILE *file = fopen(at, "re");
  if (file == NULL) return false;
  /* NOLINTNEXTLINE(cert-err34-c): our own numbers */
  bool whole = fscanf(file, "code %d signal %d command %159[^\n]", &end->code, &end->signal_number,
                      end->command) >= 2;
  fclose(file);
  return whole;
}

/* `last` is replaced whole: made beside it and renamed over it. */
static void point_last(const char *runs, const char *name) {
  char made[PATH_MAX + 64], last[PATH_MAX + 64];
  snprintf(made, sizeof made, "%s/last.%d", runs, (int)getpid());
  snprintf(last, sizeof last, "%s/last", runs);
  if (symlink(name, made) == 0 && rename(made, last) != 0) unlink(made);
}

stow_status run_folder_make(char path[PATH_MAX]) {
  char runs[PATH_MAX], name[64];
  STOW_TRY(runs_folder(runs));
  time_t now = time(NULL);
  struct tm local;
  localtime_r(&now, &local);
  size_t length = strftime(name, sizeof name, "%Y%m%d-%H%M%S", &local);
  snprintf(name + length, sizeof name - length, "-%d", (int)getpid());
  int size = snprintf(path, PATH_MAX, "%s/%s", runs, name);
  if (size >= PATH_MAX || mkdir(path, 0700) != 0)
    return stow_fail(STOW_ERR_IO, "making the folder %s/%s: %s", runs, name, strerror(errno));
  point_last(runs, name);
  return STOW_OK;
}

/* ---- tidying ---- */

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at) {
  (void)info, (void)kind, (void)at;
  remove(path);
  return 0;
}

/* Names of runs, "20260101-…": nothing else in the folder is touched. */
static int is_run(const struct dirent *entry) {
  return strspn(entry->d_name, "0123456789-") == strlen(entry->d_name) &&
         strlen(entry->d_name) > strlen("20260101-000000-");
}

/* Its `stowage run` is still there: what its processes share is in the folder. */
static bool is_going_on(const char *name) {
  long pid = strtol(strrchr(name, '-') + 1, NULL, 10);
  return pid > 0 && (kill((pid_t)pid, 0) == 0 || errno == EPERM);
}

void run_folder_tidy(const char *path) {
  char runs[PATH_MAX];
  snprintf(runs, sizeof runs, "%.*s", (int)(strrchr(path, '/') - path), path);
  struct dirent **entries;
  int count = scandir(runs, &entries, is_run, alphasort);
  for (int i = 0; i < count; i++) {
    char old[2 * PATH_MAX];
    snprintf(old, sizeof old, "%s/%s", runs, entries[i]->d_name);
    /* Within a second names are not in the order of time. */
    bool old_one =
        i < count - RUNS_KEPT && strcmp(old, path) != 0 && !is_going_on(entries[i]->d_name);
    if (old_one) nftw(old, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    free(entries[i]);
  }
  if (count >= 0) free(entries);
}
