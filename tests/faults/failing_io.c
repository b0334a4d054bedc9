/* Runs a command and makes one of its system calls fail.
 *
 *   failing_io KIND ERROR AT REST COUNT_FILE COMMAND…
 *
 * KIND is a group of calls: open read write sync close stat map process. ERROR is EIO, ENOSPC,
 * EINTR, EMFILE, ENOMEM, EAGAIN, or short: one byte is transferred. The AT-th call of the group
 * fails; with REST=1 all later ones do too. AT=0 fails none. COUNT_FILE receives the number of
 * calls.
 *
 * The kernel asks this program about each call of the group (seccomp user notification), so calls
 * from inside the C library are counted as well; a preloaded library would miss those of stdio.
 * Processes that the command starts count as long as they run the same executable. Calls on file
 * 2 do not count: an error message must get through. A call that anonymous mmap makes is an
 * allocation (failing_malloc.c), not I/O.
 *
 * Exits with the command's code, with 128 + N if signal N ended it, and with 99 if the kernel does
 * not allow this. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { UNAVAILABLE = 99, CALLS_MAX = 32, NOT_SHORTENED = INT_MIN };

/* AArch64 has no system calls for the forms without a folder. */
#ifdef __NR_open
#define OLD(...) __VA_ARGS__
#else
#define OLD(...)
#endif

typedef struct group {
  const char *name;
  int calls[CALLS_MAX]; /* up to a negative one */
} group;

static const group GROUPS[] = {
    {"open",
     {__NR_openat, __NR_memfd_create, __NR_pipe2, __NR_dup, __NR_dup3, __NR_fcntl, __NR_socket,
      OLD(__NR_open, __NR_creat, __NR_dup2, __NR_pipe, ) - 1}},
    {"read", {__NR_read, __NR_pread64, __NR_readv, __NR_preadv, __NR_getdents64, -1}},
    {"write",
     {__NR_write, __NR_pwrite64, __NR_writev, __NR_pwritev, __NR_sendfile, __NR_copy_file_range,
      -1}},
    {"sync",
     {__NR_fsync, __NR_fdatasync, __NR_ftruncate, __NR_fallocate, __NR_renameat, __NR_renameat2,
      __NR_linkat, __NR_symlinkat, __NR_unlinkat, __NR_mkdirat, __NR_fchmod, __NR_fchmodat,
      __NR_flock, __NR_lseek, __NR_msync,
      OLD(__NR_rename, __NR_link, __NR_symlink, __NR_unlink, __NR_mkdir, __NR_rmdir, __NR_chmod, ) -
          1}},
    {"close", {__NR_close, -1}},
    {"stat",
     {__NR_fstat, __NR_newfstatat, __NR_statx, __NR_faccessat, __NR_readlinkat, __NR_fstatfs,
      OLD(__NR_stat, __NR_lstat, __NR_access, __NR_readlink, ) - 1}},
    {"map", {__NR_mmap, __NR_mprotect, __NR_mremap, -1}},
    {"process", {__NR_clone, __NR_clone3, OLD(__NR_fork, __NR_vfork, ) - 1}},
};
static const struct {
  const char *name;
  int value; /* 0: short */
} ERRORS[] = {{"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EINTR", EINTR}, {"EMFILE", EMFILE},
              {"ENOMEM", ENOMEM}, {"EAGAIN", EAGAIN}, {"short", 0}};

static struct {
  const group *calls;
  int error;
  long at, count;
  bool rest;
  char program[PATH_MAX]; /* whose calls count; empty until the command has started */
} plan;

static int listen_to_calls(const group *g) {
  struct sock_filter code[2 * CALLS_MAX + 4];
  unsigned short n = 0;
  code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                           (unsigned)offsetof(struct seccomp_data, nr));
  for (int i = 0; g->calls[i] >= 0; i++) {
    code[n++] =
        (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)g->calls[i], 0, 1);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
  }
  code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct sock_fprog program = {.len = n, .filter = code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return (int)syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                      &program);
}

