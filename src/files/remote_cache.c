/* Remote cache: one sparse file per version of a remote file, in $XDG_CACHE_HOME/stowage/remote:
 *
 *   a hash for each block (8 bytes; 0: absent) | padding to a page | the blocks, each at its place
 *
 * The hash is written after its block. Users of a file hold a shared lock on it. A file without a
 * lock may be removed to free space, the least recently used first. */
#include "files/remote_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stowage/size.h>

#include "base/cache.h"
#include "base/checked.h"
#include "base/hash.h"
#include "base/newfile.h"
#include "base/variables.h"

enum {
  LOOK_BLOCKS = 16, /* stored between two checks of the total size: 4 MiB */
  PAGE_BYTES = 4096,
};
#define SUFFIX ".blocks"

struct remote_cache {
  int fd, folder;
  char name[64];
  uint64_t bound, data_at;
  bool stopped; /* the disk is full or rejects writes */
};

/* Shared by the process: all caches count towards the same folder. */
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static uint64_t held_bytes, stored_blocks; /* guarded; at the last check, and since then */

stow_status remote_cache_bound(uint64_t *bytes) {
  const char *text = getenv(ENV_CACHE);
  *bytes = 0;
  if (text == NULL || text[0] == '\0') return STOW_OK;
  if (stow_size_parse(bytes, text) == STOW_OK) return STOW_OK;
  return stow_fail(STOW_ERR_INVALID,
                   ENV_CACHE "=%.60s is not a size; give a cache size such as 10G", text);
}

/* ---- the folder ---- */

/* Opens the folder, creating each level if needed. Returns -1 on failure. */
static int open_folder(void) {
  char path[PATH_MAX];
  if (!cache_path(path, "remote", true)) return -1;
  if (mkdir(path, 0700) != 0 && errno != EEXIST) return -1;
  struct stat st;
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 || (fstat(fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 022) == 0))
    return fd;
  close(fd); /* others could write there */
  return -1;
}

typedef struct held {
  char name[64];
  int64_t used_ns; /* when it was last opened or written to */
} held;

/* Returns the total size of the folder's files, and the least recently used file after
 * `after_ns`. */
