/* Cache: the folder that the user's variables name, created only on request. */
#include "base/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness.h"

static char folder[200], wanted[PATH_MAX], path[PATH_MAX];

static void enter(void) {
  snprintf(folder, sizeof folder, "%s/stowage-cache-XXXXXX",
           getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp");
  CHECK(mkdtemp(folder) != NULL);
  CHECK(unsetenv("XDG_CACHE_HOME") == 0 && unsetenv("HOME") == 0);
}

static void leave(void) {
  static const char *const below[] = {"/.cache/stowage", "/.cache", "/stowage", ""};
  for (size_t i = 0; i < sizeof below / sizeof below[0]; i++) {
    char at[PATH_MAX];
    snprintf(at, sizeof at, "%s%s", folder, below[i]);
    rmdir(at);
  }
  CHECK(access(folder, F_OK) != 0);
}

static bool is_private(const char *below) {
  struct stat info;
  char at[PATH_MAX];
  snprintf(at, sizeof at, "%s%s", folder, below);
  return stat(at, &info) == 0 && S_ISDIR(info.st_mode) && (info.st_mode & 077) == 0;
}

TEST(the_cache_is_below_the_home_folder)
{
  enter();
  CHECK(setenv("HOME", folder, 1) == 0);
  snprintf(wanted, sizeof wanted, "%s/.cache/stowage/name", folder);
  CHECK(cache_path(path, "name", false));
  CHECK_TEXT(path, wanted);
  CHECK(!is_private("/.cache"));
  CHECK(cache_path(path, "name", true));
  CHECK_TEXT(path, wanted);
  CHECK(is_private("/.cache") && is_private("/.cache/stowage"));
  leave();
}

TEST(a_variable_names_another_folder)
{
  enter();
  CHECK(setenv("HOME", "/nonexistent", 1) == 0 && setenv("XDG_CACHE_HOME", folder, 1) == 0);
  snprintf(wanted, sizeof wanted, "%s/stowage/name", folder);
  CHECK(cache_path(path, "name", true));
  CHECK_TEXT(path, wanted);
  CHECK(is_private("/stowage"));
  leave();
}

TEST(without_a_home_folder_there_is_no_cache)
{
  static char longest[PATH_MAX + 10];
  enter();
  CHECK(!cache_path(path, "name", false));
  CHECK(setenv("HOME", "relative", 1) == 0 && !cache_path(path, "name", false));
  CHECK(setenv("HOME", "/dev/null", 1) == 0 && !cache_path(path, "name", true));
  longest[0] = '/';
  memset(longest + 1, 'x', PATH_MAX - 20);
  CHECK(setenv("XDG_CACHE_HOME", longest, 1) == 0 && !cache_path(path, "name-of-a-file", false));
  memset(longest + 1, 'x', PATH_MAX);
  CHECK(setenv("XDG_CACHE_HOME", longest, 1) == 0 && !cache_path(path, "name", false));
  leave();
}

TEST_MAIN