/* Sends or receives one descriptor. */
static int pass(int over, int file) {
  char byte = 0;
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int))];
  } control = {0};
  struct iovec part = {&byte, 1};
  struct msghdr message = {.msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = control.room,
                           .msg_controllen = sizeof control.room};
  if (file < 0) {
    if (recvmsg(over, &message, MSG_CMSG_CLOEXEC) != 1 || CMSG_FIRSTHDR(&message) == NULL)
      return -1;
    memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof file);
    return file;
  }
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  *head = (struct cmsghdr){
      .cmsg_len = CMSG_LEN(sizeof file), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
  memcpy(CMSG_DATA(head), &file, sizeof file);
  return sendmsg(over, &message, 0) == 1 ? 0 : -1;
}

/* The loader's own calls at the start of a process do not count: they are not ours. */
static struct {
  uint32_t pid;
  bool started; /* has made a call from outside the loader */
  uint64_t from, to;
} processes[256];

static void find_loader(uint32_t pid, uint64_t *from, uint64_t *to) {
  char path[64], line[PATH_MAX + 128];
  snprintf(path, sizeof path, "/proc/%u/maps", pid);
  FILE *maps = fopen(path, "r");
  *from = *to = 0;
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
    unsigned long long low, high;
    if (strstr(line, "/ld-") == NULL || sscanf(line, "%llx-%llx", &low, &high) != 2) continue;
    if (*from == 0) *from = low;
    *to = high;
  }
  if (maps != NULL) fclose(maps);
}

static bool is_loading(const struct seccomp_notif *asked) {
  size_t i = asked->pid % (sizeof processes / sizeof processes[0]);
  uint64_t at = asked->data.instruction_pointer;
  if (processes[i].pid != asked->pid) {
    processes[i].pid = asked->pid;
    processes[i].started = false;
    find_loader(asked->pid, &processes[i].from, &processes[i].to);
  }
  if (at < processes[i].from || at >= processes[i].to) processes[i].started = true;
  return !processes[i].started;
}

/* True if `pid` runs the command's own executable. */
static bool is_ours(uint32_t pid) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/%u/exe", pid);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return false;
  path[length] = '\0';
  return strcmp(path, plan.program) == 0;
}

/* A close that fails here leaves the file open, unlike Linux's own: a pipe would never end. */
static bool is_regular(uint32_t pid, uint64_t file) {
  char link[64];
  struct stat info;
  snprintf(link, sizeof link, "/proc/%u/fd/%d", pid, (int)file);
  return stat(link, &info) == 0 && S_ISREG(info.st_mode);
}

static bool must_count(const struct seccomp_notif *asked) {
  const uint64_t *args = (const uint64_t *)asked->data.args;
  int call = asked->data.nr;
  if (call == __NR_close && !is_regular(asked->pid, args[0])) return false;
  if ((call == __NR_write || call == __NR_writev) && args[0] == 2) return false;
  if (call == __NR_mmap && (args[3] & MAP_ANONYMOUS) != 0) return false;
  if ((call == __NR_clone || call == __NR_clone3) && plan.error != EAGAIN) return false;
  if (plan.error == 0 && call != __NR_read && call != __NR_pread64 && call != __NR_write &&
      call != __NR_pwrite64)
    return false;
  return is_ours(asked->pid) && !is_loading(asked);
}

/* Does the call for the process, with one byte. Returns its result, a negative error or
 * NOT_SHORTENED. */
static int64_t transfer_one(const struct seccomp_notif *asked) {
  const uint64_t *args = (const uint64_t *)asked->data.args;
  if (args[2] == 0) return 0;
  int process = (int)syscall(__NR_pidfd_open, asked->pid, 0);
  int file = process < 0 ? -1 : (int)syscall(__NR_pidfd_getfd, process, (int)args[0], 0);
  if (process >= 0) close(process);
  if (file < 0) return -EIO;
  char byte = 0;
  struct iovec here = {&byte, 1}, there = {(void *)(uintptr_t)args[1], 1};
  pid_t pid = (pid_t)asked->pid;
  bool reads = asked->data.nr == __NR_read || asked->data.nr == __NR_pread64;
  /* A read that would wait is left alone: waiting here, nobody would answer the writer. */
  if (poll(&(struct pollfd){.fd = file, .events = reads ? POLLIN : POLLOUT}, 1, 0) != 1) {
    close(file);
    return NOT_SHORTENED;
  }
  int64_t done = -EFAULT;
  if (reads) {
    done =
        asked->data.nr == __NR_read ? read(file, &byte, 1) : pread(file, &byte, 1, (off_t)args[3]);
    if (done == 1 && process_vm_writev(pid, &here, 1, &there, 1, 0) != 1) done = -EFAULT;
  } else if (process_vm_readv(pid, &here, 1, &there, 1, 0) == 1) {
    done = asked->data.nr == __NR_write ? write(file, &byte, 1)
                                        : pwrite(file, &byte, 1, (off_t)args[3]);
  }
  if (done == -1) done = -errno;
  close(file);
  return done;
}

