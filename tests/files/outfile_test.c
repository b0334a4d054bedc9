/* Outfile: the permissions of a new file. */
#include "files/outfile.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "harness.h"

static int umask_calls;

/* Replaces the C library's. Even to read the mask, umask(2) must change it, for all threads: a file
 * that another thread creates in that moment is writable by everybody. */
mode_t umask(mode_t mask) {
  umask_calls++;
  return (mode_t)syscall(SYS_umask, mask);
}

static mode_t mode_of(const char *path) {
  struct stat st;
  CHECK(stat(path, &st) == 0);
  return st.st_mode & 0777;
}

static void write_one(const char *path, bool partial) {
  outfile out;
  CHECK((partial ? outfile_open_partial(&out, path, false, false) : outfile_open(&out, path)) ==
        STOW_OK);
  CHECK(outfile_write(&out, "x", 1) == STOW_OK);
  CHECK(outfile_commit(&out) == STOW_OK);
}

TEST(a_new_file_follows_the_umask_and_a_replaced_one_keeps_its_mode)
{
  char folder[256];
  snprintf(folder, sizeof folder, "%s/stowage-outfile-XXXXXX",
           getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp");
  CHECK(mkdtemp(folder) != NULL && chdir(folder) == 0);
  mode_t before = (mode_t)syscall(SYS_umask, 027);
  for (int partial = 0; partial < 2; partial++) {
    write_one("new", partial == 1);
    CHECK(mode_of("new") == 0640);
    CHECK(chmod("new", 0604) == 0);
    write_one("new", partial == 1);
    CHECK(mode_of("new") == 0604);
    CHECK(unlink("new") == 0);
  }
  CHECK(umask_calls == 0);
  (void)syscall(SYS_umask, before);
  CHECK(chdir("/") == 0 && rmdir(folder) == 0);
}

TEST_MAIN
