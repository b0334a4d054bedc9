/* Hdf5 worker: `stowage hdf5-reader`, the process in which libhdf5 runs. See hdf5.h. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "arrays/hdf5_file.h"
#include "arrays/hdf5_wire.h"
#include "base/variables.h"

#define STEP_SECONDS 30                   /* CPU time for one step */
#define STEP_BYTES   (UINT64_C(4) << 20)  /* plus one second for each of these */
#define BASE_BYTES   (UINT64_C(24) << 20) /* libhdf5's caches of metadata, malloc's reserve */
#define FILE_NAME    "/proc/self/fd/4"    /* HDF5_FD_FILE */

/* ---- confinement ---- */

static void limit(int what, uint64_t most) {
  struct rlimit now;
  if (getrlimit((__rlimit_resource_t)what, &now) != 0) return;
  if (now.rlim_max != RLIM_INFINITY && most > now.rlim_max) most = now.rlim_max;
  now.rlim_cur = now.rlim_max = most;
  setrlimit((__rlimit_resource_t)what, &now);
}

/* Returns the address space in use now; 0 if unknown. */
static uint64_t mapped_bytes(void) {
  unsigned long pages = 0;
  FILE *in = fopen("/proc/self/statm", "re");
  if (in == NULL) return 0;
  if (fscanf(in, "%lu", &pages) != 1) pages = 0;
  fclose(in);
  return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void limit_memory(uint64_t heap_bytes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  (void)heap_bytes; /* the sanitizers map terabytes */
  (void)mapped_bytes;
#else
  uint64_t now = mapped_bytes();
  if (now > 0 && heap_bytes < UINT64_MAX - now - BASE_BYTES)
    limit(RLIMIT_AS, now + heap_bytes + BASE_BYTES);
#endif
}

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

#define REFUSED (SECCOMP_RET_ERRNO | EPERM)
#define REFUSE(number)                                                                             \
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, REFUSED)

/* Refuses what reading a file never needs: programs, the network, other processes, names of files.
 * Everything else is allowed, so that no filter of a future libhdf5 fails. RLIMIT_FSIZE keeps it
 * from writing to files. */
static void refuse_calls(void) {
#ifdef ARCHITECTURE
  static const struct sock_filter code[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, REFUSED), /* another ABI: 32-bit calls */
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    REFUSE(__NR_execve),
    REFUSE(__NR_execveat),
    REFUSE(__NR_socket),
    REFUSE(__NR_connect),
    REFUSE(__NR_bind),
    REFUSE(__NR_ptrace),
    REFUSE(__NR_process_vm_readv),
    REFUSE(__NR_process_vm_writev),
    REFUSE(__NR_unlinkat),
    REFUSE(__NR_renameat2),
    REFUSE(__NR_mkdirat),
    REFUSE(__NR_linkat),
    REFUSE(__NR_symlinkat),
#if defined(__x86_64__)
    REFUSE(__NR_unlink),
    REFUSE(__NR_rename),
    REFUSE(__NR_mkdir),
    REFUSE(__NR_link),
    REFUSE(__NR_symlink),
#endif
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {.len = sizeof code / sizeof code[0],
                                     .filter = (struct sock_filter *)(uintptr_t)code};
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
#endif
}

/* Closes what the program that reads has open and lets its children inherit. Called before
 * libhdf5 is loaded. */
static void close_others(void) {
#ifdef __NR_close_range
  syscall(__NR_close_range, HDF5_FD_SHARED + 1, ~0U, 0); /* Linux 5.9 */
#endif
}

/* Restricts this process. Called with libhdf5 loaded and the file not yet open. If the kernel
 * refuses one restriction, the others still apply. */
static void confine(uint64_t heap_bytes) {
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_FSIZE, 0);
  limit_memory(heap_bytes);
  refuse_calls();
}

/* ---- the time a step may take ---- */

static uint64_t step_seconds(void) {
  const char *given = getenv(ENV_HDF5_SECONDS);
  uint64_t seconds = given != NULL ? strtoull(given, NULL, 10) : 0;
  return seconds > 0 && seconds < 1u << 30 ? seconds : STEP_SECONDS;
}

/* Starts a step: SIGPROF ends the process when it has used this much CPU time since the last
 * call. */
static void begin_step(uint64_t bytes) {
  struct itimerval timer = {.it_value = {.tv_sec = (time_t)(step_seconds() + bytes / STEP_BYTES)}};
  setitimer(ITIMER_PROF, &timer, NULL);
}

static void end_step(void) {
  static const struct itimerval none;
  setitimer(ITIMER_PROF, &none, NULL);
}

/* ---- serving ---- */

static bool say(const hdf5_reply *reply) {
  ssize_t sent;
  do sent = send(HDF5_FD_SOCKET, reply, sizeof *reply, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent == (ssize_t)sizeof *reply;
}

static stow_status list_one(void *context, const hdf5_dataset *d) {
  hdf5_reply reply = {.dataset = *d};
  (void)context;
  end_step();
  if (!say(&reply)) return stow_fail(STOW_ERR_IO, "the reading process has exited");
  begin_step(0);
  return STOW_OK;
}

static stow_status serve(hdf5_file *f, const hdf5_request *request, char *shared,
                         hdf5_reply *reply) {
  switch (request->what) {
  case HDF5_LIST: return hdf5_file_list(f, list_one, NULL);
  case HDF5_FIND: return hdf5_file_find(f, request->name, list_one, NULL);
  case HDF5_READ:
    return hdf5_file_read(f, request->name, request->start, request->count, shared, request->bytes);
  case HDF5_WRITTEN:
    return hdf5_file_written(f, request->name, (uint64_t *)(void *)shared,
                             request->bytes / sizeof(uint64_t), &reply->count, &reply->row_items,
                             &reply->known, reply->fill);
  case HDF5_PLACES:
    return hdf5_file_places(f, request->name, (uint64_t *)(void *)shared,
                            request->bytes / sizeof(uint64_t), &reply->count, &reply->known);
  default: return stow_fail(STOW_ERR_INVALID, "hdf5 worker: unknown request %u", request->what);
  }
}

int hdf5_worker_main(const char *path, uint64_t heap_bytes, uint64_t shared_bytes) {
  const hdf5_library *library;
  hdf5_file file;
  hdf5_request request;
  bool open = false;
  signal(SIGINT, SIG_IGN); /* for the process that reads, which then ends us */
  char *shared = mmap(NULL, shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, HDF5_FD_SHARED, 0);
  if (shared == MAP_FAILED) return 2;
  close_others();
  stow_status status = hdf5_library_get(&library, path);
  confine(heap_bytes);
  while (recv(HDF5_FD_SOCKET, &request, sizeof request, 0) == (ssize_t)sizeof request) {
    hdf5_reply reply = {.last = true};
    begin_step(request.bytes);
    if (!open && status == STOW_OK) {
      status = hdf5_file_open(&file, FILE_NAME, path);
      open = status == STOW_OK;
    }
    stow_status answer = open ? serve(&file, &request, shared, &reply) : status;
    end_step();
    reply.status = answer;
    if (answer != STOW_OK) snprintf(reply.text, sizeof reply.text, "%s", stow_status_message());
    if (!say(&reply)) break;
  }
  _exit(0); /* libhdf5's own cleaning up may crash too */
}
