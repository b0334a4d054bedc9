/* Newfile: follows no planted link, and finds our own files again. */
#include "base/newfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness.h"

static char folder[256];

/* Creates a separate folder for each test and makes it the current one. */
static void enter(void) {
  snprintf(folder, sizeof folder, "%s/stowage-newfile-XXXXXX",
           getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp");
  CHECK(mkdtemp(folder) != NULL);
  CHECK(chdir(folder) == 0);
}

static void put(const char *path, const char *text) {
  CHECK(newfile_write(path, text, strlen(text)));
}

static void holds(const char *path, const char *text) {
  char got[64] = "";
  int fd = open(path, O_RDONLY);
  CHECK(fd >= 0 && read(fd, got, sizeof got - 1) >= 0);
  close(fd);
  CHECK_TEXT(got, text);
}

static void leave(void) {
  static const char *const names[] = {"victim", "link",     "other", "pipe",
                                      "mine",   "dangling", "made"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) unlink(names[i]);
  CHECK(chdir("/") == 0 && rmdir(folder) == 0);
}

TEST(links_pipes_and_second_names_are_refused)
{
  enter();
  put("victim", "precious");
  CHECK(symlink("victim", "link") == 0 && symlink("nowhere", "dangling") == 0);
  CHECK(mkfifo("pipe", 0600) == 0 && link("victim", "other") == 0);
  CHECK(newfile_own(AT_FDCWD, "link", 0, 0600) < 0 && errno == ELOOP);
  CHECK(newfile_find(AT_FDCWD, "link") < 0 && errno == ELOOP);
  CHECK(newfile_own(AT_FDCWD, "dangling", 0, 0600) < 0 && errno == ELOOP);
  CHECK(access("nowhere", F_OK) != 0);
  CHECK(newfile_own(AT_FDCWD, "pipe", 0, 0600) < 0 && errno == EINVAL);
  CHECK(newfile_own(AT_FDCWD, "other", 0, 0600) < 0 && errno == EPERM);
  CHECK(newfile_create("link", 0600) < 0 && errno == EEXIST);
  CHECK(newfile_create("dangling", 0600) < 0 && errno == EEXIST);
  holds("victim", "precious");
  leave();
}

TEST(a_file_of_another_user_is_refused)
{
  if (geteuid() != 0) SKIP("only root can make a file of another user");
  enter();
  put("other", "theirs");
  CHECK(chown("other", 12345, (gid_t)-1) == 0);
  CHECK(newfile_own(AT_FDCWD, "other", 0, 0600) < 0 && errno == EPERM);
  CHECK(newfile_find(AT_FDCWD, "other") < 0 && errno == EPERM);
  leave();
}

TEST(what_is_ours_is_found_again)
{
  enter();
  int fd = newfile_own(AT_FDCWD, "mine", 0, 0600);
  CHECK(fd >= 0 && write(fd, "one", 3) == 3 && close(fd) == 0);
  fd = newfile_own(AT_FDCWD, "mine", O_APPEND, 0600);
  CHECK(fd >= 0 && write(fd, "two", 3) == 3 && close(fd) == 0);
  holds("mine", "onetwo");
  fd = newfile_find(AT_FDCWD, "mine");
  CHECK(fd >= 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0 && close(fd) == 0);
  CHECK(newfile_find(AT_FDCWD, "made") < 0 && errno == ENOENT);
  fd = newfile_own(AT_FDCWD, "/dev/null", 0, 0600);
  CHECK(fd >= 0 && close(fd) == 0);
  leave();
}

TEST(writing_replaces_a_link_and_leaves_its_target)
{
  enter();
  put("victim", "precious");
  CHECK(symlink("victim", "link") == 0);
  put("link", "new");
  struct stat st;
  CHECK(lstat("link", &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0777) == 0600);
  holds("link", "new");
  holds("victim", "precious");
  leave();
}

TEST(a_name_without_room_is_refused_not_cut)
{
  enter();
  char path[PATH_MAX], name[PATH_MAX];
  memset(path, 'x', sizeof path);
  path[sizeof path - 1] = '\0';
  CHECK(newfile_beside(name, sizeof name, path, 0600) < 0 && errno == ENAMETOOLONG);
  CHECK_TEXT(name, "");
  CHECK(!newfile_write(path, "x", 1));
  int fd = newfile_unnamed(".");
  CHECK(fd >= 0 && write(fd, "x", 1) == 1 && close(fd) == 0);
  leave();
}

TEST_MAIN
