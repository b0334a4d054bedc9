/* What the kernel says of a process: of this one, of one that ended, of one that is not there. */
#include "base/process.h"

#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

TEST(a_process_that_runs_has_a_parent_and_a_start)
{
  process self, again;
  CHECK(process_read(&self, getpid()) == PROCESS_LIVES);
  CHECK(self.parent == getppid());
  CHECK(self.start > 1);
  CHECK(process_read(&again, getpid()) == PROCESS_LIVES);
  CHECK(again.start == self.start);
}

TEST(one_that_ended_is_dead_before_and_after_its_parent_looks)
{
  process p;
  siginfo_t info;
  pid_t child = fork();
  if (child == 0) _exit(0);
  CHECK(child > 0);
  CHECK(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0);
  CHECK(process_read(&p, child) == PROCESS_DEAD);
  CHECK(p.parent == getpid());
  CHECK(waitpid(child, NULL, 0) == child);
  CHECK(process_read(&p, child) == PROCESS_DEAD);
  CHECK(p.parent == 0 && p.start == 0);
}

TEST_MAIN
