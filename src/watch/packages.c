/* Packages: gets sys.path from python3, then finds names like "torch-2.11.0+cu130.dist-info" in
 * those folders. The first folder that has one wins, as in an import. */
#include "watch/packages.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"

#define DEADLINE_NS UINT64_C(5000000000)
#define ANSWER_MAX  (64u << 10)

/* Shown in this order. A name ending in '*' matches every name with that prefix. */
static const char *const wanted[] = {"torch", "jax", "tensorflow", "cupy*", "numpy"};
#define WANTED_COUNT (sizeof wanted / sizeof wanted[0])
_Static_assert(WANTED_COUNT <= PACKAGES_MAX, "space for every framework");

static const char question[] = "import sys\n"
                               "print('.'.join(map(str, sys.version_info[:3])))\n"
                               "print(sys.executable)\n"
                               "print('\\n'.join(p for p in sys.path if p))\n";

static stow_status start_python(pid_t *child, int *answer) {
  int ends[2];
  if (pipe(ends) != 0)
    return stow_fail(STOW_ERR_IO, "python3: cannot create a pipe: %s", strerror(errno));
  fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addclose(&actions, ends[1]);
  char *argv[] = {(char *)"python3", (char *)"-c", (char *)question, NULL};
  int why = posix_spawnp(child, "python3", &actions, NULL, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (why == 0) {
    *answer = ends[0];
    return STOW_OK;
  }
  close(ends[0]);
  return why == ENOENT ? stow_fail(STOW_ERR_NOT_FOUND, "no python3 on PATH")
                       : stow_fail(STOW_ERR_IO, "python3: cannot be started: %s", strerror(why));
}

/* Reads what the child writes, until it ends or the deadline passes. */
static stow_status read_output(buffer *text, int fd) {
  uint64_t end = clock_ns() + DEADLINE_NS;
  for (;;) {
    uint64_t now = clock_ns();
    struct pollfd wait_for = {.fd = fd, .events = POLLIN};
    int ready = now < end ? poll(&wait_for, 1, (int)((end - now) / 1000000) + 1) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return stow_fail(STOW_ERR_IO, "python3 did not respond within 5 seconds");
    char part[4096];
    ssize_t got = read(fd, part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return stow_fail(STOW_ERR_IO, "python3: %s", strerror(errno));
    if (got == 0) return STOW_OK;
    STOW_TRY(buffer_append(text, part, (size_t)got));
  }
}

static stow_status query_python(buffer *text) {
  pid_t child;
  int fd = -1, how = 0;
  STOW_TRY(start_python(&child, &fd));
  stow_status status = read_output(text, fd);
  close(fd);
  if (status != STOW_OK) kill(child, SIGKILL);
  while (waitpid(child, &how, 0) < 0 && errno == EINTR) {
  }
  if (status != STOW_OK) return status;
  if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
    return stow_fail(STOW_ERR_IO, "python3 failed when asked for its path");
  return STOW_OK;
}

/* Returns the index of the name that a file of site-packages matches, or -1, and its version. */
static int recognise(const char *file, package *as) {
  const char *dash = strchr(file, '-');
  size_t length = strlen(file);
  const char *endings[] = {".dist-info", ".egg-info"};
  for (size_t e = 0; e < 2; e++) {
    size_t ending = strlen(endings[e]);
    if (dash == NULL || length <= ending || strcmp(file + length - ending, endings[e]) != 0)
      continue;
    size_t name = (size_t)(dash - file), version = length - ending - name - 1;
    if (length - ending < name + 2) return -1;
    for (size_t w = 0; w < WANTED_COUNT; w++) {
      size_t whole = strcspn(wanted[w], "*");
      bool begins = wanted[w][whole] == '*';
      if (name < whole || (name > whole && !begins) || strncasecmp(file, wanted[w], whole) != 0)
        continue;
      if (name >= sizeof as->name) return -1;
      /* "numpy-1.24.2-py3.11.egg-info": the version ends at the next dash. */
      size_t bare = strcspn(dash + 1, "-");
      if (bare < version) version = bare;
      snprintf(as->name, sizeof as->name, "%.*s", (int)name, file);
      snprintf(as->version, sizeof as->version, "%.*s", (int)version, dash + 1);
      return (int)w;
    }
  }
  return -1;
}

static void look_into(const char *path, package have[WANTED_COUNT]) {
  DIR *folder = opendir(path);
  if (folder == NULL) return; /* sys.path often lists missing folders */
  package here[WANTED_COUNT] = {0};
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    package one;
    int which = recognise(entry->d_name, &one);
    if (which >= 0) here[which] = one;
  }
  closedir(folder);
  for (size_t w = 0; w < WANTED_COUNT; w++)
    if (have[w].name[0] == '\0') have[w] = here[w];
}

stow_status packages_find(packages *all) {
  *all = (packages){0};
  buffer text = BUFFER_BOUNDED(ANSWER_MAX);
  stow_status status = query_python(&text);
  package have[WANTED_COUNT] = {0};
  if (status == STOW_OK && text.length > 0) {
    char *rest = NULL, *line = strtok_r(text.data, "\n", &rest);
    if (line != NULL) snprintf(all->python, sizeof all->python, "%.15s", line);
    line = strtok_r(NULL, "\n", &rest);
    if (line != NULL) snprintf(all->interpreter, sizeof all->interpreter, "%.255s", line);
    while ((line = strtok_r(NULL, "\n", &rest)) != NULL) look_into(line, have);
  }
  if (status == STOW_OK && all->interpreter[0] == '\0')
    status = stow_fail(STOW_ERR_IO, "python3: printed nothing when asked for its path");
  buffer_free(&text);
  for (size_t w = 0; w < WANTED_COUNT; w++)
    if (have[w].name[0] != '\0') all->found[all->count++] = have[w];
  return status;
}
