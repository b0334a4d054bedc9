/* Start bench: the time that `stowage run` adds to the start of a program: one that never calls
 * CUDA, and one that allocates four MiB of device memory and ends; bare and under `stowage run`, in
 * turn. Uses the driver of this machine or, without one, the stand-in of the tests. The first run
 * caches the host tier's probe. */
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "device/cuda_path.h"

#define ROUNDS_MAX 100
#define WORDS_MAX  16

static char build[PATH_MAX];

static uint64_t once(char *const *words) {
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&quiet, 2, "/dev/null", O_WRONLY, 0);
  uint64_t begin = clock_ns();
  pid_t child;
  int how = 1;
  if (words[0] == NULL || posix_spawn(&child, words[0], &quiet, NULL, words, environ) != 0)
    return 0;
  waitpid(child, &how, 0);
  posix_spawn_file_actions_destroy(&quiet);
  return how == 0 ? clock_ns() - begin : 0;
}

static int by_value(const void *a, const void *b) {
  const uint64_t *one = a, *other = b;
  return *one < *other ? -1 : *one > *other;
}

/* Compares bare and `stowage run`. `options` and `program` are words separated by spaces. */
static void compare(const char *name, const char *options, const char *program, int rounds) {
  char text[4 * PATH_MAX], *words[WORDS_MAX] = {NULL}, *rest = NULL;
  snprintf(text, sizeof text, "%s/stowage run %s -- %s", build, options, program);
  int count = 0, bare = 0;
  for (char *word = strtok_r(text, " ", &rest); word != NULL && count < WORDS_MAX - 1;
       word = strtok_r(NULL, " ", &rest)) {
    words[count++] = word;
    if (strcmp(word, "--") == 0) bare = count;
  }
  uint64_t without[ROUNDS_MAX], with[ROUNDS_MAX];
  for (int i = -2; i < rounds; i++) {
    uint64_t a = once(words + bare), b = once(words);
    if (a == 0 || b == 0) {
      printf("case=%s not-run (%s failed)\n", name, a == 0 ? program : "stowage run");
      return;
    }
    if (i >= 0) without[i] = a, with[i] = b;
  }
  qsort(without, (size_t)rounds, sizeof without[0], by_value);
  qsort(with, (size_t)rounds, sizeof with[0], by_value);
  size_t middle = (size_t)rounds / 2;
  printf("case=%s ours=%.2f peer=bare:%.2f added=%.2f added_median=%.2f unit=ms\n", name,
         (double)with[0] / 1e6, (double)without[0] / 1e6,
         ((double)with[0] - (double)without[0]) / 1e6,
         ((double)with[middle] - (double)without[middle]) / 1e6);
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at) {
  (void)info, (void)kind, (void)at;
  return remove(path);
}

static bool is_there(void *user, const char *path) {
  (void)user, (void)path;
  return true;
}

int main(void) {
  char folder[] = "/tmp/stowage-start.XXXXXX", path[PATH_MAX + 64], program[PATH_MAX + 64];
  ssize_t length = readlink("/proc/self/exe", build, sizeof build - 1);
  char *slash = length > 0 ? strstr(build, "/bench/") : NULL;
  if (slash == NULL || mkdtemp(folder) == NULL) return 1;
  *slash = '\0';
  bool device = cuda_path_each(is_there, NULL);
  snprintf(path, sizeof path, "%s/tests/standin/libcuda.so.1", build);
  if (!device) setenv("STOWAGE_LIBCUDA", path, 1);
  snprintf(path, sizeof path, "%s/tests/standin", build);
  if (!device) setenv("LD_LIBRARY_PATH", path, 1);
  setenv("XDG_STATE_HOME", folder, 1);
  setenv("XDG_CACHE_HOME", folder, 1);
  printf("before the %s\n", device ? "driver of this machine" : "stand-in driver");
  /* A driver's own start and end take 300 ms and vary by tens of milliseconds. */
  int rounds = device ? 30 : 50;
  compare("start_without_cuda", "", "/bin/true", 50);
  compare("start_without_cuda_limited", "--vram-limit 8G --spill 1G", "/bin/true", 50);
  snprintf(program, sizeof program, "%s/tests/shim/path dlopen alloc 4194304", build);
  compare("start_with_cuda", "", program, rounds);
  compare("start_with_cuda_limited", "--vram-limit 8G --spill 1G", program, rounds);
  return nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}
