/* Command: see command.h. */
#include "base/command.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/variables.h"

#define NAME "stowage"

/* lib/stowage, beside an installed library, is the folder of the shims. */
static bool is_program(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* Writes the folder of `file` and `rest` into `path`. Returns true if a program is there. */
static bool beside(char path[COMMAND_PATH_MAX], const char *file, const char *rest) {
  const char *slash = strrchr(file, '/');
  if (slash == NULL) return false;
  int length = snprintf(path, COMMAND_PATH_MAX, "%.*s/%s", (int)(slash - file), file, rest);
  return length > 0 && length < COMMAND_PATH_MAX && is_program(path);
}

static bool on_path(char path[COMMAND_PATH_MAX]) {
  const char *list = secure_getenv("PATH");
  while (list != NULL && *list != '\0') {
    size_t size = strcspn(list, ":");
    int length = snprintf(path, COMMAND_PATH_MAX, "%.*s/%s", (int)size, list, NAME);
    /* Absolute paths only: an empty or relative entry means the current folder. */
    if (list[0] == '/' && length < COMMAND_PATH_MAX && is_program(path)) return true;
    list += size + (list[size] == ':');
  }
  return false;
}

stow_status command_find(char path[COMMAND_PATH_MAX]) {
  const char *named = secure_getenv(ENV_COMMAND);
  if (named != NULL && named[0] != '\0') {
    snprintf(path, COMMAND_PATH_MAX, "%s", named);
    if (is_program(path)) return STOW_OK;
    return stow_fail(STOW_ERR_NOT_FOUND, ENV_COMMAND " names \"%s\", which cannot be executed",
                     named);
  }
  /* dladdr takes any address inside the library or program that this code is linked into. */
  Dl_info here;
  static const char mark;
  if (dladdr(&mark, &here) != 0 && here.dli_fname != NULL &&
      (beside(path, here.dli_fname, NAME) || beside(path, here.dli_fname, "../bin/" NAME) ||
       beside(path, here.dli_fname, "../../bin/" NAME)))
    return STOW_OK;
  char self[COMMAND_PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length > 0) {
    self[length] = '\0';
    const char *slash = strrchr(self, '/');
    if (slash != NULL && strcmp(slash + 1, NAME) == 0 && is_program(self)) {
      memcpy(path, self, (size_t)length + 1);
      return STOW_OK;
    }
  }
  if (on_path(path)) return STOW_OK;
  return stow_fail(
      STOW_ERR_NOT_FOUND,
      "the stowage command was not found beside the library nor on PATH; set " ENV_COMMAND
      " to where it is");
}

char **command_environment(const char *drop) {
  size_t count = 0, length = drop != NULL ? strlen(drop) : 0;
  while (environ[count] != NULL) count++;
  char **copy = malloc((count + 1) * sizeof *copy);
  if (copy == NULL) return NULL;
  size_t kept = 0;
  for (size_t i = 0; i < count; i++) {
    if (strncmp(environ[i], "LD_PRELOAD=", 11) == 0) continue;
    if (drop != NULL && strncmp(environ[i], drop, length) == 0 && environ[i][length] == '=')
      continue;
    copy[kept++] = environ[i];
  }
  copy[kept] = NULL;
  return copy;
}
