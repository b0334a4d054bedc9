/* Newfile: see newfile.h. */
#include "base/newfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIES = 16 }; /* another process may remove and create the name at the same time */

/* Closes it and keeps errno. */
static int refuse(int fd, int error) {
  close(fd);
  errno = error;
  return -1;
}

static bool starts_with(const char *text, const char *start) {
  return strncmp(text, start, strlen(start)) == 0;
}

static bool of_the_system(const char *path) {
  if (starts_with(path, "/dev/"))
    return !starts_with(path, "/dev/shm/") && !starts_with(path, "/dev/mqueue/");
  return starts_with(path, "/proc/");
}

/* Returns true if the open file is a plain file of this user with one name. */
static int checked(int fd) {
  struct stat st;
  if (fstat(fd, &st) != 0) return refuse(fd, errno);
  if (!S_ISREG(st.st_mode)) return refuse(fd, EINVAL);
  if (st.st_uid != geteuid() || st.st_nlink > 1) return refuse(fd, EPERM);
  return fd;
}

int newfile_create(const char *path, mode_t mode) {
  return open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
}

int newfile_find(int folder, const char *path) {
  if (of_the_system(path)) return openat(folder, path, O_RDWR | O_CLOEXEC | O_NOCTTY);
  /* O_NONBLOCK: a planted pipe must not block us. It has no effect on a plain file. */
  int fd = openat(folder, path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  return fd >= 0 ? checked(fd) : -1;
}

int newfile_own(int folder, const char *path, int flags, mode_t mode) {
  if (of_the_system(path))
    return openat(folder, path,
                  ((flags & O_APPEND) != 0 ? O_WRONLY : O_RDWR) | flags | O_CLOEXEC | O_NOCTTY);
  for (int i = 0; i < TRIES; i++) {
    int fd = openat(folder, path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags);
    if (fd >= 0) return checked(fd);
    if (errno != ENOENT) return -1;
    fd = openat(folder, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | flags, mode);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

const char *newfile_reason(int error) {
  switch (error) {
  case ELOOP: return "it is a symbolic link; remove it";
  case EPERM: return "it belongs to another user or has another name; remove it";
  case EINVAL: return "it is not a plain file; remove it";
  case ENOENT: return "the folder does not exist; create it first";
  default: return strerror(error);
  }
}

int newfile_beside(char *name, size_t size, const char *path, mode_t mode) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyz234567";
  int length = snprintf(name, size, "%s.XXXXXX", path), fd = -1;
  if (length < 0 || (size_t)length >= size) {
    if (size > 0) name[0] = '\0';
    errno = ENAMETOOLONG;
    return -1;
  }
  /* mkostemp would give it the mode 0600, and only the kernel applies a process's umask without a
   * moment in which other threads have none. */
  for (int i = 0; i < TRIES && fd < 0; i++) {
    uint8_t bits[6];
    if (getrandom(bits, sizeof bits, 0) != (ssize_t)sizeof bits) break;
    for (size_t k = 0; k < sizeof bits; k++) name[length - 6 + (int)k] = letters[bits[k] % 32];
    fd = newfile_create(name, mode);
    if (fd < 0 && errno != EEXIST) break;
  }
  if (fd < 0) name[0] = '\0';
  return fd;
}

int newfile_unnamed(const char *folder) {
  int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL))
    return fd;
  char beside[PATH_MAX], name[PATH_MAX];
  if (snprintf(beside, sizeof beside, "%s/stowage", folder) >= (int)sizeof beside) {
    errno = ENAMETOOLONG;
    return -1;
  }
  fd = newfile_beside(name, sizeof name, beside, 0600);
  if (fd >= 0) unlink(name);
  return fd;
}

const char *newfile_folder(void) {
  const char *folder = getenv("TMPDIR");
  return folder != NULL && folder[0] != '\0' ? folder : "/var/tmp";
}

bool newfile_write(const char *path, const void *bytes, size_t count) {
  char name[PATH_MAX];
  const char *at = bytes;
  int fd = newfile_beside(name, sizeof name, path, 0600);
  if (fd < 0) return false;
  while (count > 0) {
    ssize_t put = write(fd, at, count);
    if (put < 0 && errno == EINTR) continue;
    if (put == 0) errno = ENOSPC;
    if (put <= 0) break;
    at += put;
    count -= (size_t)put;
  }
  bool fine = count == 0;
  int error = errno;
  if (close(fd) != 0 && fine) {
    fine = false;
    error = errno;
  }
  if (fine && rename(name, path) == 0) return true;
  if (fine) error = errno;
  unlink(name);
  errno = error;
  return false;
}