static uint64_t look(int folder, int64_t after_ns, held *oldest) {
  uint64_t all = 0;
  *oldest = (held){.used_ns = INT64_MAX};
  int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *entries = fd >= 0 ? fdopendir(fd) : NULL;
  if (entries == NULL) return fd >= 0 ? close(fd), 0 : 0;
  for (struct dirent *e; (e = readdir(entries)) != NULL;) {
    struct stat st;
    size_t length = strlen(e->d_name), suffix = sizeof SUFFIX - 1;
    if (length <= suffix || length >= sizeof oldest->name ||
        strcmp(e->d_name + length - suffix, SUFFIX) != 0 ||
        fstatat(folder, e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    all += (uint64_t)st.st_blocks * 512;
    int64_t used_ns = st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec;
    if (used_ns > after_ns && used_ns < oldest->used_ns) {
      oldest->used_ns = used_ns;
      memcpy(oldest->name, e->d_name, length + 1);
    }
  }
  closedir(entries);
  return all;
}

/* Returns false if a process uses it. */
static bool remove_unused(int folder, const char *name) {
  int fd = openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  bool removed = flock(fd, LOCK_EX | LOCK_NB) == 0 && unlinkat(folder, name, 0) == 0;
  close(fd);
  return removed;
}

/* Removes the oldest files if the total exceeds the bound; returns the total. Guard held. */
static uint64_t make_room(int folder, uint64_t wanted, uint64_t bound) {
  held oldest;
  int64_t after_ns = INT64_MIN;
  uint64_t all = look(folder, after_ns, &oldest);
  while (all + wanted > bound && oldest.used_ns != INT64_MAX) {
    if (!remove_unused(folder, oldest.name)) after_ns = oldest.used_ns;
    all = look(folder, after_ns, &oldest);
  }
  return all;
}

/* Returns whether there is space for one more block. */
static bool has_room(const remote_cache *c) {
  pthread_mutex_lock(&guard);
  if (stored_blocks % LOOK_BLOCKS == 0) {
    held_bytes = make_room(c->folder, LOOK_BLOCKS * REMOTE_BLOCK_BYTES, c->bound);
    stored_blocks = 0;
  }
  stored_blocks++;
  bool room = held_bytes + stored_blocks * REMOTE_BLOCK_BYTES <= c->bound;
  pthread_mutex_unlock(&guard);
  return room;
}

/* ---- one file ---- */

/* Opens and locks the file, and checks that it still has its name: another process may just have
 * removed it. */
static bool open_file(remote_cache *c) {
  for (int tries = 0; tries < 10; tries++) {
    struct stat opened, named;
    c->fd = newfile_own(c->folder, c->name, 0, 0600);
    if (c->fd < 0) return false;
    if (flock(c->fd, LOCK_SH) == 0 && fstat(c->fd, &opened) == 0 &&
        fstatat(c->folder, c->name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
        opened.st_ino == named.st_ino && opened.st_dev == named.st_dev)
      return futimens(c->fd, NULL) == 0;
    close(c->fd);
    c->fd = -1;
  }
  return false;
}

remote_cache *remote_cache_open(const char *url, uint64_t bytes, const char *mark, uint64_t bound) {
  if (bound == 0 || mark[0] == '\0') return NULL; /* versions could not be distinguished */
  remote_cache *c = malloc(sizeof *c);
  if (c == NULL) return NULL;
  uint64_t table = (bytes / REMOTE_BLOCK_BYTES + 1) * sizeof(uint64_t), key[2];
  *c = (remote_cache){.fd = -1, .bound = bound, .data_at = round_up(table, PAGE_BYTES)};
  /* The query identifies the file. The password does not, and must not be guessable from the
   * name. */
  const char *host = strstr(url, "://") + 3, *at = memchr(host, '@', strcspn(host, "/?#"));
  if (at != NULL) host = at + 1;
  bool tls = strncasecmp(url, "https", 5) == 0;
  for (uint64_t i = 0; i < 2; i++) {
    key[i] = hash_bytes(host, strlen(host), i + 2 * tls);
    key[i] = hash_u64(bytes, hash_bytes(mark, strlen(mark), key[i]));
  }
  snprintf(c->name, sizeof c->name, "%016" PRIx64 "%016" PRIx64 SUFFIX, key[0], key[1]);
  c->folder = open_folder();
  if (c->folder >= 0 && open_file(c)) return c;
  remote_cache_close(c);
  return NULL;
}

void remote_cache_close(remote_cache *c) {
  if (c == NULL) return;
  if (c->fd >= 0) close(c->fd);
  if (c->folder >= 0) close(c->folder);
  free(c);
}

static uint64_t block_hash(uint64_t number, const void *bytes, size_t count) {
  return hash_bytes(bytes, count, number) | 1; /* never 0 */
}

bool remote_cache_has(remote_cache *c, uint64_t number) {
  uint64_t hash;
  return pread(c->fd, &hash, sizeof hash, (off_t)(number * sizeof hash)) == sizeof hash &&
         hash != 0;
}

bool remote_cache_read(remote_cache *c, uint64_t number, void *to, size_t count) {
  uint64_t hash;
  off_t entry = (off_t)(number * sizeof hash),
        at = (off_t)(c->data_at + number * REMOTE_BLOCK_BYTES);
  return pread(c->fd, &hash, sizeof hash, entry) == sizeof hash && hash != 0 &&
         pread(c->fd, to, count, at) == (ssize_t)count && hash == block_hash(number, to, count);
}

void remote_cache_write(remote_cache *c, uint64_t number, const void *from, size_t count) {
  if (c->stopped || !has_room(c)) return;
  uint64_t hash = block_hash(number, from, count);
  off_t entry = (off_t)(number * sizeof hash),
        at = (off_t)(c->data_at + number * REMOTE_BLOCK_BYTES);
  c->stopped = pwrite(c->fd, from, count, at) != (ssize_t)count ||
               pwrite(c->fd, &hash, sizeof hash, entry) != sizeof hash;
}
