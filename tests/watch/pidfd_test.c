/* Pidfd: returns the kernel's answer and leaves nothing behind. */
#include "watch/pidfd.h"

#include <dirent.h>
#include <errno.h>
#include <sys/wait.h>

#include "harness.h"

static int open_files(void) {
  int count = 0;
  DIR *folder = opendir("/proc/self/fd");
  CHECK(folder != NULL);
  while (readdir(folder) != NULL) count++;
  closedir(folder);
  return count;
}

TEST(trying_gives_an_answer_and_leaves_no_child_and_no_file)
{
  int before = open_files();
  pidfd_answer answer = {-1, -1};
  for (int i = 0; i < 20; i++) pidfd_try(&answer);
  CHECK(answer.from_child >= 0 && answer.from_parent >= 0);
  /* A process that may take descriptors from its parent may take them from its child; Yama forbids
   * the reverse. */
  CHECK(answer.from_parent != 0 || answer.from_child == 0);
  CHECK_U64(open_files(), before);
  CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
  harness_note("from a child %s, from the parent %s",
               answer.from_child == 0 ? "allowed" : "refused",
               answer.from_parent == 0 ? "allowed" : "refused");
}

TEST_MAIN
