/* Cuda path: lists the places where a driver library may be. */
#include "device/cuda_path.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/variables.h"

#define LIBRARY "libcuda.so.1"
#define CACHE   "/etc/ld.so.cache"
/* No loader cache is this large. */
#define CACHE_BYTES_MAX ((off_t)64 << 20)

static const char *const FOLDERS[] = {
#if defined(__x86_64__)
    "/usr/lib/x86_64-linux-gnu",
    "/lib/x86_64-linux-gnu",
#elif defined(__aarch64__)
    "/usr/lib/aarch64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu/nvidia", /* Jetson */
    "/usr/lib/aarch64-linux-gnu/tegra",
#endif
    "/usr/lib64",
    "/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64", /* containers of older NVIDIA runtimes, Google Kubernetes Engine */
    "/usr/local/nvidia/lib",
    "/usr/lib/wsl/lib",       /* Windows Subsystem for Linux */
    "/run/opengl-driver/lib", /* NixOS */
    "/usr/local/cuda/compat",
};

bool cuda_path_same(const char *a, const char *b) {
  struct stat one, other;
  return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev &&
         one.st_ino == other.st_ino;
}

static bool show(const char *path, cuda_path_visit visit, void *user) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISREG(info.st_mode) && visit(user, path);
}

static bool show_in(const char *folder, size_t length, cuda_path_visit visit, void *user) {
  char path[CUDA_PATH_MAX];
  /* An empty list entry means the current folder, as in the loader. */
  int size = length == 0 ? snprintf(path, sizeof path, "./" LIBRARY)
                         : snprintf(path, sizeof path, "%.*s/" LIBRARY, (int)length, folder);
  return size > 0 && size < (int)sizeof path && show(path, visit, user);
}

/* ---- the loader's cache (glibc's dl-cache.h: the format "glibc-ld.so.cache1.1") ---- */

typedef struct cache_entry {
  int32_t flags;
  uint32_t key, value; /* offsets of name and path from the beginning of this format's header */
  uint32_t os_version;
  uint64_t hwcap;
} cache_entry;

typedef struct cache_header {
  char magic[20]; /* "glibc-ld.so.cache1.1" */
  uint32_t count, string_bytes;
  uint32_t unused[5];
} cache_header;
_Static_assert(sizeof(cache_header) == 48 && sizeof(cache_entry) == 24, "as glibc has them");

#define CACHE_MAGIC "glibc-ld.so.cache1.1"
#if defined(__x86_64__)
#define CACHE_KIND 0x0300 /* FLAG_X8664_LIB64 */
#elif defined(__aarch64__)
#define CACHE_KIND 0x0a00 /* FLAG_AARCH64_LIB64 */
#else
#define CACHE_KIND 0
#endif

/* Returns the text at `offset`; NULL if it does not end within the file. */
static const char *cache_text(const char *bytes, size_t size, uint32_t offset) {
  if (offset >= size || memchr(bytes + offset, '\0', size - offset) == NULL) return NULL;
  return bytes + offset;
}

bool cuda_path_in_cache(const void *file, size_t size, cuda_path_visit visit, void *user) {
  /* An older format may precede this one, so search for the magic at its alignment. */
  const char *bytes = file;
  size_t at = 0;
  while (at + sizeof(cache_header) <= size &&
         memcmp(bytes + at, CACHE_MAGIC, sizeof CACHE_MAGIC - 1) != 0)
    at += 4;
  if (at + sizeof(cache_header) > size) return false;
  bytes += at;
  size -= at;
  cache_header header;
  memcpy(&header, bytes, sizeof header);
  size_t room = (size - sizeof header) / sizeof(cache_entry);
  for (size_t i = 0; i < header.count && i < room; i++) {
    cache_entry entry;
    memcpy(&entry, bytes + sizeof header + i * sizeof entry, sizeof entry);
    const char *name = cache_text(bytes, size, entry.key);
    if ((entry.flags & 0xff00) != CACHE_KIND || name == NULL || strcmp(name, LIBRARY) != 0)
      continue;
    const char *path = cache_text(bytes, size, entry.value);
    if (path != NULL && path[0] == '/' && show(path, visit, user)) return true;
  }
  return false;
}

static bool each_in_cache(cuda_path_visit visit, void *user) {
  int fd = open(CACHE, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat info;
  bool found = false;
  if (fstat(fd, &info) == 0 && info.st_size > 0 && info.st_size < CACHE_BYTES_MAX) {
    size_t size = (size_t)info.st_size;
    void *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes != MAP_FAILED) {
      found = cuda_path_in_cache(bytes, size, visit, user);
      munmap(bytes, size);
    }
  }
  close(fd);
  return found;
}

bool cuda_path_each(cuda_path_visit visit, void *user) {
  const char *named = secure_getenv(ENV_LIBCUDA);
  if (named != NULL && named[0] != '\0') return show(named, visit, user);
  const char *list = secure_getenv("LD_LIBRARY_PATH");
  while (list != NULL && list[0] != '\0') {
    size_t length = strcspn(list, ":;");
    if (show_in(list, length, visit, user)) return true;
    list += length;
    if (*list != '\0') list++;
  }
  if (each_in_cache(visit, user)) return true;
  for (size_t i = 0; i < sizeof FOLDERS / sizeof FOLDERS[0]; i++)
    if (show_in(FOLDERS[i], strlen(FOLDERS[i]), visit, user)) return true;
  return false;
}

typedef struct beside {
  const char *name;
  cuda_path_visit visit;
  void *user;
} beside;

static bool show_beside(void *user, const char *path) {
  const beside *b = user;
  char other[CUDA_PATH_MAX];
  const char *slash = strrchr(path, '/');
  int size = slash == NULL
                 ? -1
                 : snprintf(other, sizeof other, "%.*s/%s", (int)(slash - path), path, b->name);
  return size > 0 && size < (int)sizeof other && show(other, b->visit, b->user);
}

bool cuda_path_beside(const char *name, cuda_path_visit visit, void *user) {
  return cuda_path_each(show_beside, &(beside){name, visit, user});
}
