/* Pidfd: the child tries it on its parent and reports, then waits while the parent tries it on the
 * child. Makes only system calls between fork and exit, so it is safe in a program with threads. */
#include "watch/pidfd.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The same numbers on every architecture (Linux 5.3 and 5.6). */
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

#define DEADLINE_MS 2000

/* Returns 0 or errno. */
static int take(pid_t from, int fd) {
  int process = (int)syscall(SYS_pidfd_open, from, 0);
  if (process < 0) return errno;
  int got = (int)syscall(SYS_pidfd_getfd, process, fd, 0);
  int why = got < 0 ? errno : 0;
  if (got >= 0) close(got);
  close(process);
  return why;
}

static void child_side(int pair[2], pid_t parent) {
  int why = take(parent, pair[0]);
  char word;
  /* If the parent is gone, the read ends at once, because both ends are closed. */
  if (write(pair[1], &why, sizeof why) == (ssize_t)sizeof why) {
    close(pair[0]);
    while (read(pair[1], &word, 1) < 0 && errno == EINTR) {
    }
  }
  _exit(0);
}

static void parent_side(pidfd_answer *answer, int pair[2], pid_t child) {
  struct pollfd wait_for = {.fd = pair[0], .events = POLLIN};
  answer->from_parent = ETIMEDOUT;
  if (poll(&wait_for, 1, DEADLINE_MS) == 1 &&
      read(pair[0], &answer->from_parent, sizeof(int)) != (ssize_t)sizeof(int))
    answer->from_parent = EIO;
  answer->from_child = take(child, pair[1]);
  kill(child, SIGKILL); /* it only waits now */
  while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
  }
}

void pidfd_try(pidfd_answer *answer) {
  int pair[2] = {-1, -1};
  pid_t parent = getpid(), child = -1;
  bool ready = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0;
  if (ready) child = fork();
  if (child == 0) child_side(pair, parent);
  if (child > 0)
    parent_side(answer, pair, child);
  else
    *answer = (pidfd_answer){errno, errno};
  if (ready) {
    close(pair[0]);
    close(pair[1]);
  }
}
