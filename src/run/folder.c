/* Run folder: creates a folder, points `last` at it, and removes old ones. */
#include "run/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/newfile.h"
#include "base/rank.h"
#include "base/status.h"
#include "run/launcher.h"
#include "run/protocol.h"

#define RUNS_KEPT 20

/* Creates a folder and its parents, like mkdir -p. */
static stow_status make_all(char *path) {
  ASSERT(path[0] == '/');
  for (char *at = path + 1;; at++) {
    if (*at != '/' && *at != '\0') continue;
    char saved = *at;
    *at = '\0';
    int failed = mkdir(path, 0700) != 0 && errno != EEXIST ? errno : 0;
    if (failed)
      return stow_fail(STOW_ERR_IO,
                       "creating the folder %s for the files of the run: %s; set XDG_STATE_HOME to "
                       "a writable folder",
                       path, strerror(failed));
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
    return stow_fail(STOW_ERR_IO, "the path of the folder for the files of the run is too long; "
                                  "set XDG_STATE_HOME to a shorter one");
  return STOW_OK;
}

/* Refuses a folder of another user, who could replace what we create in it. Follows a link: people
 * move the folder to a larger disk. */
static stow_status check_owner(const char *path) {
  ASSERT(path != NULL);
  struct stat info;
  if (stat(path, &info) != 0)
    return stow_fail(STOW_ERR_IO, "%.400s: cannot stat: %s", path, strerror(errno));
  if (info.st_uid == geteuid() || info.st_uid == 0) return STOW_OK;
  return stow_fail(STOW_ERR_IO,
                   "the folder %.400s for the files of the run belongs to another user (uid %u); "
                   "set XDG_STATE_HOME to a folder of your own",
                   path, (unsigned)info.st_uid);
}

static stow_status runs_folder(char path[PATH_MAX]) {
  char parent[PATH_MAX];
  STOW_TRY(runs_path(path));
  STOW_TRY(make_all(path));
  snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(path, '/') - path), path);
  STOW_TRY(check_owner(parent));
  return check_owner(path);
}

stow_status run_folder_last(char path[PATH_MAX]) {
  char runs[PATH_MAX];
  struct stat info;
  STOW_TRY(runs_path(runs));
  if (!run_path(path, runs, RUN_LAST) || stat(path, &info) != 0)
    return stow_fail(STOW_ERR_NOT_FOUND,
                     "there is no last run in %s: run the program with stowage run first", runs);
  return STOW_OK;
}

/* ---- the end ---- */

void run_folder_write_end(const char *path, const run_end *end) {
  ASSERT(path != NULL && end != NULL);
  char at[PATH_MAX];
  char text[sizeof end->command + 128];
  int length = snprintf(text, sizeof text, "code %d\nsignal %d\ncommand %s\nkernel %d\n", end->code,
                        end->signal_number, end->command, end->by_kernel);
  /* On a full disk this fails, and the run is later reported as one that has not ended. */
  if (length > 0 && run_path(at, path, RUN_END)) (void)newfile_write(at, text, (size_t)length);
}

stow_status run_folder_read_end(const char *path, run_end *end, bool *known) {
  ASSERT(path != NULL && end != NULL && known != NULL);
  char at[PATH_MAX];
  *end = (run_end){0};
  *known = false;
  if (!run_path(at, path, RUN_END)) return STOW_OK;
  /* read(2) allocates nothing: without host memory a run that ended still counts as ended. */
  char text[512];
  int file = open(at, O_RDONLY | O_CLOEXEC | O_NONBLOCK), used = 0, by_kernel = 0;
  size_t length = 0;
  ssize_t got = -1;
  while (file >= 0 && length < sizeof text - 1) {
    got = read(file, text + length, sizeof text - 1 - length);
    if (got == 0 || (got < 0 && errno != EINTR)) break;
    if (got > 0) length += (size_t)got;
  }
  int error = errno;
  if (file >= 0) close(file);
  if (got < 0 && (error == ENOENT || error == ENOTDIR)) return STOW_OK;
  if (got < 0) return stow_fail(STOW_ERR_IO, "%.400s: cannot read: %s", at, strerror(error));
  text[length] = '\0';
  /* NOLINTNEXTLINE(cert-err34-c): our own numbers */
  *known = sscanf(text, "code %d signal %d command %159[^\n]%n", &end->code, &end->signal_number,
                  end->command, &used) >= 2;
  /* NOLINTNEXTLINE(cert-err34-c) */
  end->by_kernel = sscanf(text + used, " kernel %d", &by_kernel) == 1 && by_kernel != 0;
  return STOW_OK;
}

