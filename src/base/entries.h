/* Entries: lists a folder without losing a failed read, which readdir reports by errno alone. */
#ifndef BASE_ENTRIES_H
#define BASE_ENTRIES_H

#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "base/status.h"

/* Returns the next entry of `folder`, or NULL at its end, after a failed read, or if *status is
 * already a failure. A failed read sets *status; `path` is for the message. */
static inline struct dirent *next_entry(DIR *folder, const char *path, stow_status *status) {
  if (*status != STOW_OK) return NULL;
  errno = 0;
  struct dirent *entry = readdir(folder);
  if (entry == NULL && errno != 0)
    *status = stow_fail(STOW_ERR_IO, "%.400s: cannot be listed: %s", path, strerror(errno));
  return entry;
}

#endif