static void answer(int listener, struct seccomp_notif *asked, struct seccomp_notif_resp *reply) {
  memset(asked, 0, sizeof *asked);
  if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, asked) != 0) return;
  memset(reply, 0, sizeof *reply);
  reply->id = asked->id;
  bool fails = false;
  if (must_count(asked)) {
    plan.count++;
    fails = plan.at > 0 && (plan.count == plan.at || (plan.rest && plan.count > plan.at));
  }
  if (!fails) {
    reply->flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
  } else if (plan.error != 0) {
    reply->error = -plan.error;
  } else {
    int64_t done = transfer_one(asked);
    if (done == NOT_SHORTENED)
      reply->flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    else if (done < 0)
      reply->error = (int)done;
    else
      reply->val = done;
  }
  ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, reply); /* the process may be gone */
}

static int end_code(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int main(int argc, char **argv) {
  if (argc < 7) {
    fputs("usage: failing_io KIND ERROR AT REST COUNT_FILE COMMAND…\n", stderr);
    return 2;
  }
  plan.error = -1;
  for (size_t i = 0; i < sizeof GROUPS / sizeof GROUPS[0]; i++)
    if (strcmp(GROUPS[i].name, argv[1]) == 0) plan.calls = &GROUPS[i];
  for (size_t i = 0; i < sizeof ERRORS / sizeof ERRORS[0]; i++)
    if (strcmp(ERRORS[i].name, argv[2]) == 0) plan.error = ERRORS[i].value;
  if (plan.calls == NULL || plan.error < 0 || realpath(argv[6], plan.program) == NULL) {
    fprintf(stderr, "failing_io: %s, %s, %s: no such kind, error or command\n", argv[1], argv[2],
            argv[6]);
    return 2;
  }
  plan.at = atol(argv[3]);
  plan.rest = argv[4][0] == '1';

  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return UNAVAILABLE;
  pid_t child = fork();
  if (child < 0) return UNAVAILABLE;
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int listener = listen_to_calls(plan.calls);
    if (listener < 0 || pass(ends[1], listener) != 0) _exit(UNAVAILABLE);
    execv(argv[6], argv + 6);
    _exit(UNAVAILABLE);
  }
  close(ends[1]);
  int listener = pass(ends[0], -1), status;
  if (listener < 0) {
    waitpid(child, &status, 0);
    return UNAVAILABLE;
  }
  struct seccomp_notif_sizes sizes;
  if (syscall(__NR_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes) != 0) return UNAVAILABLE;
  /* The kernel's structures may be larger than those this was compiled with. */
  size_t bytes = sizeof(struct seccomp_notif) + sizes.seccomp_notif + sizes.seccomp_notif_resp + 64;
  struct seccomp_notif *asked = calloc(2, bytes);
  if (asked == NULL) return UNAVAILABLE;
  struct seccomp_notif_resp *reply = (void *)((char *)asked + bytes);
  /* The listener hangs up when the last process with the filter has ended. */
  for (struct pollfd file = {.fd = listener, .events = POLLIN};;) {
    if (poll(&file, 1, -1) < 0 && errno != EINTR) break;
    if (file.revents & POLLIN)
      answer(listener, asked, reply);
    else if (file.revents & (POLLHUP | POLLERR))
      break;
  }
  free(asked);
  waitpid(child, &status, 0);
  FILE *count = fopen(argv[5], "w");
  if (count == NULL || fprintf(count, "%ld\n", plan.count) < 0 || fclose(count) != 0)
    return UNAVAILABLE;
  return end_code(status);
}
