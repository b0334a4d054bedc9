/* Ask: a futex in a shared file. */
#include "run/ask.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/newfile.h"

#define ASK_BYTES 4096

stow_status ask_create(ask **a, const char *path) {
  int fd = newfile_create(path, 0600);
  void *mapped = MAP_FAILED;
  if (fd >= 0 && ftruncate(fd, ASK_BYTES) == 0)
    mapped = mmap(NULL, ASK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  int error = errno;
  if (fd >= 0) close(fd);
  *a = mapped != MAP_FAILED ? mapped : NULL;
  return *a != NULL ? STOW_OK : stow_fail(STOW_ERR_IO, "cannot make %s: %s", path, strerror(error));
}

void ask_close(ask *a) {
  if (a != NULL) munmap(a, ASK_BYTES);
}

uint32_t ask_post(ask *a, pid_t pid) {
  atomic_store(&a->pid, (int32_t)pid);
  uint32_t serial = atomic_fetch_add(&a->serial, 1) + 1;
  syscall(SYS_futex, &a->serial, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
  return serial;
}

ask *ask_open(const char *path) {
  struct stat info;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
  void *mapped = MAP_FAILED;
  if (fd >= 0 && fstat(fd, &info) == 0 && info.st_size >= ASK_BYTES)
    mapped = mmap(NULL, ASK_BYTES, PROT_READ, MAP_SHARED, fd, 0);
  if (fd >= 0) close(fd);
  return mapped != MAP_FAILED ? mapped : NULL;
}

void ask_wait(ask *a, uint32_t *seen) {
  for (;;) {
    uint32_t now = atomic_load(&a->serial);
    if (now == *seen) {
      syscall(SYS_futex, &a->serial, FUTEX_WAIT, now, NULL, NULL, 0);
      continue;
    }
    *seen = now;
    if (atomic_load(&a->pid) == (int32_t)getpid()) return;
  }
}
