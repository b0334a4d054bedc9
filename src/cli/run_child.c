/* Run child: starts one child and acts on its behalf: forwards signals to it and returns its exit
 * code.
 *
 * The terminal signals the whole foreground group, the child included, so only signals sent to this
 * process alone are forwarded. Two more reach only this process: the hangup of a closed terminal,
 * if we lead the session, and an alarm set before we started. A signal that was ignored at our
 * start (nohup) stays ignored for both. */
#include "cli/run_child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"
#include "watch/tree.h"

static volatile pid_t target; /* 0: no child */
static bool leads_session;    /* set before the handlers are installed */

/* The signal settings at our start, which the command inherits. */
static struct {
  struct sigaction actions[NSIG];
  sigset_t mask;
} found;

/* Returns whether a signal is forwarded. Not forwarded: stop signals (the shell watches us for
 * them), faults of our own, and the two signals that glibc uses itself. */
static bool passed_on(int number) {
  switch (number) {
  case SIGKILL:
  case SIGSTOP:
  case SIGTSTP:
  case SIGTTIN:
  case SIGTTOU:
  case SIGCHLD:
  case SIGSEGV:
  case SIGBUS:
  case SIGILL:
  case SIGFPE:
  case SIGTRAP:
  case SIGSYS: return false;
  default: return number < NSIG && (number < SIGSYS || number >= SIGRTMIN);
  }
}

static bool from_terminal(int number) {
  return number == SIGINT || number == SIGQUIT || number == SIGHUP || number == SIGWINCH ||
         number == SIGCONT;
}

static void pass_on(int number, siginfo_t *info, void *context) {
  (void)context;
  int saved = errno;
  bool alone;
  /* si_code above 0: from the kernel. SIGPIPE of our own writes comes from us. */
  if (info->si_code <= 0)
    alone = info->si_pid != target && info->si_pid != getpid();
  else
    alone = !from_terminal(number) || (number == SIGHUP && leads_session);
  if (alone && target != 0) kill(target, number);
  errno = saved;
}

void child_prepare(void) {
  static const struct sigaction IGNORE = {.sa_handler = SIG_IGN};
  sigprocmask(SIG_BLOCK, NULL, &found.mask);
  for (int number = 1; number < NSIG; number++) sigaction(number, NULL, &found.actions[number]);
  /* A write to a closed pipe, or past a file size limit, must return an error. It must not end this
   * process before the command. */
  sigaction(SIGPIPE, &IGNORE, NULL);
  sigaction(SIGXFSZ, &IGNORE, NULL);
}

static void handle_signals(void) {
  leads_session = getsid(0) == getpid();
  struct sigaction action = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO | SA_RESTART};
  sigemptyset(&action.sa_mask);
  for (int number = 1; number < NSIG; number++)
    if (passed_on(number) && found.actions[number].sa_handler != SIG_IGN)
      sigaction(number, &action, NULL);
  /* Some daemons leave SIGCHLD ignored; that would lose the command's exit code. */
  sigaction(SIGCHLD, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
}

/* Runs in the child: restores the signal settings and executes the command. If that fails, writes
 * the reason to `fd`, which is closed on exec. */
static void become(char **argv, int fd) {
  for (int number = 1; number < NSIG; number++) sigaction(number, &found.actions[number], NULL);
  sigprocmask(SIG_SETMASK, &found.mask, NULL);
  execvp(argv[0], argv);
  int error = errno;
  ssize_t written = write(fd, &error, sizeof error);
  (void)written;
  _exit(PROGRAM_NOT_EXECUTABLE);
}

int child_start(pid_t *child, char **argv) {
  int ends[2], error = 0;
  sigset_t all;
  if (pipe2(ends, O_CLOEXEC) != 0) {
    stow_fail(STOW_ERR_IO, "cannot create a pipe: %s", strerror(errno));
    return PROGRAM_NOT_RUN;
  }
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, NULL);
  handle_signals();
  pid_t pid = fork();
  if (pid == 0) become(argv, ends[1]);
  int fork_error = errno;
  target = pid > 0 ? pid : 0;
  sigprocmask(SIG_SETMASK, &found.mask, NULL);
  close(ends[1]);
  ssize_t got = 0;
  if (pid > 0)
    while ((got = read(ends[0], &error, sizeof error)) < 0 && errno == EINTR) {
    }
  close(ends[0]);
  if (pid < 0) {
    stow_fail(STOW_ERR_IO, "cannot start a process: %s", strerror(fork_error));
    return PROGRAM_NOT_RUN;
  }
  *child = pid;
  if (got != (ssize_t)sizeof error) return 0;
  target = 0;
  while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
  }
  /* The command itself was found before. */
  stow_fail(STOW_ERR_INVALID, "%.200s: cannot be executed: %s", argv[0],
            error == ENOENT ? "the interpreter in its first line, or its loader, does not exist"
                            : strerror(error));
  return PROGRAM_NOT_EXECUTABLE;
}

void child_wait(pid_t child, int *how, int beat_ms, int (*beat)(void *user), void *user) {
  /* SIGCHLD is blocked and waited for with a deadline, so that neither is missed. */
  sigset_t ended, mask;
  sigemptyset(&ended);
  sigaddset(&ended, SIGCHLD);
  sigprocmask(SIG_BLOCK, &ended, &mask);
  for (;;) {
    struct timespec pause = {.tv_sec = beat_ms / 1000, .tv_nsec = beat_ms % 1000 * 1000000l};
    /* Also reap orphans that were reparented to us (run_ram.c). */
    int ended_how;
    pid_t got = waitpid(-1, &ended_how, beat_ms > 0 ? WNOHANG : 0);
    if (got == child) *how = ended_how;
    if (got == child || (got < 0 && errno != EINTR)) break;
    if (got == 0 && sigtimedwait(&ended, NULL, &pause) < 0 && errno == EAGAIN) beat_ms = beat(user);
  }
  target = 0;
  sigprocmask(SIG_SETMASK, &mask, NULL);
}

void child_signal_all(pid_t child, int number) {
  tree t;
  /* Read the tree first: once the child has ended, its descendants can no longer be identified. */
  stow_status status = tree_read(&t, getpid());
  /* None may react to the end of another: a parent that waited for its child would exit with 0. */
  for (size_t i = 0; number == SIGKILL && status == STOW_OK && i < t.count; i++)
    kill(t.list[i].pid, SIGSTOP);
  if (child > 0) kill(child, number);
  for (size_t i = 0; status == STOW_OK && i < t.count; i++)
    if (t.list[i].pid != child) kill(t.list[i].pid, number);
  tree_free(&t);
}

int child_end(int how) {
  if (!WIFSIGNALED(how)) return WEXITSTATUS(how);
  int number = WTERMSIG(how);
  struct rlimit none = {0, 0};
  struct sigaction action = {.sa_handler = SIG_DFL};
  sigset_t only;
  /* Only the child's core dump matters. */
  setrlimit(RLIMIT_CORE, &none);
  sigemptyset(&action.sa_mask);
  sigaction(number, &action, NULL);
  sigemptyset(&only);
  sigaddset(&only, number);
  sigprocmask(SIG_UNBLOCK, &only, NULL);
  kill(getpid(), number);
  return 128 + number;
}
