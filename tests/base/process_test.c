/* Process: the current one, one that ended, and one that does not exist. */
#include "base/process.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
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

static int answers;

static void *stay(void *user) {
  pid_t first = getpid();
  process p;
  (void)user;
  /* Until the first thread's end shows. */
  char state = 'S', path[64];
  for (snprintf(path, sizeof path, "/proc/%d/status", (int)first); state != 'Z';) {
    char line[128];
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
      if (strncmp(line, "State:", 6) == 0) state = line[7];
    if (file != NULL) fclose(file);
  }
  char answer = process_read(&p, first) == PROCESS_LIVES && p.start > 1 ? 'y' : 'n';
  _exit(write(answers, &answer, 1) == 1 ? 0 : 1);
}

TEST(one_whose_first_thread_has_ended_lives_on_in_the_others)
{
  int ends[2];
  char answer = '?';
  CHECK(pipe(ends) == 0);
  pid_t child = fork();
  if (child == 0) {
    pthread_t thread;
    answers = ends[1];
    alarm(20);
    if (pthread_create(&thread, NULL, stay, NULL) != 0) _exit(1);
    pthread_exit(NULL);
  }
  CHECK(waitpid(child, NULL, 0) == child);
  CHECK(read(ends[0], &answer, 1) == 1);
  CHECK(answer == 'y');
  close(ends[0]);
  close(ends[1]);
}

TEST_MAIN
