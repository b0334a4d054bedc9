/* Installed: checks PATH, the Python environments beside its folders, and the files beside the
 * shim. */
#include "cli/installed.h"

#include <fcntl.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "cli/run_shim.h"

#define HEAD_MAX (64 << 10)

/* Returns whether the beginning of the file contains one of the two texts. False if it cannot be
 * read. */
static bool file_contains(const char *path, const char *text, const char *other) {
  char *head = malloc(HEAD_MAX);
  int fd = head != NULL ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
  ssize_t got = fd >= 0 ? read(fd, head, HEAD_MAX) : -1;
  bool found = got > 0 && (memmem(head, (size_t)got, text, strlen(text)) != NULL ||
                           memmem(head, (size_t)got, other, strlen(other)) != NULL);
  if (fd >= 0) close(fd);
  free(head);
  return found;
}

/* Returns whether a command is ours: a compiled program, or the script that pip generates for
 * stowage._command. */
static bool is_ours(const char *path) {
  char magic[4] = "";
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  bool compiled = fd >= 0 && read(fd, magic, 4) == 4 && memcmp(magic, "\177ELF", 4) == 0;
  if (fd >= 0) close(fd);
  return compiled || file_contains(path, "stowage._command", "stowage/_native");
}

/* Looks for metadata of a distribution "stowage" that does not own our files. `pattern` matches its
 * RECORD files. */
static void look_for_package(installed *answer, const char *pattern) {
  glob_t all;
  if (answer->foreign_package[0] != '\0' || glob(pattern, 0, NULL, &all) != 0) return;
  for (size_t i = 0; i < all.gl_pathc; i++) {
    if (file_contains(all.gl_pathv[i], "stowage/_native/", "stowage/_command.py")) continue;
    snprintf(answer->foreign_package, sizeof answer->foreign_package, "%s", all.gl_pathv[i]);
    *strrchr(answer->foreign_package, '/') = '\0';
    break;
  }
  globfree(&all);
}

static void look_on_path(installed *answer) {
  const char *path = getenv("PATH");
  char *folders = path != NULL ? strdup(path) : NULL, *rest = NULL;
  bool first = true;
  for (char *at = folders != NULL ? strtok_r(folders, ":", &rest) : NULL; at != NULL;
       at = strtok_r(NULL, ":", &rest)) {
    char name[PATH_MAX];
    if (snprintf(name, sizeof name, "%s/stowage", at) >= PATH_MAX || access(name, X_OK) != 0)
      continue;
    if (first && !is_ours(name))
      snprintf(answer->foreign_command, sizeof answer->foreign_command, "%s", name);
    first = false;
    for (int i = 0; i < 2; i++) {
      if (snprintf(name, sizeof name, "%s/../lib/python3*/%s-packages/stowage-*.dist-info/RECORD",
                   at, i == 0 ? "site" : "dist") < PATH_MAX)
        look_for_package(answer, name);
    }
  }
  free(folders);
}

static void look_beside_shim(installed *answer) {
  static const char *const names[] = {"libstowage-shim-alias.so", "libstowage-shim-nvml.so",
                                      "libstowage-host.so", "libstowage-profile.so"};
  char shim[PATH_MAX], beside[PATH_MAX + 32];
  if (run_shim_find(shim) != STOW_OK) {
    snprintf(answer->missing, sizeof answer->missing, "libstowage-shim.so");
    return;
  }
  *strrchr(shim, '/') = '\0';
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    snprintf(beside, sizeof beside, "%s/%s", shim, names[i]);
    if (access(beside, R_OK) == 0) continue;
    snprintf(answer->missing, sizeof answer->missing, "%s", names[i]);
    return;
  }
}

void installed_look(installed *answer) {
  memset(answer, 0, sizeof *answer);
  ssize_t length = readlink("/proc/self/exe", answer->own_folder, sizeof answer->own_folder - 1);
  if (length > 0) {
    answer->own_folder[length] = '\0';
    char *slash = strrchr(answer->own_folder, '/');
    if (slash != NULL) *slash = '\0';
  }
  /* In a wheel, the command is in PACKAGES/stowage/_native/bin. */
  const char *native = strstr(answer->own_folder, "/stowage/_native/bin");
  char pattern[PATH_MAX];
  if (native != NULL && snprintf(pattern, sizeof pattern, "%.*s/stowage-*.dist-info/RECORD",
                                 (int)(native - answer->own_folder), answer->own_folder) < PATH_MAX)
    look_for_package(answer, pattern);
  look_on_path(answer);
  look_beside_shim(answer);
}
