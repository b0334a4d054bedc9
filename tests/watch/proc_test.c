/* Proc: reads small files of the kernel, from a test root. */
#include "watch/proc.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "harness.h"

/* Writes root/path and creates its folders. */
static void put(const char *root, const char *path, const char *text) {
  char whole[512];
  snprintf(whole, sizeof whole, "%s%s", root, path);
  for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
    *at = '\0';
    mkdir(whole, 0755);
    *at = '/';
  }
  FILE *file = fopen(whole, "w");
  CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

TEST(numbers_are_read_and_words_refused)
{
  const char *root = harness_folder();
  uint64_t number = 77;
  put(root, "/proc/a", "65530\n");
  CHECK_OK(proc_number(&number, root, "/proc/a"));
  CHECK_U64(number, 65530);
  static const char *const bad[] = {"max\n", "", "-1\n", "99999999999999999999999\n"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    put(root, "/proc/b", bad[i]);
    CHECK_STATUS(proc_number(&number, root, "/proc/b"), STOW_ERR_FORMAT);
    CHECK_MESSAGE("is not a number");
    CHECK_U64(number, 65530);
  }
  CHECK_STATUS(proc_number(&number, root, "/proc/none"), STOW_ERR_NOT_FOUND);
  CHECK_STATUS(proc_number(&number, root, "/proc/a/b"), STOW_ERR_NOT_FOUND);
  CHECK_STATUS(proc_number(&number, root, "/proc"), STOW_ERR_IO);
}

TEST(a_file_too_large_is_refused)
{
  const char *root = harness_folder();
  char *text = malloc((1 << 20) + 2);
  CHECK(text != NULL);
  memset(text, '1', (1 << 20) + 1);
  text[(1 << 20) + 1] = '\0';
  put(root, "/large", text);
  free(text);
  buffer b = BUFFER_INIT;
  CHECK_STATUS(proc_read(&b, root, "/large"), STOW_ERR_IO);
  buffer_free(&b);
}

TEST(facts_come_from_the_files_and_are_zero_without_them)
{
  const char *root = harness_folder();
  host_facts facts;
  host_read(&facts, root);
  CHECK(facts.cpus > 0 && facts.machine[0] != '\0');
  CHECK_U64(facts.numa_nodes, 0);
  CHECK_U64(facts.swap_bytes, 0);
  put(root, "/sys/devices/system/node/has_memory", "0-1,4\n");
  put(root, "/proc/meminfo",
      "MemTotal:       24625580 kB\nSwapTotal:       2048 kB\nSwapFree:          1024 kB\n");
  host_read(&facts, root);
  CHECK_U64(facts.numa_nodes, 3);
  CHECK_U64(facts.swap_bytes, 2048 * 1024);
  CHECK_U64(facts.swap_free_bytes, 1024 * 1024);
}

TEST_MAIN
