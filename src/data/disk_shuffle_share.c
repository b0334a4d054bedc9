/* Disk shuffle, shared: see disk_shuffle_share.h. */
#include "data/disk_shuffle_share.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/newfile.h"

enum { RETRY_MS = 20 };
static const char complete[] = "complete\n";

struct disk_shuffle_share {
  int lock;
  char *path; /* of the files, without suffix */
  size_t path_bytes;
};

static const char *name_of(const disk_shuffle_share *s, char *to, const char *suffix) {
  snprintf(to, s->path_bytes + 16, "%s.%s", s->path, suffix);
  return to;
}

static bool is_complete(int lock) {
  char text[sizeof complete];
  return pread(lock, text, sizeof text, 0) == (ssize_t)(sizeof complete - 1) &&
         memcmp(text, complete, sizeof complete - 1) == 0;
}

/* Returns whether this process may go on: it has the lock alone, or shares complete files. */
static bool try_lock(int fd) {
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
  if (flock(fd, LOCK_SH | LOCK_NB) != 0) return false;
  if (is_complete(fd)) return true;
  flock(fd, LOCK_UN);
  errno = EWOULDBLOCK;
  return false;
}

/* Returns a descriptor of the locked file, -1 with errno. */
static int lock_file(const char *path, const atomic_bool *cancelled) {
  for (;;) {
    int fd = newfile_own(AT_FDCWD, path, 0, 0600);
    if (fd < 0) return -1;
    while (!try_lock(fd)) {
      if ((errno != EWOULDBLOCK && errno != EINTR) || atomic_load(cancelled)) {
        int why = errno;
        close(fd);
        errno = atomic_load(cancelled) ? ECANCELED : why;
        return -1;
      }
      nanosleep(&(struct timespec){.tv_nsec = RETRY_MS * 1000000L}, NULL);
    }
    struct stat held;
    if (fstat(fd, &held) == 0 && held.st_nlink > 0) return fd;
    close(fd); /* the last user removed it while we waited */
  }
}

stow_status disk_shuffle_share_open(disk_shuffle_share **out, const char *folder, uint64_t key,
                                    const atomic_bool *cancelled) {
  disk_shuffle_share *s = calloc(1, sizeof *s);
  size_t bytes = strlen(folder) + 64;
  char *path = malloc(bytes), *name = malloc(bytes + 16);
  if (s == NULL || path == NULL || name == NULL) {
    free(s), free(path), free(name);
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a shuffle on disk");
  }
  snprintf(path, bytes, "%s/stowage-shuffle-%016" PRIx64, folder, key);
  *s = (disk_shuffle_share){.path = path, .path_bytes = bytes};
  s->lock = lock_file(name_of(s, name, "lock"), cancelled);
  int why = errno;
  stow_status status = STOW_OK;
  if (s->lock >= 0)
    *out = s;
  else if (why == ECANCELED)
    status = stow_fail(STOW_ERR_INTERRUPTED, "the shuffle on disk was stopped");
  else
    status = stow_fail(STOW_ERR_IO, "%s: cannot lock: %s", name, newfile_reason(why));
  free(name);
  if (status != STOW_OK) free(path), free(s);
  return status;
}

bool disk_shuffle_share_complete(const disk_shuffle_share *s) {
  return is_complete(s->lock);
}

int disk_shuffle_share_file(const disk_shuffle_share *s, uint32_t part, bool create) {
  char number[12], *name = malloc(s->path_bytes + 16);
  if (name == NULL) return -1;
  snprintf(number, sizeof number, "%u", part);
  name_of(s, name, number);
  int fd = create ? newfile_own(AT_FDCWD, name, 0, 0600) : newfile_find(AT_FDCWD, name);
  int why = errno;
  free(name);
  errno = why;
  return fd;
}

stow_status disk_shuffle_share_ready(disk_shuffle_share *s) {
  if (pwrite(s->lock, complete, sizeof complete - 1, 0) != (ssize_t)(sizeof complete - 1) ||
      flock(s->lock, LOCK_SH) != 0)
    return stow_fail(STOW_ERR_IO, "%s.lock: cannot write: %s", s->path, strerror(errno));
  return STOW_OK;
}

void disk_shuffle_share_close(disk_shuffle_share *s, uint32_t parts) {
  if (s == NULL) return;
  char number[12], *name = malloc(s->path_bytes + 16);
  if (name != NULL && flock(s->lock, LOCK_EX | LOCK_NB) == 0) {
    for (uint32_t i = 0; i < parts; i++) {
      snprintf(number, sizeof number, "%u", i);
      unlink(name_of(s, name, number));
    }
    unlink(name_of(s, name, "lock"));
  }
  free(name);
  close(s->lock);
  free(s->path);
  free(s);
}
