/* Writer: pwrite into outfile's temporary file. */
#include "files/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <stowage/size.h>

#define SYNC_BYTES (UINT64_C(32) << 20)

static stow_status check_room(const writer *w, const char *path, uint64_t expected) {
  struct statvfs fs;
  if (fstatvfs(w->fd, &fs) != 0) return STOW_OK; /* writing will report it */
  uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize;
  if (expected <= room) return STOW_OK;
  char need[STOW_SIZE_TEXT_MAX], have[STOW_SIZE_TEXT_MAX];
  stow_size_format(need, expected);
  stow_size_format(have, room);
  if (strcmp(need, have) == 0) /* a few bytes too few */
    return stow_fail(STOW_ERR_IO,
                     "%s: needs %" PRIu64 " bytes, but the disk has %" PRIu64
                     " bytes left; free disk space or write elsewhere",
                     path, expected, room);
  return stow_fail(STOW_ERR_IO,
                   "%s: needs %s, but the disk has %s left; free disk space or write elsewhere",
                   path, need, have);
}

stow_status writer_check(const char *path, const source *reading) {
  struct stat st;
  if (reading != NULL && reading->fd >= 0 && stat(path, &st) == 0 &&
      (uint64_t)st.st_dev == reading->device && (uint64_t)st.st_ino == reading->inode)
    return stow_fail(STOW_ERR_INVALID, "%s: the output is the file being read; name another output",
                     path);
  return STOW_OK;
}

static stow_status begin(writer *w, const char *path, uint64_t expected_bytes) {
  w->fd = fileno(w->out.file);
  stow_status status = check_room(w, path, expected_bytes);
  if (status != STOW_OK) writer_abandon(w);
  return status;
}

stow_status writer_open_partial(writer *w, const char *path, const source *reading,
                                uint64_t expected_bytes, bool keep, bool join) {
  *w = (writer){.fd = -1};
  STOW_TRY(writer_check(path, reading));
  STOW_TRY(outfile_open_partial(&w->out, path, keep, join));
  return begin(w, path, keep || join ? 0 : expected_bytes);
}

/* The kernel lets a tenth of memory or more become dirty pages, and a container is charged for
 * them. Only a file written front to back advances `synced`. */
static void send_behind(writer *w) {
  if (w->bytes - w->synced < SYNC_BYTES) return;
#if defined(SYNC_FILE_RANGE_WRITE)
  sync_file_range(w->fd, (off_t)w->synced, (off_t)(w->bytes - w->synced), SYNC_FILE_RANGE_WRITE);
#endif
  w->synced = w->bytes;
}

static const char *reason(int error) {
  if (error != EFBIG) return strerror(error);
  return "File too large: larger than `ulimit -f` or the file system allows; raise the limit, or "
         "write "
         "smaller files (of a model with --shard)";
}

stow_status writer_put(const writer *w, uint64_t offset, const void *bytes, size_t count) {
  const char *at = bytes;
  while (count > 0) {
    ssize_t put = pwrite(w->fd, at, count, (off_t)offset);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0)
      return stow_fail(STOW_ERR_IO, "%s: cannot write at byte %" PRIu64 ": %s", w->out.path, offset,
                       reason(put == 0 ? ENOSPC : errno));
    at += put;
    offset += (uint64_t)put;
    count -= (size_t)put;
  }
  return STOW_OK;
}

stow_status writer_write(writer *w, uint64_t offset, const void *bytes, size_t count) {
  STOW_TRY(writer_put(w, offset, bytes, count));
  writer_flush_to(w, offset + count);
  return STOW_OK;
}

void writer_flush_to(writer *w, uint64_t end) {
  if (end > w->bytes) w->bytes = end;
  if (!w->no_sync) send_behind(w);
}

stow_status writer_end(writer *w, uint64_t bytes) {
  if (ftruncate(w->fd, (off_t)bytes) != 0)
    return stow_fail(STOW_ERR_IO, "%s: cannot truncate to %" PRIu64 " bytes: %s", w->out.path,
                     bytes, reason(errno));
  w->bytes = bytes;
  return STOW_OK;
}

stow_status writer_commit(writer *w) {
  w->out.no_sync = w->no_sync;
  w->fd = -1;
  return outfile_commit(&w->out);
}

void writer_abandon(writer *w) {
  w->fd = -1;
  outfile_abandon(&w->out);
}

void writer_keep(writer *w) {
  w->fd = -1;
  outfile_keep(&w->out);
}
