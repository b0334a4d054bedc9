/* Outfile: temporary file, fsync, rename. */
#include "files/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/newfile.h"

enum { DEFLATED_BYTES = 16 << 10 };

static stow_status fail(outfile *out, stow_status status) {
  if (out->status == STOW_OK) out->status = status;
  return out->status;
}

static stow_status begin_gzip(outfile *out) {
  z_stream *z = calloc(1, sizeof *z);
  if (z == NULL || deflateInit2(z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    free(z);
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to compress %s", out->path);
  }
  out->deflater = z;
  return STOW_OK;
}

/* Gives the new file the group and the permissions of the file that it replaces. Done at once, so a
 * private file's contents are never readable by others. */
static void keep_mode(int fd, const struct stat *old) {
  struct stat now;
  mode_t mode = old->st_mode & 0777;
  if (fstat(fd, &now) != 0) return;
  /* Another group must not have more rights than everybody has. */
  if (now.st_gid != old->st_gid && fchown(fd, (uid_t)-1, old->st_gid) != 0)
    mode &= ~(mode_t)070 | (mode & 07) << 3;
  (void)!fchmod(fd, mode);
}

/* Returns whether a file is at `path`, and sets *old to its status. */
static bool replaces(const char *path, struct stat *old) {
  return stat(path, old) == 0 && S_ISREG(old->st_mode);
}

stow_status outfile_check_folder(const char *path) {
  char folder[PATH_MAX];
  struct stat st;
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') length--;
  while (length > 0 && path[length - 1] != '/') length--;
  if (length == 0 || length >= sizeof folder) return STOW_OK;
  snprintf(folder, sizeof folder, "%.*s", (int)length, path);
  if (stat(folder, &st) == 0 || errno != ENOENT) return STOW_OK;
  return stow_fail(STOW_ERR_IO, "%s: the folder %s does not exist; create it first", path, folder);
}

const char *outfile_reason(const char *path, int error) {
  char folder[PATH_MAX];
  struct stat st;
  const char *slash = strrchr(path, '/');
  size_t length = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
  snprintf(folder, sizeof folder, "%.*s", (int)length, path);
  if (error == ENOENT && stat(length > 0 ? folder : ".", &st) == 0)
    return "no file can be created in this folder; choose another";
  return newfile_reason(error);
}

stow_status outfile_check(const char *path) {
  struct stat st;
  size_t length = strlen(path);
  if (length == 0) return stow_fail(STOW_ERR_INVALID, "an output file needs a name");
  if (length + OUTFILE_ENDING_MAX >= PATH_MAX)
    return stow_fail(STOW_ERR_INVALID,
                     "%.40s…: the output path has %zu bytes, the limit is %d; use a shorter path",
                     path, length, PATH_MAX - 1 - OUTFILE_ENDING_MAX);
  if (stat(path, &st) != 0 || S_ISREG(st.st_mode)) return STOW_OK;
  return stow_fail(STOW_ERR_INVALID, "%s is %s and cannot be replaced by a file; name a file", path,
                   S_ISDIR(st.st_mode)    ? "a folder"
                   : S_ISFIFO(st.st_mode) ? "a pipe"
                                          : "a device or a socket");
}

stow_status outfile_check_input(const char *path, const char *input) {
  struct stat out, in;
  if (strcmp(path, "-") == 0 || stat(path, &out) != 0 || !S_ISREG(out.st_mode)) return STOW_OK;
  if (stat(input, &in) != 0 || in.st_dev != out.st_dev || in.st_ino != out.st_ino) return STOW_OK;
  return stow_fail(STOW_ERR_INVALID, "%s: the output is the file being read; name another output",
                   path);
}

stow_status outfile_open(outfile *out, const char *path) {
  *out = (outfile){0};
  if (strcmp(path, "-") == 0) {
    out->file = stdout;
    return STOW_OK;
  }
  STOW_TRY(outfile_check(path));
  size_t length = strlen(path);
  out->path = strdup(path);
  out->temporary = calloc(1, length + OUTFILE_ENDING_MAX); /* empty: no file yet */
  if (out->path == NULL || out->temporary == NULL) {
    outfile_abandon(out);
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to write %s", path);
  }
  struct stat old;
  bool has_old = replaces(path, &old);
  int fd = newfile_beside(out->temporary, length + OUTFILE_ENDING_MAX, path, has_old ? 0600 : 0666);
  out->file = fd >= 0 ? fdopen(fd, "wb") : NULL;
  if (out->file == NULL) {
    int why = errno;
    if (fd >= 0) close(fd);
    stow_status status =
        stow_fail(STOW_ERR_IO, "%s: cannot write: %s", path, outfile_reason(path, why));
    outfile_abandon(out);
    return status;
  }
  if (has_old) keep_mode(fd, &old);
  if (length > 3 && strcmp(path + length - 3, ".gz") == 0) {
    stow_status status = begin_gzip(out);
    if (status != STOW_OK) outfile_abandon(out);
    return status;
  }
  return STOW_OK;
}

/* ext4 flushes a file on close if it was ever truncated to zero. A new file is empty already, so it
 * is not truncated. */
static bool cut(int fd) {
  struct stat st;
  return (fstat(fd, &st) == 0 && st.st_size == 0) || ftruncate(fd, 0) == 0;
}

static bool others_have(int fd) {
  return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

bool outfile_taken(const char *path) {
  int fd = newfile_find(AT_FDCWD, path);
  bool taken = others_have(fd);
  if (fd >= 0) close(fd);
  return taken;
}

int outfile_open_alone(const char *path, bool keep, bool *taken) {
  int fd = newfile_own(AT_FDCWD, path, 0, 0666);
  *taken = others_have(fd);
  if (fd < 0 || (!*taken && (keep || cut(fd)))) return fd;
  int why = errno;
  close(fd);
  errno = why;
  return -1;
}

stow_status outfile_open_partial(outfile *out, const char *path, bool keep, bool join) {
  *out = (outfile){0};
  STOW_TRY(outfile_check(path));
  size_t length = strlen(path);
  bool taken = false;
  char *name = calloc(1, length + OUTFILE_ENDING_MAX);
  out->path = strdup(path);
  if (out->path == NULL || name == NULL) {
    free(name);
    outfile_abandon(out);
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to write %s", path);
  }
  snprintf(name, length + OUTFILE_ENDING_MAX, "%s.partial", path);
  int fd = join ? newfile_find(AT_FDCWD, name) : outfile_open_alone(name, keep, &taken);
  int why = errno;
  struct stat old;
  if (fd >= 0 && !join && replaces(path, &old)) keep_mode(fd, &old);
  out->file = fd >= 0 ? fdopen(fd, "r+b") : NULL;
  if (out->file == NULL) {
    if (fd >= 0) {
      why = errno;
      if (!join && !keep) unlink(name); /* empty: this call created or truncated it */
      close(fd);
    }
    outfile_abandon(out);
    stow_status status =
        taken ? stow_fail(STOW_ERR_STATE, "%s: another run is writing to it (%s)", path, name)
              : stow_fail(STOW_ERR_IO, "%s: cannot write: %s: %s", path, name,
                          join ? strerror(why) : outfile_reason(path, why));
    free(name);
    return status;
  }
  if (join) name[0] = '\0'; /* another process renames or removes it */
  out->temporary = name;
  out->joined = join;
  return STOW_OK;
}

void outfile_narrow(const outfile *out, mode_t most) {
  struct stat now, old;
  if (out->path == NULL || replaces(out->path, &old)) return;
  int fd = fileno(out->file);
  if (fstat(fd, &now) == 0 && (now.st_mode & 0777 & ~most) != 0)
    (void)!fchmod(fd, now.st_mode & 0777 & most);
}

static stow_status write_plain(outfile *out, const void *bytes, size_t count) {
  if (count > 0 && fwrite(bytes, 1, count, out->file) != count)
    return fail(out, stow_fail(STOW_ERR_IO, "%s: cannot write: %s",
                               out->path != NULL ? out->path : "standard output", strerror(errno)));
  return STOW_OK;
}

static stow_status write_gzip(outfile *out, const void *bytes, size_t count, int flush) {
  z_stream *z = out->deflater;
  unsigned char made[DEFLATED_BYTES];
  z->next_in = (Bytef *)(uintptr_t)bytes;
  z->avail_in = (uInt)count;
  do {
    z->next_out = made;
    z->avail_out = sizeof made;
    deflate(z, flush);
    STOW_TRY(write_plain(out, made, sizeof made - z->avail_out));
  } while (z->avail_out == 0);
  return STOW_OK;
}

stow_status outfile_write(outfile *out, const void *bytes, size_t count) {
  if (out->status != STOW_OK) return out->status;
  out->bytes += count;
  if (out->deflater == NULL) return write_plain(out, bytes, count);
  const char *at = bytes;
  for (size_t part; count > 0; at += part, count -= part) {
    part = count < (1u << 30) ? count : 1u << 30;
    STOW_TRY(write_gzip(out, at, part, Z_NO_FLUSH));
  }
  return STOW_OK;
}

stow_status outfile_sink(void *context, const void *bytes, size_t count) {
  return outfile_write(context, bytes, count);
}

/* Returns whether the temporary name still refers to the file that was written. */
static bool still_ours(const outfile *out) {
  struct stat opened, named;
  if (fstat(fileno(out->file), &opened) != 0 || lstat(out->temporary, &named) != 0) return false;
  if (opened.st_dev == named.st_dev && opened.st_ino == named.st_ino) return true;
  errno = EEXIST;
  return false;
}

stow_status outfile_commit(outfile *out) {
  if (out->status == STOW_OK && out->deflater != NULL) write_gzip(out, NULL, 0, Z_FINISH);
  bool fine = fflush(out->file) == 0 && !ferror(out->file);
  if (out->path != NULL) {
    fine = fine && (out->no_sync || fsync(fileno(out->file)) == 0);
    fine = fine && (out->joined || still_ours(out));
    fine = fclose(out->file) == 0 && fine;
    out->file = NULL;
    if (fine && out->status == STOW_OK && !out->joined)
      fine = rename(out->temporary, out->path) == 0;
  }
  if (!fine)
    fail(out, stow_fail(STOW_ERR_IO, "%s: cannot write: %s",
                        out->path != NULL ? out->path : "standard output", strerror(errno)));
  else if (out->status == STOW_OK && out->temporary != NULL)
    out->temporary[0] = '\0'; /* it was renamed */
  stow_status status = out->status;
  outfile_abandon(out);
  return status;
}

void outfile_keep(outfile *out) {
  if (out->temporary != NULL) out->temporary[0] = '\0';
  outfile_abandon(out);
}

void outfile_abandon(outfile *out) {
  if (out->deflater != NULL) deflateEnd(out->deflater);
  free(out->deflater);
  if (out->path != NULL && out->file != NULL) fclose(out->file);
  if (out->temporary != NULL && out->temporary[0] != '\0') unlink(out->temporary);
  free(out->path);
  free(out->temporary);
  *out = (outfile){0};
}
