/* Missing: see missing.h. */
#include "files/missing.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/nearest.h"

/* A folder with more names is not searched to the end: a message must not take seconds. */
enum { NAMES_MAX = 10000 };

/* Copies the name in `folder` that is closest to `name` to `found`; empty: none is close. */
static void similar(char found[NAME_MAX + 1], DIR *folder, const char *name) {
  nearest n = nearest_begin(name);
  const struct dirent *entry;
  found[0] = '\0';
  for (int i = 0; i < NAMES_MAX && (entry = readdir(folder)) != NULL; i++)
    if (entry->d_name[0] != '.' && nearest_try(&n, entry->d_name))
      snprintf(found, NAME_MAX + 1, "%s", entry->d_name);
}

stow_status missing_fail(const char *path, int error) {
  if (strstr(path, "://") != NULL)
    return stow_fail(STOW_ERR_INVALID,
                     "%s: cannot open: Stowage reads files, and data files at http and https URLs; "
                     "copy it to disk first (in Python, stowage.open and stowage.batches read "
                     "stores with fsspec)",
                     path);
  if (error != ENOENT) return stow_fail(STOW_ERR_IO, "%s: cannot open: %s", path, strerror(error));
  const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
  int length = slash != NULL ? (int)(name - path) : 0; /* with the slash */
  char folder[PATH_MAX], found[NAME_MAX + 1];
  snprintf(folder, sizeof folder, "%.*s", length, length > 0 ? path : "");
  DIR *list = opendir(length > 0 ? folder : ".");
  if (list == NULL)
    return stow_fail(STOW_ERR_NOT_FOUND, "%s: cannot open: %s; check the folder %s", path,
                     strerror(ENOENT), length > 0 ? folder : "you are in");
  similar(found, list, name);
  closedir(list);
  if (found[0] == '\0')
    return stow_fail(STOW_ERR_NOT_FOUND, "%s: cannot open: %s; check the path", path,
                     strerror(ENOENT));
  return stow_fail(STOW_ERR_NOT_FOUND, "%s: cannot open: %s; did you mean %s%s?", path,
                   strerror(ENOENT), folder, found);
}
