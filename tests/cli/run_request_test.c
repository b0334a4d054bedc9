/* Run request: how often `stowage run` asks a process that grows, by the time the process had. */
#include "cli/run_request.h"

#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"
#include "run/protocol.h"

#define MS    UINT64_C(1000000)
#define MIB   (UINT64_C(1) << 20)
#define PART  100
#define CROWD 5

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000 * MS + (uint64_t)t.tv_nsec;
}

/* Starts a process that computes on the first CPU allowed, or one that waits. */
static pid_t start(bool busy) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  cpu_set_t all, one;
  CPU_ZERO(&one);
  if (sched_getaffinity(0, sizeof all, &all) != 0) _exit(9);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  if (sched_setaffinity(0, sizeof one, &one) != 0) _exit(9);
  for (volatile unsigned turns = 0;; turns++)
    if (!busy) pause();
}

/* Returns how long a process ran so far; 0 if it cannot be read. */
static uint64_t ran_ns(pid_t pid) {
  char path[64];
  unsigned long long ns = 0;
  snprintf(path, sizeof path, "/proc/%d/schedstat", (int)pid);
  FILE *file = fopen(path, "re");
  if (file == NULL) return 0;
  if (fscanf(file, "%llu", &ns) != 1) ns = 0; /* NOLINT(cert-err34-c): the kernel's */
  fclose(file);
  return ns;
}

/* Writes the answer of a process that held so much when it answered the last request. */
static void answer(const run_request *a, uint64_t held_bytes) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/%d" RUN_OBJECTS, harness_folder(), (int)a->pid);
  FILE *file = fopen(path, "we");
  CHECK(file != NULL);
  fprintf(file, RUN_LINE_ASKED "\t%u\t%llu\t1\t3000\t0\n", (unsigned)a->serial,
          (unsigned long long)held_bytes);
  fclose(file);
}

/* Opens the request and asks a process that holds so much. */
static void ask(run_request *a, host_record *h, pid_t pid, uint64_t bytes) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/" RUN_WATCH, harness_folder());
  unlink(path);
  CHECK_OK(run_request_open(a, harness_folder()));
  CHECK(a->word != NULL);
  h->process_count = 1;
  h->processes[0].pid = pid;
  h->processes[0].held_bytes = bytes;
  run_request_now(a, h, now_ns());
}

/* Asks a process that holds 400 MiB, which answers when it holds 100 MiB, `times` times. Returns
 * how often it was asked again when it held 400 MiB once more, 100 ms after each answer. */
static int asked_for_missed(pid_t pid, int times) {
  static host_record h;
  run_request a;
  int again = 0;
  ask(&a, &h, pid, 400 * MIB);
  for (int i = 0; i < times; i++) {
    uint32_t first = a.serial;
    answer(&a, 100 * MIB);
    CHECK(run_request_read(&a, &h, harness_folder(), now_ns()));
    run_request_rise(&a, &h, PART, a.asked_ns + 100 * MS);
    again += a.serial != first;
  }
  run_request_close(&a);
  return again;
}

/* Returns whether a busy process has run for less than `ran`; false after 30 s. */
static bool ran_less(pid_t pid, uint64_t ran, bool busy, uint64_t begin) {
  return busy && ran_ns(pid) < ran && now_ns() < begin + 30000 * MS;
}

/* Asks the process, lets 600 ms pass, and longer if a busy one did not run for 50 ms in them.
 * Returns whether it is asked again: its last answer took 3 ms, so it is left alone for 300 ms,
 * unless it now holds twice as much (`doubled`). */
static bool asked_again(pid_t pid, bool busy, bool doubled) {
  static host_record h;
  run_request a;
  ask(&a, &h, pid, 100 * MIB);
  uint32_t first = a.serial;
  a.whole = true;
  a.spent_ns = 3 * MS;
  h.processes[0].held_bytes = (doubled ? 200 : 150) * MIB;
  run_request_rise(&a, &h, PART, now_ns());
  CHECK(a.serial == first); /* too early, whatever it did */
  uint64_t begin = now_ns(), ran = ran_ns(pid);
  const struct timespec rest = {0, 5 * (long)MS};
  while (now_ns() < begin + 600 * MS || ran_less(pid, ran + 50 * MS, busy, begin))
    nanosleep(&rest, NULL);
  run_request_rise(&a, &h, PART, now_ns());
  /* What it waited for a CPU before the request is counted when it gets one, so memory that doubled
   * can be asked about later. */
  while (doubled && a.serial == first && ran_less(pid, ran + 1000 * MS, busy, begin)) {
    nanosleep(&rest, NULL);
    run_request_rise(&a, &h, PART, now_ns());
  }
  bool again = a.serial != first;
  run_request_close(&a);
  return again;
}

static void stop(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
}

TEST(a_process_that_waits_for_a_cpu_is_asked_by_the_time_it_ran)
{
  pid_t crowd[CROWD];
  FILE *file = fopen("/proc/self/schedstat", "re");
  if (file == NULL) SKIP("the kernel does not report how long processes wait (schedstat)");
  fclose(file);
  for (int i = 0; i < CROWD; i++) crowd[i] = start(true);
  bool again = asked_again(crowd[0], true, false); /* runs a fifth of the time at most */
  bool doubled = asked_again(crowd[0], true, true);
  for (int i = 0; i < CROWD; i++) stop(crowd[i]);
  CHECK(!again);
  CHECK(doubled);
}

TEST(a_process_that_sleeps_is_asked_by_the_time_that_passed)
{
  pid_t pid = start(false);
  bool again = asked_again(pid, false, false);
  stop(pid);
  CHECK(again);
}

TEST(a_process_that_answered_after_it_freed_most_is_asked_again_soon_a_few_times)
{
  pid_t pid = start(false);
  int once = asked_for_missed(pid, 1), many = asked_for_missed(pid, 40);
  stop(pid);
  CHECK(once == 1);
  CHECK(many > 1 && many < 16);
}

/* Returns whether a process that was asked at 110 MiB lacks an answer when it has settled at
 * `held`, `passed` after the request. Its last answer took 10 ms. */
static bool lacks(pid_t pid, uint64_t held, uint64_t passed) {
  static host_record h;
  run_request a;
  ask(&a, &h, pid, 110 * MIB);
  a.whole = true;
  a.spent_ns = 10 * MS;
  bool found = run_request_lacks(&a, pid, held, a.asked_ns + passed);
  run_request_close(&a);
  return found;
}

TEST(a_process_that_has_stopped_growing_is_asked_about_what_it_holds_then)
{
  pid_t pid = start(false);
  CHECK(!lacks(pid, 130 * MIB, 1000 * MS)); /* the answer covers most of it */
  CHECK(lacks(pid, 160 * MIB, 1000 * MS));
  CHECK(!lacks(pid, 160 * MIB, 100 * MS));
  CHECK(lacks(pid, 400 * MIB, 100 * MS)); /* … less than half */
  CHECK(!lacks(pid, 400 * MIB, 10 * MS)); /* it spends a part of its time on answers */
  stop(pid);
}

TEST_MAIN