bool run_folder_end(const char *path, run_end *end) {
  bool known;
  return run_folder_read_end(path, end, &known) == STOW_OK && known;
}

/* Replaces the link `last` atomically: creates a new link and renames it. */
static void point_last(const char *runs, const char *name) {
  ASSERT(name != NULL);
  char made[PATH_MAX + 64], last[PATH_MAX + 64];
  snprintf(made, sizeof made, "%s/" RUN_LAST ".%d", runs, (int)getpid());
  snprintf(last, sizeof last, "%s/" RUN_LAST, runs);
  if (symlink(name, made) == 0 && rename(made, last) != 0) unlink(made);
}

static void name_of_now(char name[32]) {
  time_t now = time(NULL);
  struct tm local;
  localtime_r(&now, &local);
  strftime(name, 32, "%Y%m%d-%H%M%S", &local);
}

static stow_status make_one(char path[PATH_MAX], const char *runs, const char *name) {
  int size = snprintf(path, PATH_MAX, "%s/%s", runs, name);
  if (size < PATH_MAX && mkdir(path, 0700) == 0) return STOW_OK;
  return stow_fail(STOW_ERR_IO, "creating the folder %s/%s: %s", runs, name, strerror(errno));
}

/* ---- the ranks of one start ---- */

static int is_rank(const struct dirent *entry) {
  return strncmp(entry->d_name, RUN_RANK, strlen(RUN_RANK)) == 0;
}

/* Finds the folder that the ranks of one start share: DATE-TIME-TURN-START-PID of their launcher.
 * Uses the first such folder that this rank has not joined yet, because a launcher's script may run
 * several commands in turn. `runs` is locked. */
static stow_status join_launch(char path[PATH_MAX], const char *runs, const run_launcher *by) {
  ASSERT(by->pid > 0);
  struct dirent **entries;
  char tail[64], name[128], now[32], share[32];
  int turns = 0;
  snprintf(tail, sizeof tail, "-%" PRIu64 "-%d", by->start, (int)by->pid);
  snprintf(share, sizeof share, RUN_RANK "%s", rank_text());
  int count = scandir(runs, &entries, NULL, alphasort);
  bool joined = false;
  for (int i = 0; i < count; i++) {
    size_t length = strlen(entries[i]->d_name), end = strlen(tail);
    bool theirs = length > end && strcmp(entries[i]->d_name + length - end, tail) == 0;
    if (theirs && !joined &&
        snprintf(path, PATH_MAX, "%s/%s/%s", runs, entries[i]->d_name, share) < PATH_MAX)
      joined = mkdir(path, 0700) == 0;
    turns += theirs;
    free(entries[i]);
  }
  if (count >= 0) free(entries);
  if (joined) return STOW_OK;
  name_of_now(now);
  snprintf(name, sizeof name, "%s-%d%s", now, turns, tail);
  STOW_TRY(make_one(path, runs, name));
  point_last(runs, name);
  char own[PATH_MAX];
  STOW_TRY(make_one(own, path, share));
  snprintf(path, PATH_MAX, "%s", own);
  return STOW_OK;
}

bool run_folder_rank(char path[PATH_MAX], char rank[32]) {
  struct dirent **entries;
  struct timespec first = {0};
  char whole[PATH_MAX], best[NAME_MAX + 1] = "";
  bool failed = false;
  snprintf(whole, sizeof whole, "%s", path);
  int count = scandir(whole, &entries, is_rank, versionsort);
  for (int i = 0; i < count; i++) {
    char at[PATH_MAX];
    run_end end;
    struct stat info;
    const char *name = entries[i]->d_name;
    if (i == 0) snprintf(best, sizeof best, "%s", name);
    if (snprintf(at, sizeof at, "%s/%s", whole, name) < (int)sizeof at &&
        run_folder_end(at, &end) && (end.code != 0 || end.signal_number != 0) &&
        snprintf(at, sizeof at, "%s/%s/" RUN_END, whole, name) < (int)sizeof at &&
        stat(at, &info) == 0 &&
        (!failed || info.st_mtim.tv_sec < first.tv_sec ||
         (info.st_mtim.tv_sec == first.tv_sec && info.st_mtim.tv_nsec < first.tv_nsec))) {
      failed = true;
      first = info.st_mtim;
      snprintf(best, sizeof best, "%s", name);
    }
    free(entries[i]);
  }
  if (count >= 0) free(entries);
  if (best[0] == '\0' || snprintf(path, PATH_MAX, "%s/%s", whole, best) >= PATH_MAX) return false;
  snprintf(rank, 32, "%.31s", best + strlen(RUN_RANK));
  return true;
}

