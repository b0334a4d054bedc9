/* Source: pread in a loop, and posix_fadvise after it. */
#include "files/source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/hostmem.h"
#include "files/missing.h"
#include "files/source_view.h"

#define DROP_BYTES   (UINT64_C(8) << 20)   /* dropped in pieces of this size */
#define EXPECT_LEAST (UINT64_C(256) << 10) /* below, reading costs less than a second call */

static uint64_t changed_ns(const struct stat *st) {
  return (uint64_t)st->st_mtim.tv_sec * UINT64_C(1000000000) + (uint64_t)st->st_mtim.tv_nsec;
}

/* Returns whether a file should bypass the page cache. A file that fits in half of the host's free
 * memory stays cached for the next reader. A larger one would only evict everything else. */
bool source_too_large_to_cache(uint64_t bytes) {
  if (bytes < DROP_BYTES) return false;
  hostmem host;
  return hostmem_read(&host) == STOW_OK && bytes > host.usable_bytes / 2;
}

stow_status source_open_file(source *s, const char *path) {
  *s = (source){.fd = -1, .direct_fd = -1, .name = path};
  /* Non-blocking: opening a pipe without a writer must not hang. */
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return missing_fail(path, errno);
  struct stat st;
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    close(fd);
    return stow_fail(STOW_ERR_INVALID, "%s: not a regular file; data files need random access",
                     path);
  }
  s->fd = fd;
  s->bytes = (uint64_t)st.st_size;
  s->device = st.st_dev;
  s->inode = st.st_ino;
  s->changed_ns = changed_ns(&st);
  s->drop = source_too_large_to_cache(s->bytes);
  s->drop_bytes = DROP_BYTES;
  posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  return STOW_OK;
}

void source_open_memory(source *s, const void *bytes, size_t count, const char *name) {
  *s = (source){.fd = -1, .direct_fd = -1, .memory = bytes, .bytes = count, .name = name};
}

void source_open_reader(source *s, const source_reader *reader, uint64_t bytes, const char *name) {
  *s = (source){.fd = -1, .direct_fd = -1, .reader = *reader, .bytes = bytes, .name = name};
}

