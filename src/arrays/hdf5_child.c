/* Hdf5 child: starts the worker, communicates with it, and reports how it ended. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arrays/hdf5.h"
#include "arrays/hdf5_wire.h"
#include "base/clock.h"
#include "base/command.h"
#include "base/variables.h"

/* The worker limits its own CPU time. This limit is for a worker that neither computes nor answers;
 * a network file system may be slow. */
#define ANSWER_SECONDS 600
#define RATE_BYTES     (UINT64_C(1) << 20) /* plus one second for each MiB requested */

/* ---- starting it ---- */

/* Moves `fd` above the numbers that the worker's descriptors have. Closes `fd`. */
static int raise_fd(int fd) {
  int high = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 16) : -1;
  if (fd >= 0) close(fd);
  return high;
}

/* Creates memory that the worker writes and we read. It is sealed, so the worker cannot truncate
 * it. */
static int make_shared(uint64_t bytes) {
  int fd = memfd_create("stowage-hdf5", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -1;
  if (ftruncate(fd, (off_t)bytes) != 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    close(fd);
    return -1;
  }
  return raise_fd(fd);
}

static int set_actions(posix_spawn_file_actions_t *actions, int socket, int file, int shared) {
  int error = 0;
  for (int i = 0; i < 3 && error == 0; i++)
    error = posix_spawn_file_actions_addopen(actions, i, "/dev/null", O_RDWR, 0);
  if (error == 0) error = posix_spawn_file_actions_adddup2(actions, socket, HDF5_FD_SOCKET);
  if (error == 0) error = posix_spawn_file_actions_adddup2(actions, file, HDF5_FD_FILE);
  if (error == 0) error = posix_spawn_file_actions_adddup2(actions, shared, HDF5_FD_SHARED);
  return error;
}

static int spawn(hdf5_child *c, const char *command, int socket, int file, int shared) {
  char heap[24], bytes[24];
  snprintf(heap, sizeof heap, "%" PRIu64, c->heap_bytes);
  snprintf(bytes, sizeof bytes, "%" PRIu64, c->shared_bytes);
  char *argv[] = {(char *)(uintptr_t)command, (char *)(uintptr_t)HDF5_WORKER_WORD, heap, bytes,
                  (char *)(uintptr_t) "--",   (char *)(uintptr_t)c->path,          NULL};
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  sigset_t none, all;
  /* In a setuid program the caller of the program must not choose the library. */
  char **environment = command_environment(getauxval(AT_SECURE) != 0 ? ENV_HDF5_LIBRARY : NULL);
  if (environment == NULL) return ENOMEM;
  int error = posix_spawn_file_actions_init(&actions);
  if (error != 0) return free(environment), error;
  error = posix_spawnattr_init(&attributes);
  if (error == 0) {
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    error = set_actions(&actions, socket, file, shared);
    if (error == 0) error = posix_spawn(&c->pid, command, &actions, &attributes, argv, environment);
    posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_destroy(&actions);
  free(environment);
  return error;
}

static stow_status start(hdf5_child *c) {
  char command[COMMAND_PATH_MAX];
  int ends[2] = {-1, -1};
  if (command_find(command) != STOW_OK) {
    char why[512];
    snprintf(why, sizeof why, "%s", stow_status_message());
    return stow_fail(STOW_ERR_NOT_FOUND,
                     "%s: HDF5 files are read by the stowage command, which cannot be used: %s",
                     c->path, why);
  }
  int shared = make_shared(c->shared_bytes), file = raise_fd(dup(c->file));
  int error = shared < 0 || file < 0 ? errno : 0;
  if (error == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) error = errno;
  if (error == 0 && ((ends[1] = raise_fd(ends[1])) < 0)) error = errno;
  if (error == 0) {
    void *at = mmap(NULL, c->shared_bytes, PROT_READ, MAP_SHARED, shared, 0);
    if (at == MAP_FAILED)
      error = errno;
    else
      c->shared = at;
  }
  if (error == 0) error = spawn(c, command, ends[1], file, shared);
  if (shared >= 0) close(shared);
  if (file >= 0) close(file);
  if (ends[1] >= 0) close(ends[1]);
  c->owner = getpid();
  c->socket = ends[0];
  if (error == 0) return STOW_OK;
  c->pid = -1;
  hdf5_child_stop(c);
  return stow_fail(error == ENOMEM ? STOW_ERR_HOST_MEMORY : STOW_ERR_IO,
                   "%s: cannot start the HDF5 reader %s: %s", c->path, command, strerror(error));
}

/* ---- how it ends ---- */

/* Reaps the worker. Returns its wait status; 0 if unknown. */
static int collect(hdf5_child *c) {
  int how = 0;
  pid_t got;
  do got = waitpid(c->pid, &how, 0);
  while (got < 0 && errno == EINTR);
  c->pid = -1;
  return got > 0 ? how : 0;
}

static _Atomic uint64_t worker_peak;

uint64_t hdf5_worker_peak(void) {
  return atomic_load(&worker_peak);
}

/* Reads the peak of resident memory of the worker, before it ends. */
static void note_peak(const hdf5_child *c) {
  char path[32], line[128];
  snprintf(path, sizeof path, "/proc/%ld/status", (long)c->pid);
  FILE *in = fopen(path, "re");
  if (in == NULL) return;
  uint64_t peak = 0;
  while (peak == 0 && fgets(line, sizeof line, in) != NULL)
    if (strncmp(line, "VmHWM:", 6) == 0) peak = strtoull(line + 6, NULL, 10) << 10;
  fclose(in);
  if (peak > atomic_load(&worker_peak)) atomic_store(&worker_peak, peak);
}

void hdf5_child_stop(hdf5_child *c) {
  if (c->pid > 0 && c->owner == getpid()) note_peak(c);
  if (c->socket >= 0) close(c->socket);
  if (c->shared != NULL) munmap(c->shared, c->shared_bytes);
  /* A forked child did not start this worker: its parent still uses it. */
  if (c->pid > 0 && c->owner == getpid()) {
    kill(c->pid, SIGKILL); /* not reaped yet, so the PID is still valid */
    collect(c);
  }
  c->socket = -1;
  c->shared = NULL;
  c->pid = -1;
}

static stow_status ended(hdf5_child *c) {
  int how = 0;
  if (c->pid > 0) {
    kill(c->pid, SIGKILL); /* no effect on a worker that is ending, which it normally is */
    how = collect(c);
  }
  hdf5_child_stop(c);
  if (WIFSIGNALED(how) && (WTERMSIG(how) == SIGPROF || WTERMSIG(how) == SIGXCPU))
    return stow_fail(STOW_ERR_FORMAT,
                     "%s: libhdf5 computed too long without a result and was stopped: the file is "
                     "damaged, or it has very many chunks; set " ENV_HDF5_SECONDS
                     " to give it more time",
                     c->path);
  if (WIFSIGNALED(how) && WTERMSIG(how) != SIGKILL)
    return stow_fail(STOW_ERR_FORMAT,
                     "%s: libhdf5 crashed on it (%s): the file is damaged; h5dump or h5py may say "
                     "where",
                     c->path, strsignal(WTERMSIG(how)));
  if (WIFSIGNALED(how))
    return stow_fail(STOW_ERR_HOST_MEMORY,
                     "%s: the HDF5 reader was killed; the kernel does that when memory is short: "
                     "give less --memory",
                     c->path);
  return stow_fail(STOW_ERR_IO,
                   "%s: the HDF5 reader ended without an answer (exit code %d): is the stowage "
                   "command of another version?",
                   c->path, WEXITSTATUS(how));
}

static stow_status timed_out(hdf5_child *c, uint64_t seconds) {
  hdf5_child_stop(c);
  return stow_fail(STOW_ERR_IO,
                   "%s: libhdf5 did not respond for %" PRIu64
                   " s and was stopped: does its file system still answer?",
                   c->path, seconds);
}

/* ---- talking to it ---- */

static stow_status receive(hdf5_child *c, hdf5_reply *reply, uint64_t seconds) {
  uint64_t until = clock_ns() + seconds * 1000000000u;
  for (;;) {
    struct pollfd wait = {.fd = c->socket, .events = POLLIN};
    int ready = poll(&wait, 1, 1000);
    if (ready < 0 && errno != EINTR) return ended(c);
    if (ready <= 0 && clock_ns() > until) return timed_out(c, seconds);
    if (ready <= 0) continue;
    ssize_t got = recv(c->socket, reply, sizeof *reply, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got == (ssize_t)sizeof *reply) break;
    return ended(c);
  }
  if (reply->status == STOW_OK) return STOW_OK;
  bool known = reply->status < 0 && reply->status >= STOW_ERR_INTERRUPTED;
  return stow_fail(known ? (stow_status)reply->status : STOW_ERR_FORMAT, "%.*s",
                   (int)strnlen(reply->text, sizeof reply->text), reply->text);
}

stow_status hdf5_child_request(hdf5_child *c, const hdf5_request *request, hdf5_reply *reply) {
  if (c->socket >= 0 && c->owner != getpid()) hdf5_child_stop(c);
  if (c->socket < 0) STOW_TRY(start(c));
  ssize_t sent;
  do sent = send(c->socket, request, sizeof *request, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent != (ssize_t)sizeof *request) return ended(c);
  return receive(c, reply, ANSWER_SECONDS + request->bytes / RATE_BYTES);
}

stow_status hdf5_child_more(hdf5_child *c, hdf5_reply *reply) {
  return receive(c, reply, ANSWER_SECONDS);
}
