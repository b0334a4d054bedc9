/* Rings: lists the rings of processes that have ended, and removes the oldest. */
#include "run/rings.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/list.h"
#include "base/process.h"
#include "run/protocol.h"

static bool was_refused(const ledger *l, int pid) {
  for (size_t i = 0; l->header != NULL && i < LEDGER_REFUSALS_MAX; i++)
    if (l->header->refusals[i].what.pid == (uint64_t)pid) return true;
  return false;
}

/* Returns whether the process of the ring left a file about a failure. */
static bool left_more(int folder, const char *ring) {
  static const char *const ENDINGS[] = {RUN_PICKLE, RUN_ERROR, RUN_OBJECTS};
  ASSERT(run_has_ending(ring, RUN_RING));
  for (size_t i = 0; i < sizeof ENDINGS / sizeof ENDINGS[0]; i++) {
    char other[NAME_MAX + 16];
    snprintf(other, sizeof other, "%.*s%s", (int)(strlen(ring) - strlen(RUN_RING)), ring,
             ENDINGS[i]);
    if (faccessat(folder, other, F_OK, 0) == 0) return true;
  }
  return false;
}

static bool removable(int folder, const char *name, const ledger *l) {
  if (!run_has_ending(name, RUN_RING)) return false;
  int pid = run_process_pid(name);
  process found;
  return pid > 0 && process_read(&found, pid) == PROCESS_DEAD && !was_refused(l, pid) &&
         !left_more(folder, name);
}

typedef struct ring_file {
  struct timespec written;
  char name[NAME_MAX + 1];
} ring_file;

static int oldest_first(const void *a, const void *b) {
  const struct timespec *x = &((const ring_file *)a)->written,
                        *y = &((const ring_file *)b)->written;
  if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
  return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* Lists the removable rings. Without host memory it lists fewer: the next process tries again. */
static size_t list(DIR *files, const ledger *l, ring_file **found) {
  size_t count = 0, capacity = 0;
  struct stat info;
  for (const struct dirent *entry; (entry = readdir(files)) != NULL;) {
    if (!removable(dirfd(files), entry->d_name, l) ||
        fstatat(dirfd(files), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    if (LIST_ROOM(*found, count, capacity, 64, "rings") != STOW_OK) break;
    (*found)[count].written = info.st_mtim;
    snprintf((*found)[count++].name, NAME_MAX + 1, "%s", entry->d_name);
  }
  return count;
}

void run_rings_tidy(const char *folder, const ledger *l) {
  ASSERT(folder != NULL && l != NULL);
  ring_file *found = NULL;
  DIR *files = opendir(folder);
  if (files == NULL) return;
  size_t count = list(files, l, &found);
  if (count > RUN_RINGS_ENDED) {
    qsort(found, count, sizeof *found, oldest_first);
    for (size_t i = 0; i < count - RUN_RINGS_ENDED; i++) unlinkat(dirfd(files), found[i].name, 0);
  }
  free(found);
  closedir(files);
}
