/* stowage completion: prints the completion file of a shell, or installs it for the current user.
 */
#include "cli/completion.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/newfile.h"
#include "cli/output.h"
#include "cli/verb.h"

/* A shell: how its completion file is written, and where the user's own files of that kind are. */
typedef struct shell {
  const char *name;
  void (*write)(buffer *b, const verb *const *all);
  const char *base_variable; /* XDG base folder, and its default below HOME */
  const char *base_default;
  const char *place; /* path of the file, below the base folder */
  const char *note;  /* what else the user must do; NULL: nothing */
} shell;

static const shell shells[] = {
    {"bash", completion_bash, "XDG_DATA_HOME", ".local/share",
     "bash-completion/completions/stowage",
     "it needs the package bash-completion; for bash alone, source this file in ~/.bashrc"},
    {"zsh", completion_zsh, "XDG_DATA_HOME", ".local/share", "zsh/site-functions/_stowage",
     "zsh reads it if ~/.zshrc has this line before compinit: fpath+=(\"${XDG_DATA_HOME:-$HOME/"
     ".local/share}/zsh/site-functions\")"},
    {"fish", completion_fish, "XDG_CONFIG_HOME", ".config", "fish/completions/stowage.fish", NULL},
};

static const shell *shell_find(const char *name) {
  for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++)
    if (strcmp(shells[i].name, name) == 0) return &shells[i];
  return NULL;
}

/* ---- installing ---- */

static stow_status shell_path(char path[PATH_MAX], const shell *which) {
  const char *base = getenv(which->base_variable), *home = getenv("HOME");
  int length = 0;
  if (base != NULL && base[0] == '/')
    length = snprintf(path, PATH_MAX, "%s/%s", base, which->place);
  else if (home != NULL && home[0] == '/')
    length = snprintf(path, PATH_MAX, "%s/%s/%s", home, which->base_default, which->place);
  else
    return stow_fail(STOW_ERR_INVALID, "no home folder: set HOME or %s", which->base_variable);
  if (length >= PATH_MAX - 16)
    return stow_fail(STOW_ERR_INVALID, "%s: the path is too long", which->base_variable);
  return STOW_OK;
}

/* Creates the folders above `path`. */
static stow_status make_folders(char *path) {
  for (char *at = strchr(path + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
    *at = '\0';
    int failed = mkdir(path, 0755) != 0 && errno != EEXIST ? errno : 0;
    stow_status status = STOW_OK;
    if (failed) status = stow_fail(STOW_ERR_IO, "folder %s: %s", path, strerror(failed));
    *at = '/';
    STOW_TRY(status);
  }
  return STOW_OK;
}

/* Sets *there if the file exists. Fails if this verb did not write it; a symbolic link counts as
 * foreign. */
static stow_status check_foreign(const char *path, bool *there) {
  *there = false;
  int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT) return STOW_OK;
  char head[256] = "";
  ssize_t got = fd >= 0 ? read(fd, head, sizeof head - 1) : -1;
  if (fd >= 0) close(fd);
  *there = true;
  if (got > 0 && strstr(head, COMPLETION_MARK) != NULL) return STOW_OK;
  return stow_fail(STOW_ERR_IO,
                   "%s exists and was not written by stowage, so it was not replaced; move it away "
                   "and try again",
                   path);
}

static stow_status write_file(const char *path, const buffer *b, bool replace) {
  char made[PATH_MAX];
  int fd = newfile_beside(made, sizeof made, path, 0644);
  if (fd < 0) return stow_fail(STOW_ERR_IO, "%s: %s", path, strerror(errno));
  size_t done = 0;
  int failed = 0;
  while (done < b->length && failed == 0) {
    ssize_t wrote = write(fd, b->data + done, b->length - done);
    if (wrote >= 0)
      done += (size_t)wrote;
    else if (errno != EINTR)
      failed = errno;
  }
  if (close(fd) != 0 && failed == 0) failed = errno;
  /* link() does not overwrite a file that another program created in the meantime. */
  if (failed == 0 && (replace ? rename(made, path) : link(made, path)) != 0) failed = errno;
  if (failed != 0 || !replace) unlink(made);
  return failed == 0 ? STOW_OK : stow_fail(STOW_ERR_IO, "%s: %s", path, strerror(failed));
}

static stow_status install(const shell *which, const verb *const *all) {
  char path[PATH_MAX];
  bool there;
  buffer b = BUFFER_INIT;
  STOW_TRY(shell_path(path, which));
  STOW_TRY(make_folders(path));
  STOW_TRY(check_foreign(path, &there));
  which->write(&b, all);
  stow_status status = b.status;
  if (status == STOW_OK) status = write_file(path, &b, there);
  buffer_free(&b);
  if (status != STOW_OK) return status;
  output_printf("%s completion %s: %s\n", which->name, there ? "updated" : "installed",
                output_name(path));
  if (which->note != NULL) output_printf("%s\n", which->note);
  output_printf("start a new %s to use it\n", which->name);
  return STOW_OK;
}

/* ---- the verb ---- */

static int run(verb_call *call) {
  const char *name = call->operand_count > 0 ? call->operands[0] : NULL;
  if (name == NULL) {
    if (!verb_flag(call, "install"))
      return verb_usage(call, "name a shell: bash, zsh or fish; or --install for the one you use");
    name = getenv("SHELL");
    if (name == NULL || name[0] == '\0')
      return verb_usage(call, "SHELL is not set; name a shell: stowage completion --install bash");
    if (strrchr(name, '/') != NULL) name = strrchr(name, '/') + 1;
  }
  const shell *which = shell_find(name);
  if (which == NULL)
    return verb_usage(call, "no completion for \"%.40s\"; use bash, zsh or fish", name);
  stow_status status;
  if (verb_flag(call, "install")) {
    status = install(which, call->all);
  } else {
    buffer b = BUFFER_INIT;
    which->write(&b, call->all);
    status = output_buffer(&b);
  }
  return status == STOW_OK ? EXIT_DONE : verb_fail(call, status);
}

static const verb_option options[] = {
    {"install", NULL, "write it to the current user's folder for that shell, and print the path"},
    VERB_OPTIONS_END,
};

const verb verb_completion = {
    .name = "completion",
    .summary = "print or install tab completion for bash, zsh or fish",
    .example = "stowage completion --install\nstowage completion fish > stowage.fish",
    .operands = "[bash|zsh|fish]",
    .operand_words = "bash|zsh|fish",
    .operands_min = 0,
    .operands_max = 1,
    .options = options,
    .run = run,
};
