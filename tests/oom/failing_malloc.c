/* A preloaded malloc that fails on request.
 *
 * Environment: OOM_AT=N fails the Nth allocation of the process, counted from its constructors on.
 * OOM_REST=1 fails every later one too. OOM_COUNT=PATH writes the number of allocations there at
 * exit. Anonymous mmap counts as an allocation. Children of the process are not affected.
 *
 * It finds the next malloc with dlsym; allocations by dlsym itself come from a small static
 * area. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct {
  void *(*malloc)(size_t);
  void *(*calloc)(size_t, size_t);
  void *(*realloc)(void *, size_t);
  void *(*aligned_alloc)(size_t, size_t);
  int (*posix_memalign)(void **, size_t, size_t);
  void (*free)(void *);
  void *(*mmap)(void *, size_t, int, int, int, off_t);
} next;

static _Alignas(16) char early[1 << 16]; /* for dlsym, before `next` is filled */
static size_t early_used;
static bool finding, counting, rest;
static _Atomic long count;
static long fail_at;
static char count_path[512];

static void find_next(void) {
  if (next.free != NULL || finding) return;
  finding = true;
  *(void **)&next.malloc = dlsym(RTLD_NEXT, "malloc");
  *(void **)&next.calloc = dlsym(RTLD_NEXT, "calloc");
  *(void **)&next.realloc = dlsym(RTLD_NEXT, "realloc");
  *(void **)&next.aligned_alloc = dlsym(RTLD_NEXT, "aligned_alloc");
  *(void **)&next.posix_memalign = dlsym(RTLD_NEXT, "posix_memalign");
  *(void **)&next.mmap = dlsym(RTLD_NEXT, "mmap");
  *(void **)&next.free = dlsym(RTLD_NEXT, "free");
  finding = false;
}

static bool is_early(const void *p) {
  return (const char *)p >= early && (const char *)p < early + sizeof early;
}

static void *early_alloc(size_t bytes) {
  size_t at = early_used;
  bytes = (bytes + 15) & ~(size_t)15;
  if (bytes > sizeof early - at) return NULL;
  early_used = at + bytes;
  return early + at;
}

/* Returns whether this allocation must fail. */
static bool fails(void) {
  if (!counting) return false;
  long number = ++count;
  if (fail_at <= 0 || number < fail_at || (number > fail_at && !rest)) return false;
  errno = ENOMEM;
  return true;
}

__attribute__((visibility("default"))) void *malloc(size_t bytes) {
  find_next();
  if (next.malloc == NULL) return early_alloc(bytes);
  return fails() ? NULL : next.malloc(bytes);
}

__attribute__((visibility("default"))) void *calloc(size_t items, size_t bytes) {
  find_next();
  if (next.calloc == NULL) return early_alloc(items * bytes); /* static memory is zero */
  return fails() ? NULL : next.calloc(items, bytes);
}

__attribute__((visibility("default"))) void *realloc(void *old, size_t bytes) {
  find_next();
  if (next.realloc == NULL || is_early(old)) {
    void *p = next.malloc != NULL ? next.malloc(bytes) : early_alloc(bytes);
    size_t left = old != NULL ? (size_t)(early + sizeof early - (char *)old) : 0;
    if (p != NULL && old != NULL) memcpy(p, old, bytes < left ? bytes : left);
    return p;
  }
  return fails() ? NULL : next.realloc(old, bytes);
}

__attribute__((visibility("default"))) void *aligned_alloc(size_t alignment, size_t bytes) {
  find_next();
  return fails() ? NULL : next.aligned_alloc(alignment, bytes);
}

__attribute__((visibility("default"))) int posix_memalign(void **out, size_t alignment,
                                                          size_t bytes) {
  find_next();
  return fails() ? ENOMEM : next.posix_memalign(out, alignment, bytes);
}

__attribute__((visibility("default"))) void *mmap(void *at, size_t bytes, int protection, int flags,
                                                  int file, off_t offset) {
  find_next();
  if ((flags & MAP_ANONYMOUS) != 0 && fails()) return MAP_FAILED;
  return next.mmap(at, bytes, protection, flags, file, offset);
}

__attribute__((visibility("default"))) void free(void *p) {
  find_next();
  if (p == NULL || is_early(p) || next.free == NULL) return;
  next.free(p);
}

__attribute__((constructor)) static void begin(void) {
  find_next();
  const char *at = getenv("OOM_AT"), *all = getenv("OOM_REST"), *path = getenv("OOM_COUNT");
  fail_at = at != NULL ? atol(at) : 0;
  rest = all != NULL && all[0] == '1';
  if (path != NULL) snprintf(count_path, sizeof count_path, "%s", path);
  unsetenv("LD_PRELOAD");
  counting = true;
}

__attribute__((destructor)) static void end(void) {
  counting = false;
  if (count_path[0] == '\0') return;
  char text[32];
  int length = snprintf(text, sizeof text, "%ld\n", (long)count);
  int file = open(count_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return;
  if (write(file, text, (size_t)length) != length) unlink(count_path);
  close(file);
}
