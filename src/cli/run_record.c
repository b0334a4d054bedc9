/* Run record: turns the rings and .stow files in a run's folder into complete .stow files. */
#include "cli/run_record.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/rank.h"
#include "base/status.h"
#include "files/outfile.h"
#include "recordings/recording_file.h"
#include "recordings/run_trace.h"
#include "run/protocol.h"

/* Memory limit for one trace while it is assembled. */
#define GATHER_BYTES_MAX ((uint64_t)4 << 30)

static int is_ring(const struct dirent *entry) {
  return run_has_ending(entry->d_name, RUN_RING);
}

/* Writes the path to which the trace of the process `name` goes. */
static void target(char to[PATH_MAX], const char *folder, const char *path, const char *name,
                   bool first) {
  size_t stem = path == NULL ? 0 : strlen(path);
  if (path != NULL && run_has_ending(path, RUN_STOW)) stem -= strlen(RUN_STOW);
  if (path == NULL)
    run_process_path(to, folder, name, RUN_STOW);
  else if (first && rank_of_many() && rank_text()[0] != '\0')
    /* The other ranks were given the same path. */
    snprintf(to, PATH_MAX, "%.*s-" RUN_RANK "%s" RUN_STOW, (int)stem, path, rank_text());
  else if (first)
    snprintf(to, PATH_MAX, "%s", path);
  else
    snprintf(to, PATH_MAX, "%.*s-%s" RUN_STOW, (int)stem, path, name);
}

stow_status run_record_check(const char *path) {
  char folder[PATH_MAX];
  struct stat info;
  const char *slash = strrchr(path, '/');
  int length = slash == NULL ? 1 : slash == path ? 1 : (int)(slash - path);
  if (snprintf(folder, sizeof folder, "%.*s", length, slash == NULL ? "." : path) >= PATH_MAX)
    return stow_fail(STOW_ERR_INVALID, "--record: the path is too long");
  if (stat(folder, &info) != 0 || !S_ISDIR(info.st_mode))
    return stow_fail(STOW_ERR_IO,
                     "--record %.200s: the folder %.200s does not exist; create it first", path,
                     folder);
  if (outfile_check(path) != STOW_OK)
    return stow_fail(STOW_ERR_IO, "--record: %.400s", stow_status_message());
  if (access(folder, W_OK | X_OK) != 0)
    return stow_fail(STOW_ERR_IO, "--record %.200s: cannot be written: %s", path, strerror(errno));
  return STOW_OK;
}

static stow_status gather_one(const char *folder, const char *name, const char *to) {
  char ring[PATH_MAX], file[PATH_MAX], whole[PATH_MAX];
  recording r;
  if (!run_process_path(ring, folder, name, RUN_RING) ||
      !run_process_path(file, folder, name, RUN_STOW))
    return stow_fail(STOW_ERR_IO, "the path of the run's folder is too long: %.200s", folder);
  recording_init(&r, GATHER_BYTES_MAX);
  stow_status status = run_trace_read(&r, folder, name);
  if (status == STOW_OK) status = recording_write(&r, to, KIND_STOW, NULL);
  recording_free(&r);
  if (status != STOW_OK) return status;
  unlink(ring);
  if (strcmp(file, to) == 0) return STOW_OK;
  /* The folder keeps a link to the file, for `explain`. */
  unlink(file);
  if (realpath(to, whole) != NULL && symlink(whole, file) != 0) return STOW_OK;
  return STOW_OK;
}

void run_record_gather(run_gathered *out, const char *folder, const char *path, int pid,
                       bool failed, void (*report)(const char *name, const char *folder)) {
  struct dirent **entries;
  *out = (run_gathered){0};
  int count = scandir(folder, &entries, is_ring, alphasort);
  int first = 0;
  for (int i = 0; i < count; i++)
    if (run_process_pid(entries[i]->d_name) == pid) first = i;
  for (int i = 0; i < count; i++) {
    char to[PATH_MAX], name[256], ring[PATH_MAX];
    snprintf(name, sizeof name, "%.*s", (int)(strlen(entries[i]->d_name) - strlen(RUN_RING)),
             entries[i]->d_name);
    snprintf(ring, sizeof ring, "%s/%s", folder, entries[i]->d_name);
    if (path != NULL || failed) {
      target(to, folder, path, name, i == first);
      if (gather_one(folder, name, to) == STOW_OK) {
        out->written++;
        if (out->kept[0] == '\0' || i == first) snprintf(out->kept, PATH_MAX, "%s", to);
      } else {
        out->failed++;
        report(name, folder);
      }
    } else
      unlink(ring);
    free(entries[i]);
  }
  if (count >= 0) free(entries);
}
