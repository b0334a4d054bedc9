/* Cuda path: finds the driver's file in the loader's order, and no cache file does harm. */
#include "device/cuda_path.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness.h"

typedef struct seen {
  char paths[8][512];
  int count, stop_at;
} seen;

static bool keep(void *user, const char *path) {
  seen *s = user;
  if (s->count < 8) snprintf(s->paths[s->count], sizeof s->paths[0], "%s", path);
  return ++s->count == s->stop_at;
}

/* Creates an empty file with the driver's name in a new folder of the test. */
static const char *make(const char *folder) {
  static char path[4][512];
  static int next;
  char *made = path[next++ % 4];
  snprintf(made, sizeof path[0], "%s/%s", harness_folder(), folder);
  mkdir(made, 0700);
  snprintf(made, sizeof path[0], "%s/%s/libcuda.so.1", harness_folder(), folder);
  int fd = open(made, O_CREAT | O_WRONLY, 0600);
  CHECK(fd >= 0);
  close(fd);
  return made;
}

TEST(a_named_file_is_the_only_one)
{
  const char *named = make("named");
  char list[600];
  snprintf(list, sizeof list, "%s/other", harness_folder());
  make("other");
  setenv("LD_LIBRARY_PATH", list, 1);
  setenv("STOWAGE_LIBCUDA", named, 1);
  seen s = {.stop_at = -1};
  CHECK(!cuda_path_each(keep, &s));
  CHECK_U64(s.count, 1);
  CHECK_TEXT(s.paths[0], named);
  setenv("STOWAGE_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
  s = (seen){.stop_at = -1};
  CHECK(!cuda_path_each(keep, &s));
  CHECK_U64(s.count, 0);
}

TEST(the_library_path_goes_first_in_its_order)
{
  unsetenv("STOWAGE_LIBCUDA");
  const char *one = make("one"), *two = make("two");
  char list[2000];
  snprintf(list, sizeof list, "/nonexistent:%s/two;%s/one:%s", harness_folder(), harness_folder(),
           harness_folder());
  setenv("LD_LIBRARY_PATH", list, 1);
  seen s = {.stop_at = 2};
  CHECK(cuda_path_each(keep, &s));
  CHECK_TEXT(s.paths[0], two);
  CHECK_TEXT(s.paths[1], one);
}

/* ---- the cache ---- */

enum { CACHE_MAX = 4096 };
static unsigned char cache[CACHE_MAX];

#if defined(__x86_64__)
#define OURS 0x0303
#elif defined(__aarch64__)
#define OURS 0x0a03
#endif

static void put32(size_t at, uint32_t value) {
  memcpy(cache + at, &value, sizeof value);
}

/* Makes a cache as ldconfig writes it: entries of (flags, name, path). Returns its size. */
static size_t make_cache(size_t at, int count, const uint32_t *flags, const char *const *names,
                         const char *const *paths) {
  memset(cache, 0, sizeof cache);
  memcpy(cache + at, "glibc-ld.so.cache1.1", 20);
  put32(at + 20, (uint32_t)count);
  size_t text = 48 + (size_t)count * 24;
  for (int i = 0; i < count; i++) {
    size_t entry = at + 48 + (size_t)i * 24;
    put32(entry, flags[i]);
    put32(entry + 4, (uint32_t)text);
    memcpy(cache + at + text, names[i], strlen(names[i]) + 1);
    text += strlen(names[i]) + 1;
    put32(entry + 8, (uint32_t)text);
    memcpy(cache + at + text, paths[i], strlen(paths[i]) + 1);
    text += strlen(paths[i]) + 1;
  }
  return at + text;
}

TEST(the_loaders_cache_is_read)
{
  const char *right = make("right"), *wrong = make("wrong");
  const uint32_t flags[] = {0x0003, OURS, OURS, OURS};
  const char *names[] = {"libcuda.so.1", "libc.so.6", "libcuda.so.1", "libcuda.so.1"};
  const char *paths[] = {wrong, wrong, right, "/nonexistent/libcuda.so.1"};
  /* Alone, and after the older format that ldconfig may write before it. */
  for (size_t at = 0; at <= 64; at += 64) {
    size_t size = make_cache(at, 4, flags, names, paths);
    seen s = {.stop_at = -1};
    CHECK(!cuda_path_in_cache(cache, size, keep, &s));
    CHECK_U64(s.count, 1);
    CHECK_TEXT(s.paths[0], right);
  }
}

TEST(a_broken_cache_shows_nothing_and_harms_nothing)
{
  const char *right = make("right");
  const uint32_t flags[] = {OURS};
  const char *names[] = {"libcuda.so.1"};
  const char *paths[] = {right};
  size_t whole = make_cache(0, 1, flags, names, paths);
  seen s = {.stop_at = -1};
  /* Truncated anywhere: read from a copy of exactly that size, so that a sanitizer detects a read
   * past it. */
  for (size_t size = 0; size < whole; size++) {
    unsigned char *copy = malloc(size > 0 ? size : 1);
    memcpy(copy, cache, size);
    CHECK(!cuda_path_in_cache(copy, size, keep, &s));
    free(copy);
  }
  CHECK_U64(s.count, 0);
  /* Random bytes. */
  uint64_t seed = 3;
  for (int turn = 0; turn < 20000; turn++) {
    unsigned char *copy = malloc(whole);
    memcpy(copy, cache, whole);
    for (int i = 0; i < 3; i++)
      copy[harness_random(&seed) % whole] = (unsigned char)harness_random(&seed);
    cuda_path_in_cache(copy, whole, keep, &s);
    free(copy);
  }
}

TEST_MAIN
