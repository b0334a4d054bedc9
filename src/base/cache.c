/* Cache: finds the folder and creates it. */
#include "base/cache.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool make_folder(const char *path) {
  return mkdir(path, 0700) == 0 || errno == EEXIST;
}

bool cache_path(char path[PATH_MAX], const char *name, bool make) {
  const char *cache = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
  bool set = cache != NULL && cache[0] == '/';
  if (!set && (home == NULL || home[0] != '/')) return false;
  int above = snprintf(path, PATH_MAX, "%s%s", set ? cache : home, set ? "" : "/.cache");
  if (above < 0 || above >= PATH_MAX || (make && !make_folder(path))) return false;
  int folder = above + (int)strlen("/stowage");
  int length = snprintf(path + above, (size_t)(PATH_MAX - above), "/stowage/%s", name);
  if (length < 0 || above + length >= PATH_MAX) return false;
  if (!make) return true;
  path[folder] = '\0';
  bool made = make_folder(path);
  path[folder] = '/';
  return made;
}
