/* Line profile: the page has the lines of a run beside their source, and a folder that somebody
 * sent cannot make it read other files. */
#include "report/line_profile.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/newfile.h"
#include "harness.h"

#define MIB (UINT64_C(1) << 20)

static profile_file *file;

static void add(const char *path, uint32_t line, uint64_t bytes) {
  profile_site *s = &file->sites[file->site_count++];
  snprintf(s->file, sizeof s->file, "%s", path);
  snprintf(s->function, sizeof s->function, "work");
  s->line = line;
  profile_add(file, s, profile_block(bytes, PROFILE_PERIOD));
}

/* Writes the profile as that of process 12 of the folder, and returns the page's JSON. */
static buffer page_of(const char *folder) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/12.profile", folder);
  CHECK(newfile_write(path, file, sizeof *file));
  line_profile p;
  buffer out = BUFFER_INIT;
  CHECK(line_profile_read(&p, folder) == STOW_OK);
  CHECK(line_profile_page(&p, 0, &out) == STOW_OK);
  buffer_char(&out, '\0');
  line_profile_free(&p);
  return out;
}

static void begin(void) {
  file = calloc(1, sizeof *file);
  CHECK(file != NULL);
  file->magic = PROFILE_MAGIC;
  file->period = PROFILE_PERIOD;
}

TEST(only_python_files_are_read)
{
  const char *folder = harness_folder();
  char secret[PATH_MAX];
  snprintf(secret, sizeof secret, "%s/id_secret", folder);
  CHECK(newfile_write(secret, "swordfish\n", 10));
  begin();
  add(secret, 1, 32 * MIB);
  add(folder, 1, 32 * MIB);
  add("relative.py", 1, 32 * MIB);
  add("/proc/self/environ", 1, 32 * MIB);
  buffer page = page_of(folder);
  CHECK(strstr(page.data, "id_secret") != NULL);
  CHECK(strstr(page.data, "swordfish") == NULL);
  CHECK(strstr(page.data, "\"text\":\"same\"") == NULL);
  buffer_free(&page);
  free(file);
}

/* Line numbers come from the file too: 0, one past the end, and the largest. */
TEST(lines_that_the_source_does_not_have_show_no_text)
{
  const char *folder = harness_folder();
  char source[PATH_MAX];
  snprintf(source, sizeof source, "%s/train.py", folder);
  CHECK(newfile_write(source, "one\r\ntwo\nthree", 14));
  begin();
  add(source, 0, 16 * MIB);
  add(source, 2, 16 * MIB);
  add(source, 2, 16 * MIB);
  add(source, 4, 16 * MIB);
  add(source, UINT32_MAX, 16 * MIB);
  buffer page = page_of(folder);
  CHECK(strstr(page.data, "[0,null,\"work\",16777216") != NULL);
  CHECK(strstr(page.data, "[1,\"one\"],[2,\"two\",\"work\",33554432") != NULL);
  CHECK(strstr(page.data, "[3,\"three\"],[4,null,\"work\",16777216") != NULL);
  CHECK(strstr(page.data, "[4294967295,null,\"work\",16777216") != NULL);
  buffer_free(&page);
  free(file);
}

/* A page has a bounded number of lines: the largest. */
TEST(the_smallest_lines_are_left_out)
{
  begin();
  for (uint32_t i = 1; i <= 5000; i++) add("/gone.py", i, 16 * MIB + i * 4096);
  buffer page = page_of(harness_folder());
  CHECK(strstr(page.data, "\"leftOut\":3000") != NULL);
  CHECK(strstr(page.data, "[5000,null") != NULL && strstr(page.data, "[3000,null") == NULL);
  buffer_free(&page);
  free(file);
}

/* The files of a process that was killed before it wrote anything are skipped. */
TEST(damaged_files_are_skipped)
{
  const char *folder = harness_folder();
  char path[PATH_MAX];
  begin();
  add("/gone.py", 7, 16 * MIB);
  snprintf(path, sizeof path, "%s/11.profile", folder);
  CHECK(newfile_write(path, "", 0));
  snprintf(path, sizeof path, "%s/11.stow", folder);
  CHECK(newfile_write(path, "STOW", 4));
  buffer page = page_of(folder);
  CHECK(strstr(page.data, "\"processes\":1") != NULL);
  CHECK(strstr(page.data, "[7,null") != NULL);
  buffer_free(&page);
  free(file);
}

TEST_MAIN