void source_share(source *s, const source *with) {
  if (s == with || s->fd < 0 || with->fd < 0 || s->device != with->device ||
      s->inode != with->inode)
    return;
  int fd = fcntl(with->fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return;
  close(s->fd);
  s->fd = fd;
}

/* ---- direct reads, bypassing the page cache ---- */

uint64_t source_whole_rows(uint64_t rows, uint64_t most_bytes, uint64_t row_bytes) {
  if (row_bytes == 0) return rows;
  uint64_t step = SOURCE_DIRECT_UNIT;
  for (uint64_t rest = row_bytes; rest % 2 == 0 && step > 1; rest /= 2) step /= 2;
  if (rows >= step) return rows - rows % step;
  return step <= most_bytes / row_bytes ? step : rows;
}

static void stop_direct(source *s) {
  if (s->direct_fd >= 0) close(s->direct_fd);
  s->direct_fd = -1;
  s->bounce = NULL;
}

void source_go_direct(source *s, void *bounce, size_t bounce_bytes) {
  char path[64];
  if (s->fd < 0 || s->bounce != NULL) return;
  s->bounce_bytes = (size_t)round_down(bounce_bytes, SOURCE_DIRECT_UNIT);
  if (s->bounce_bytes < SOURCE_DIRECT_LEAST) return;
  snprintf(path, sizeof path, "/proc/self/fd/%d",
           s->fd); /* the same file, whatever its name is now */
  s->bounce = bounce;
  s->direct_fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
  if (s->direct_fd < 0)
    stop_direct(s);
  else
    posix_fadvise(s->fd, 0, 0, POSIX_FADV_RANDOM); /* small reads must not trigger readahead */
}

/* Reads whole units straight to their destination. The units that hold the first and the last byte
 * go through the bounce buffer, in the same call, unless the read owns all of them. */
static ssize_t read_straight(source *s, uint64_t offset, char *to, size_t count) {
  size_t head = (size_t)(round_up(offset, SOURCE_DIRECT_UNIT) - offset);
  size_t middle = (size_t)round_down(count - head, SOURCE_DIRECT_UNIT),
         tail = count - head - middle;
  struct iovec parts[3];
  int used = 0;
  if (head > 0) parts[used++] = (struct iovec){s->bounce, SOURCE_DIRECT_UNIT};
  parts[used++] = (struct iovec){to + head, middle};
  if (tail > 0) parts[used++] = (struct iovec){s->bounce + SOURCE_DIRECT_UNIT, SOURCE_DIRECT_UNIT};
  ssize_t got = preadv(s->direct_fd, parts, used, (off_t)round_down(offset, SOURCE_DIRECT_UNIT));
  size_t before = head > 0 ? (size_t)SOURCE_DIRECT_UNIT - head : 0;
  if (got <= (ssize_t)before) return got;
  size_t part = (size_t)got - before;
  if (head > 0) memcpy(to, s->bounce + before, part < head ? part : head);
  if (part > head + middle) {
    size_t ending = part - head - middle;
    memcpy(to + head + middle, s->bounce + SOURCE_DIRECT_UNIT, ending < tail ? ending : tail);
  }
  return got;
}

/* Returns how many bytes from `offset` on one direct read fetched; 0: not possible directly. */
static size_t read_direct(source *s, uint64_t offset, char *to, size_t count) {
  uint64_t start = round_down(offset, SOURCE_DIRECT_UNIT),
           end = round_up(offset + count, SOURCE_DIRECT_UNIT);
  size_t wanted = (size_t)(end - start), within = (size_t)(offset - start);
  bool aligned = ((uintptr_t)to - within) % SOURCE_DIRECT_UNIT == 0;
  bool straight = aligned && (s->room || count >= 2 * SOURCE_DIRECT_UNIT);
  if (!straight && wanted > s->bounce_bytes) wanted = s->bounce_bytes;
  ssize_t got;
  if (straight && !s->room)
    got = read_straight(s, offset, to, count);
  else
    got = pread(s->direct_fd, straight ? to - within : (char *)s->bounce, wanted, (off_t)start);
  if (got < 0) {
    if (errno == EINVAL) stop_direct(s); /* the file system has other alignment rules */
    return 0;
  }
  if ((size_t)got <= within) return 0;
  size_t part = (size_t)got - within;
  if (part > count) part = count;
  if (!straight) memcpy(to, s->bounce + within, part);
  return part;
}

/* ---- dropping page cache ---- */

static void drop_read(source *s) {
  if (s->drop_to > s->drop_from)
    posix_fadvise(s->fd, (off_t)s->drop_from, (off_t)(s->drop_to - s->drop_from),
                  POSIX_FADV_DONTNEED);
  s->drop_from = s->drop_to;
}

void source_close(source *s) {
  if (s->fd >= 0 && s->drop) drop_read(s);
  if (s->fd >= 0) close(s->fd);
  if (s->bounce != NULL) stop_direct(s);
  if (s->reader.close != NULL) s->reader.close(s->reader.user);
  source_view_free(s->views);
  s->views = NULL;
  s->fd = -1;
  s->memory = NULL;
  s->reader = (source_reader){0};
}

/* Drops contiguous reads from the page cache together, and the rest at once after a jump. */
static void drop_behind(source *s, uint64_t offset, uint64_t end) {
  if (offset != s->drop_to) {
    drop_read(s);
    s->drop_from = offset;
  }
  s->drop_to = end;
  if (s->drop_to - s->drop_from >= s->drop_bytes) drop_read(s);
}

/* Fails because byte `at`, which the file had when it was opened, cannot be read. */
static stow_status was_cut(const source *s, uint64_t at) {
  struct stat st;
  uint64_t end = fstat(s->fd, &st) == 0 && (uint64_t)st.st_size < at ? (uint64_t)st.st_size : at;
  return stow_fail(STOW_ERR_IO,
                   "%s: ends at byte %" PRIu64 ", but had %" PRIu64
                   " bytes when it was opened: it was truncated while being read",
                   s->name, end, s->bytes);
}

/* ---- views ---- */

static stow_status read_behind(void *user, uint64_t offset, void *to, size_t count) {
  return source_read(user, offset, to, count);
}

stow_status source_add_view(source *s, const struct source_view *view, uint64_t *at) {
  return source_view_add(&s->views, &(source_viewed){.name = s->name, .bytes = s->bytes}, view, at);
}

uint64_t source_end(const source *s) {
  return source_view_end(s->views, s->bytes);
}

/* ---- reading ---- */

static stow_status cannot_read(const source *s, uint64_t offset) {
  return stow_fail(STOW_ERR_IO, "%s: cannot read at byte %" PRIu64 ": %s", s->name, offset,
                   strerror(errno));
}

void source_expect(const source *s, uint64_t offset, uint64_t bytes) {
  if (s->fd >= 0 && s->bounce == NULL && bytes >= EXPECT_LEAST)
    posix_fadvise(s->fd, (off_t)offset, (off_t)bytes, POSIX_FADV_WILLNEED);
}

stow_status source_read_parts(source *s, uint64_t offset, struct iovec *parts, size_t count) {
  uint64_t at = offset;
  while (count > 0) {
    ssize_t got = preadv(s->fd, parts, (int)count, (off_t)at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return cannot_read(s, at);
    if (got == 0) return was_cut(s, at);
    at += (uint64_t)got;
    size_t left = (size_t)got;
    for (; count > 0 && left >= parts->iov_len; count--) left -= (parts++)->iov_len;
    if (left == 0) continue;
    parts->iov_base = (char *)parts->iov_base + left;
    parts->iov_len -= left;
  }
  if (s->drop) drop_behind(s, offset, at);
  return STOW_OK;
}

stow_status source_read(source *s, uint64_t offset, void *to, size_t count) {
  if (s->views != NULL && offset >= s->bytes && count > 0)
    return source_view_read(s->views, &(source_viewed){s->name, s->bytes, read_behind, s}, offset,
                            to, count);
  if (count > s->bytes || offset > s->bytes - count)
    return stow_fail(STOW_ERR_FORMAT,
                     "%s: requested %zu bytes at byte %" PRIu64
                     ", but the file ends at byte %" PRIu64 " (truncated?)",
                     s->name, count, offset, s->bytes);
  if (s->reader.read != NULL)
    return count > 0 ? s->reader.read(s->reader.user, offset, to, count) : STOW_OK;
  if (s->fd < 0) {
    if (count > 0) memcpy(to, s->memory + offset, count);
    return STOW_OK;
  }
  char *at = to;
  uint64_t cached_from = offset;
  for (size_t left = count; left > 0;) {
    if (s->bounce != NULL && count >= SOURCE_DIRECT_LEAST) {
      size_t part = read_direct(s, offset + (count - left), at, left);
      at += part;
      left -= part;
      cached_from += part;
      if (part > 0) continue;
    }
    ssize_t got = pread(s->fd, at, left, (off_t)(offset + (count - left)));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return cannot_read(s, offset + (count - left));
    if (got == 0) return was_cut(s, offset + (count - left));
    at += got;
    left -= (size_t)got;
  }
  if (s->drop && cached_from < offset + count) drop_behind(s, cached_from, offset + count);
  return STOW_OK;
}

stow_status source_check(const source *s) {
  struct stat st;
  if (s->reader.check != NULL) return s->reader.check(s->reader.user);
  if (s->fd < 0) return STOW_OK;
  if (fstat(s->fd, &st) != 0)
    return stow_fail(STOW_ERR_IO, "%s: cannot stat: %s", s->name, strerror(errno));
  if ((uint64_t)st.st_size != s->bytes)
    return stow_fail(STOW_ERR_IO,
                     "%s: had %" PRIu64 " bytes when it was opened and has %" PRIu64
                     " now; wait for its writer, then run this again",
                     s->name, s->bytes, (uint64_t)st.st_size);
  if (changed_ns(&st) != s->changed_ns)
    return stow_fail(STOW_ERR_IO,
                     "%s: was modified while being read; wait for its writer, then run this again",
                     s->name);
  return STOW_OK;
}