stow_status run_folder_make(char path[PATH_MAX]) {
  char runs[PATH_MAX], name[64], now[32];
  run_launcher by;
  STOW_TRY(runs_folder(runs));
  if (run_launcher_find(&by)) {
    char at[PATH_MAX];
    snprintf(at, sizeof at, "%.*s/.lock", (int)sizeof at - 8, runs);
    int fd = newfile_own(AT_FDCWD, at, 0, 0600);
    /* If the lock fails, ranks that start at the same moment may get two folders. */
    if (fd >= 0) (void)flock(fd, LOCK_EX);
    stow_status status = join_launch(path, runs, &by);
    if (fd >= 0) close(fd);
    return status;
  }
  name_of_now(now);
  snprintf(name, sizeof name, "%s-%d", now, (int)getpid());
  STOW_TRY(make_one(path, runs, name));
  point_last(runs, name);
  return STOW_OK;
}

/* ---- tidying ---- */

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at) {
  (void)info, (void)kind, (void)at;
  remove(path);
  return 0;
}

/* Selects the names of runs, "20260101-…"; nothing else in the folder is touched. */
static int is_run(const struct dirent *entry) {
  return strspn(entry->d_name, "0123456789-") == strlen(entry->d_name) &&
         strlen(entry->d_name) > strlen("20260101-000000-");
}

static bool has_ended(const char *path) {
  char at[PATH_MAX];
  struct dirent **entries;
  if (run_path(at, path, RUN_END) && access(at, F_OK) == 0) return true;
  int count = scandir(path, &entries, is_rank, alphasort), ended = 0;
  for (int i = 0; i < count; i++) {
    ended += snprintf(at, sizeof at, "%s/%s/" RUN_END, path, entries[i]->d_name) < (int)sizeof at &&
             access(at, F_OK) == 0;
    free(entries[i]);
  }
  if (count >= 0) free(entries);
  return count > 0 && ended == count;
}

/* Returns whether the run's `stowage run`, or the launcher of its ranks, is still running. Its
 * processes then still use the folder. */
static bool is_going_on(const char *path) {
  ASSERT(strrchr(path, '-') != NULL);
  long pid = strtol(strrchr(path, '-') + 1, NULL, 10);
  return pid > 0 && (kill((pid_t)pid, 0) == 0 || errno == EPERM) && !has_ended(path);
}

/* Adds the folder, or the folders of its ranks. */
static size_t add_live(char (*paths)[PATH_MAX], size_t count, size_t max, const char *path) {
  struct dirent **ranks;
  int found = scandir(path, &ranks, is_rank, versionsort);
  if (found <= 0 && count < max) snprintf(paths[count++], PATH_MAX, "%s", path);
  for (int i = 0; i < found; i++) {
    char at[PATH_MAX];
    run_end end;
    if (count < max && run_path(at, path, ranks[i]->d_name) && !run_folder_end(at, &end))
      memcpy(paths[count++], at, sizeof at);
    free(ranks[i]);
  }
  if (found >= 0) free(ranks);
  return count;
}

size_t run_folder_live(char (*paths)[PATH_MAX], size_t max) {
  ASSERT(paths != NULL);
  char runs[PATH_MAX];
  struct dirent **entries;
  size_t live = 0;
  if (runs_path(runs) != STOW_OK) return 0;
  int count = scandir(runs, &entries, is_run, alphasort);
  for (int i = count - 1; i >= 0; i--) {
    char path[PATH_MAX];
    if (run_path(path, runs, entries[i]->d_name) && is_going_on(path))
      live = add_live(paths, live, max, path);
    free(entries[i]);
  }
  if (count >= 0) free(entries);
  return live;
}

void run_folder_tidy(const char *path) {
  ASSERT(path != NULL);
  char runs[PATH_MAX];
  struct dirent **entries;
  if (runs_path(runs) != STOW_OK) return;
  int count = scandir(runs, &entries, is_run, alphasort);
  for (int i = 0; i < count; i++) {
    char old[2 * PATH_MAX];
    int length = snprintf(old, sizeof old, "%s/%s", runs, entries[i]->d_name);
    bool own =
        strncmp(old, path, (size_t)length) == 0 && (path[length] == '\0' || path[length] == '/');
    /* Names of runs within one second are not ordered by time, so never remove our own. */
    if (i < count - RUNS_KEPT && !own && !is_going_on(old))
      nftw(old, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    free(entries[i]);
  }
  if (count >= 0) free(entries);
}
