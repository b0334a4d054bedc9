/* Request: a futex in a shared file. */
#include "run/request.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/newfile.h"

#define REQUEST_BYTES 4096

stow_status request_create(request **out, const char *path) {
  ASSERT(out != NULL && path != NULL);
  int fd = newfile_create(path, 0600);
  void *mapped = MAP_FAILED;
  if (fd >= 0 && ftruncate(fd, REQUEST_BYTES) == 0)
    mapped = mmap(NULL, REQUEST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  int error = errno;
  if (fd >= 0) close(fd);
  *out = mapped != MAP_FAILED ? mapped : NULL;
  return *out != NULL ? STOW_OK
                      : stow_fail(STOW_ERR_IO, "cannot create %s: %s", path, strerror(error));
}

void request_close(request *r) {
  if (r != NULL) munmap(r, REQUEST_BYTES);
}

uint32_t request_post(request *r, pid_t pid, bool thorough) {
  ASSERT(r != NULL && pid > 0);
  atomic_store(&r->pid, (int32_t)pid);
  atomic_store(&r->thorough, (int32_t)thorough);
  uint32_t serial = atomic_fetch_add(&r->serial, 1) + 1;
  syscall(SYS_futex, &r->serial, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
  return serial;
}

request *request_open(const char *path) {
  struct stat info;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
  void *mapped = MAP_FAILED;
  if (fd >= 0 && fstat(fd, &info) == 0 && info.st_size >= REQUEST_BYTES)
    mapped = mmap(NULL, REQUEST_BYTES, PROT_READ, MAP_SHARED, fd, 0);
  if (fd >= 0) close(fd);
  return mapped != MAP_FAILED ? mapped : NULL;
}

void request_wait(request *r, uint32_t *seen) {
  ASSERT(r != NULL && seen != NULL);
  for (;;) {
    uint32_t now = atomic_load(&r->serial);
    if (now == *seen) {
      syscall(SYS_futex, &r->serial, FUTEX_WAIT, now, NULL, NULL, 0);
      continue;
    }
    *seen = now;
    if (atomic_load(&r->pid) == (int32_t)getpid()) return;
  }
}
