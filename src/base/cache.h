/* Cache: the user's folder for what can be computed or fetched again. */
#ifndef BASE_CACHE_H
#define BASE_CACHE_H

#include <limits.h>
#include <stdbool.h>

/* Writes $XDG_CACHE_HOME/stowage/name, or ~/.cache/stowage/name. With `make`, creates the folders
 * above it, with mode 0700. Returns false if the user has no home folder, the path is too long or a
 * folder cannot be created. Does not allocate. */
bool cache_path(char path[PATH_MAX], const char *name, bool make);

#endif
