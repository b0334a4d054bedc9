/* Scratch: see scratch.h. */
#include "data/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/newfile.h"
#include "files/outfile.h"

stow_status scratch_open(scratch *s, const char *beside) {
  *s = (scratch){.fd = -1, .owned = true, .name = beside};
  size_t length = strlen(beside);
  char *path = malloc(length + 16);
  if (path == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", beside);
  /* Unlinked at once: not every file system has unnamed files. */
  s->fd = newfile_beside(path, length + 16, beside, 0600);
  int why = errno;
  if (s->fd >= 0) unlink(path);
  free(path);
  if (s->fd < 0)
    return stow_fail(STOW_ERR_IO, "%s: cannot create a file next to it: %s", beside, strerror(why));
  return STOW_OK;
}

stow_status scratch_open_named(scratch *s, const char *path, bool keep) {
  bool taken;
  *s = (scratch){.fd = outfile_open_alone(path, keep, &taken), .owned = true, .name = path};
  if (s->fd >= 0) return STOW_OK;
  int why = errno;
  if (taken) return stow_fail(STOW_ERR_STATE, "%s: another run is writing to it", path);
  size_t length = strlen(path), ending = sizeof ".scratch" - 1; /* the user's name is before it */
  if (length > ending && strcmp(path + length - ending, ".scratch") == 0) length -= ending;
  return stow_fail(STOW_ERR_IO, "%.*s: cannot write: %s", (int)length, path,
                   outfile_reason(path, why));
}

void scratch_close(scratch *s) {
  if (s->owned && s->fd >= 0) close(s->fd);
  s->fd = -1;
}

stow_status scratch_write_all(const scratch *s, uint64_t offset, struct iovec *all, size_t count) {
  for (offset += s->base; count > 0;) {
    if (all->iov_len == 0) {
      all++, count--;
      continue;
    }
    ssize_t put = pwritev(s->fd, all, (int)count, (off_t)offset);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0)
      return stow_fail(STOW_ERR_IO, "%s: cannot write at byte %" PRIu64 ": %s", s->name, offset,
                       strerror(put == 0 ? ENOSPC : errno));
    offset += (uint64_t)put;
    for (size_t left = (size_t)put; left > 0;) {
      size_t part = left < all->iov_len ? left : all->iov_len;
      all->iov_base = (char *)all->iov_base + part;
      all->iov_len -= part;
      left -= part;
      if (all->iov_len == 0) all++, count--;
    }
  }
  return STOW_OK;
}

stow_status scratch_write(const scratch *s, uint64_t offset, const void *bytes, size_t count) {
  struct iovec one = {(void *)(uintptr_t)bytes, count};
  return scratch_write_all(s, offset, &one, 1);
}

stow_status scratch_read(const scratch *s, uint64_t offset, void *to, size_t count) {
  char *at = to;
  for (offset += s->base; count > 0;) {
    ssize_t got = pread(s->fd, at, count, (off_t)offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      return stow_fail(STOW_ERR_IO, "%s: cannot read back at byte %" PRIu64 ": %s", s->name, offset,
                       got == 0 ? "end of file" : strerror(errno));
    at += got;
    offset += (uint64_t)got;
    count -= (size_t)got;
  }
  return STOW_OK;
}
