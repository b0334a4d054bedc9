/* Cuda command: runs the command with a deadline. */
#include "device/cuda_command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/command.h"

/* How long to wait after SIGKILL for a child that hangs in the kernel. */
#define KILL_WAIT_MS 2000

static int spawn(pid_t *child, const char *path, char *const argv[], int output_fd) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  char **environment = command_environment(NULL);
  if (environment == NULL) return ENOMEM;
  int error = posix_spawn_file_actions_init(&actions);
  if (error != 0) {
    free(environment);
    return error;
  }
  error = posix_spawnattr_init(&attributes);
  if (error == 0) {
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    /* The child must not inherit the program's handlers and blocked signals. */
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    /* Duplicate the pipe first: if the program closed its own descriptors, the pipe's number may be
     * 0 or 2. */
    error = posix_spawn_file_actions_adddup2(&actions, output_fd, 1);
    if (error == 0) error = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (error == 0) error = posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    if (error == 0) error = posix_spawn(child, path, &actions, &attributes, argv, environment);
    posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_destroy(&actions);
  free(environment);
  return error;
}

/* Reads until the other end is closed or the deadline passes; false if it passed. */
static bool drain(int fd, uint64_t until_ns, char *output, size_t size, size_t *length) {
  char spare[512];
  for (;;) {
    uint64_t now = clock_ns();
    int left_ms = now >= until_ns ? 0 : (int)((until_ns - now + 999999) / 1000000);
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    int ready = poll(&wait, 1, left_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    bool full = *length + 1 >= size; /* read and drop what does not fit */
    ssize_t got =
        full ? read(fd, spare, sizeof spare) : read(fd, output + *length, size - 1 - *length);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return true;
    if (!full) *length += (size_t)got;
  }
}

/* Waits for the child. It closed its output, so it is exiting, or was killed. */
static void collect(pid_t child, bool gone, cuda_command_end *end) {
  int how = 0;
  pid_t got;
  do got = waitpid(child, &how, gone ? 0 : WNOHANG);
  while (got < 0 && errno == EINTR);
  if (got != child) return; /* another waiter reaped it, or it hangs in the kernel */
  if (WIFSIGNALED(how)) end->signal = WTERMSIG(how);
  if (WIFEXITED(how)) end->exit_code = WEXITSTATUS(how);
}

stow_status cuda_command_run(const char *path, char *const argv[], int deadline_ms, char *output,
                             size_t size, cuda_command_end *end) {
  *end = (cuda_command_end){.exit_code = -1};
  output[0] = '\0';
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return stow_fail(STOW_ERR_IO, "starting %s: cannot create a pipe: %s", path, strerror(errno));
  pid_t child = -1;
  int error = spawn(&child, path, argv, ends[1]);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    return stow_fail(STOW_ERR_IO, "starting %s: %s", path, strerror(error));
  }
  size_t length = 0;
  uint64_t until = clock_ns() + (uint64_t)deadline_ms * 1000000;
  bool gone = drain(ends[0], until, output, size, &length);
  if (!gone) {
    end->timed_out = true;
    kill(child, SIGKILL); /* not reaped yet, so the pid is still valid */
    until = clock_ns() + (uint64_t)KILL_WAIT_MS * 1000000;
    gone = drain(ends[0], until, output, size, &length);
  }
  output[length] = '\0';
  close(ends[0]);
  collect(child, gone, end);
  return STOW_OK;
}
