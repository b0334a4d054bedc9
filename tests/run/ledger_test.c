/* Ledger: limits are exact when processes race, and when processes die. */
#include "run/ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

#define MIB (UINT64_C(1) << 20)

static const char *ledger_path(void) {
  static char path[512];
  snprintf(path, sizeof path, "%s/ledger", harness_folder());
  return path;
}

static ledger open_again(void) {
  ledger l;
  CHECK_OK(ledger_open(&l, ledger_path()));
  return l;
}

/* Starts a process that joins the ledger and runs until it is killed. */
static pid_t child(void (*work)(ledger *l, int say), int *hear) {
  int ends[2];
  CHECK(pipe(ends) == 0);
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    close(ends[0]);
    ledger l;
    if (ledger_open(&l, ledger_path()) != STOW_OK || ledger_join(&l) != STOW_OK) _exit(9);
    work(&l, ends[1]);
    _exit(0);
  }
  close(ends[1]);
  *hear = ends[0];
  return pid;
}

static void finish(pid_t pid) {
  int how;
  while (waitpid(pid, &how, 0) < 0 && errno == EINTR) {
  }
}

TEST(a_limit_is_kept_to_the_byte)
{
  ledger l;
  CHECK_OK(ledger_create(&l, ledger_path()));
  CHECK_OK(ledger_join(&l));
  l.header->vram_limit_bytes[0] = 100 * MIB;
  CHECK(ledger_charge(&l, 0, LEDGER_PLAIN, 60 * MIB));
  CHECK(!ledger_charge(&l, 0, LEDGER_PAGES, 40 * MIB + 1));
  CHECK(ledger_charge(&l, 0, LEDGER_PAGES, 40 * MIB));
  CHECK(!ledger_charge(&l, 0, LEDGER_POOLS, 1));
  CHECK(!ledger_charge(&l, 0, LEDGER_POOLS, UINT64_MAX));
  ledger_uncharge(&l, 0, LEDGER_PLAIN, 1);
  CHECK(ledger_charge(&l, 0, LEDGER_POOLS, 1));
  CHECK_U64(l.header->peak_vram_bytes[0], 0); /* the driver has not allocated any of it yet */
  ledger_note_peak(&l, 0);
  CHECK_U64(l.header->peak_vram_bytes[0], 100 * MIB);
  ledger_uncharge(&l, 0, LEDGER_PLAIN, 60 * MIB - 1);
  ledger_note_peak(&l, 0);
  CHECK_U64(l.header->peak_vram_bytes[0], 100 * MIB);
  /* Kinds without a limit, and other devices, are not affected. */
  CHECK(ledger_charge(&l, 0, LEDGER_PINNED, 500 * MIB));
  CHECK(ledger_charge(&l, 1, LEDGER_PLAIN, 500 * MIB));
  ledger_totals totals;
  ledger_sum(&l, 0, &totals);
  CHECK_U64(totals.vram_bytes, 40 * MIB + 1);
  ledger_close(&l);
}

TEST(a_copy_has_the_figures_and_outlives_the_file)
{
  ledger l, copy;
  CHECK_OK(ledger_create(&l, ledger_path()));
  CHECK_OK(ledger_join(&l));
  l.header->vram_limit_bytes[0] = 100 * MIB;
  CHECK(ledger_charge(&l, 0, LEDGER_PLAIN, 60 * MIB));
  CHECK_OK(ledger_copy(&copy, ledger_path()));
  ledger_uncharge(&l, 0, LEDGER_PLAIN, 60 * MIB);
  CHECK(truncate(ledger_path(), 4096) == 0);
  ledger_totals totals;
  ledger_sum(&copy, 0, &totals);
  CHECK_U64(totals.vram_bytes, 60 * MIB);
  CHECK_U64(ledger_limit(&copy, 0), 100 * MIB);
  CHECK_U64(ledger_reap(&copy), 0);
  ledger_close(&copy);
  CHECK(ledger_copy(&copy, ledger_path()) == STOW_ERR_FORMAT);
  CHECK(ledger_copy(&copy, "/nowhere/ledger") == STOW_ERR_IO);
  unlink(ledger_path());
}

TEST(another_machine_keeps_the_limits_and_leaves_the_slots_alone)
{
  ledger here, there;
  ledger_totals totals;
  CHECK_OK(ledger_create(&here, ledger_path()));
  CHECK_OK(ledger_join(&here));
  here.header->vram_limit_bytes[1] = 100 * MIB;
  here.header->spill_limit_bytes = 7 * MIB;
  CHECK(ledger_charge(&here, 1, LEDGER_PLAIN, 60 * MIB));
  CHECK_OK(ledger_open(&there, ledger_path()));
  CHECK_OK(ledger_part_elsewhere(&there)); /* it is the same machine */
  ledger_sum(&there, 1, &totals);
  CHECK_U64(totals.vram_bytes, 60 * MIB);
  here.header->machine[0] ^= 1;
  CHECK_OK(ledger_part_elsewhere(&there));
  CHECK_OK(ledger_join(&there));
  CHECK(ledger_charge(&there, 1, LEDGER_PLAIN, 100 * MIB));
  CHECK(!ledger_charge(&there, 1, LEDGER_PLAIN, 1));
  CHECK_U64(ledger_spill_limit(&there), 7 * MIB);
  ledger_sum(&here, 1, &totals);
  CHECK_U64(totals.vram_bytes, 60 * MIB);
  ledger_close(&there);
  ledger_close(&here);
}

TEST(the_spill_budget_is_one_for_all_devices)
{
  ledger l;
  CHECK_OK(ledger_create(&l, NULL));
  CHECK_OK(ledger_join(&l));
  CHECK(!ledger_charge(&l, 0, LEDGER_SPILLED, 1)); /* there is no budget */
  l.header->spill_limit_bytes = 10 * MIB;
  CHECK(ledger_charge(&l, 0, LEDGER_SPILLED, 6 * MIB));
  CHECK(!ledger_charge(&l, 1, LEDGER_SPILLED, 5 * MIB));
  CHECK(ledger_charge(&l, 1, LEDGER_SPILLED, 4 * MIB));
  ledger_note_peak(&l, 0);
  CHECK_U64(l.header->peak_spilled_bytes[0], 6 * MIB);
  ledger_close(&l);
}

TEST(what_another_device_spilled_is_not_reported_as_free)
{
  ledger l;
  uint64_t left = 1000 * MIB, total = left;
  CHECK_OK(ledger_create(&l, NULL));
  CHECK_OK(ledger_join(&l));
  l.header->vram_limit_bytes[1] = 100 * MIB;
  l.header->spill_limit_bytes = 50 * MIB;
  CHECK(ledger_charge(&l, 0, LEDGER_SPILLED, 40 * MIB));
  ledger_report_memory(&l, 1, 50 * MIB, &left, &total);
  CHECK_U64(left, 110 * MIB);
  CHECK_U64(total, 150 * MIB);
  ledger_set_idle(&l, 0, 0, 40 * MIB); /* kept, but released on request */
  left = total = 1000 * MIB;
  ledger_report_memory(&l, 1, 50 * MIB, &left, &total);
  CHECK_U64(left, 150 * MIB);
  ledger_close(&l);
}

TEST(what_is_given_twice_does_not_go_below_nothing)
{
  ledger l;
  CHECK_OK(ledger_create(&l, NULL));
  CHECK_OK(ledger_join(&l));
  ledger_add(&l, 0, LEDGER_PLAIN, 5);
  ledger_uncharge(&l, 0, LEDGER_PLAIN, 9);
  CHECK_U64(ledger_own(&l, 0, LEDGER_PLAIN), 0);
  /* A device number that is too high is not counted and does no harm. */
  ledger_add(&l, 99, LEDGER_PLAIN, 5);
  CHECK(ledger_charge(&l, 99, LEDGER_PLAIN, 5));
  ledger_close(&l);
}

TEST(announced_bytes_are_not_held_and_nobody_else_gets_them)
{
  ledger l;
  ledger_totals totals;
  CHECK_OK(ledger_create(&l, NULL));
  CHECK_OK(ledger_join(&l));
  l.header->vram_limit_bytes[0] = 100;
  CHECK(ledger_charge(&l, 0, LEDGER_PLAIN, 60));
  ledger_announce(&l, 0, LEDGER_PLAIN, 60);
  ledger_sum(&l, 0, &totals);
  CHECK_U64(totals.vram_bytes, 0);
  CHECK_U64(totals.wanted_bytes, 60);
  CHECK(!ledger_charge(&l, 0, LEDGER_PAGES, 41));
  CHECK(ledger_charge(&l, 0, LEDGER_PAGES, 40));
  ledger_charge_announced(&l, 0, LEDGER_PLAIN, 20);
  CHECK(!ledger_charge(&l, 0, LEDGER_PAGES, 1));
  ledger_withdraw(&l, 0, LEDGER_PLAIN, 40);
  CHECK(ledger_charge(&l, 0, LEDGER_PAGES, 40));
  ledger_sum(&l, 0, &totals);
  CHECK_U64(totals.vram_bytes, 100);
  CHECK_U64(totals.wanted_bytes, 0);
  ledger_close(&l);
}

static void take_all(ledger *l, int say) {
  uint64_t count = 0;
  while (ledger_charge(l, 0, LEDGER_PAGES, 2 * MIB)) count++;
  ssize_t written = write(say, &count, sizeof count);
  (void)written;
  for (;;) pause();
}

TEST(processes_that_race_fill_the_limit_and_not_one_page_more)
{
  enum { PROCESSES = 6, PAGES = 3000 };
  ledger l;
  CHECK_OK(ledger_create(&l, ledger_path()));
  l.header->vram_limit_bytes[0] = PAGES * 2 * MIB;
  pid_t pids[PROCESSES];
  int hear[PROCESSES];
  uint64_t sum = 0;
  for (int i = 0; i < PROCESSES; i++) pids[i] = child(take_all, &hear[i]);
  for (int i = 0; i < PROCESSES; i++) {
    uint64_t count = 0;
    CHECK(read(hear[i], &count, sizeof count) == (ssize_t)sizeof count);
    sum += count;
  }
  CHECK_U64(sum, PAGES);
  ledger_totals totals;
  ledger_sum(&l, 0, &totals);
  CHECK_U64(totals.vram_bytes, PAGES * 2 * MIB);
  CHECK_U64(totals.wanted_bytes, 0);
  ledger_note_peak(&l, 0);
  CHECK_U64(l.header->peak_vram_bytes[0], PAGES * 2 * MIB);
  /* They die: exactly what they held is free again. */
  for (int i = 0; i < PROCESSES; i++) kill(pids[i], SIGKILL);
  for (int i = 0; i < PROCESSES; i++) finish(pids[i]);
  CHECK_OK(ledger_join(&l));
  CHECK(ledger_charge(&l, 0, LEDGER_PLAIN, PAGES * 2 * MIB));
  ledger_close(&l);
}

static void churn(ledger *l, int say) {
  uint64_t word = 1;
  ssize_t written = write(say, &word, sizeof word);
  (void)written;
  for (uint64_t i = 0;; i++) {
    uint64_t bytes = (1 + i % 7) * MIB;
    if (ledger_charge(l, 0, (ledger_kind)(i % 3), bytes))
      ledger_uncharge(l, 0, (ledger_kind)(i % 3), bytes);
    if (ledger_charge(l, 0, LEDGER_SPILLED, MIB)) ledger_uncharge(l, 0, LEDGER_SPILLED, MIB);
  }
}

TEST(a_process_killed_at_any_instruction_leaves_it_usable)
{
  enum { TURNS = 150 };
  ledger l;
  CHECK_OK(ledger_create(&l, ledger_path()));
  CHECK_OK(ledger_join(&l));
  l.header->vram_limit_bytes[0] = 20 * MIB;
  l.header->spill_limit_bytes = 4 * MIB;
  uint64_t seed = 7;
  for (int turn = 0; turn < TURNS; turn++) {
    int hear[2];
    uint64_t word;
    pid_t one = child(churn, &hear[0]), other = child(churn, &hear[1]);
    CHECK(read(hear[0], &word, sizeof word) == (ssize_t)sizeof word);
    CHECK(read(hear[1], &word, sizeof word) == (ssize_t)sizeof word);
    for (uint64_t spin = harness_random(&seed) % 200000; spin > 0; spin--) __asm__ volatile("");
    kill(one, SIGKILL);
    kill(other, SIGKILL);
    /* Not reaped yet: a zombie holds nothing either. */
    siginfo_t info;
    CHECK(waitid(P_PID, (id_t)one, &info, WEXITED | WNOWAIT) == 0);
    CHECK(waitid(P_PID, (id_t)other, &info, WEXITED | WNOWAIT) == 0);
    CHECK(ledger_charge(&l, 0, LEDGER_PLAIN, 20 * MIB));
    CHECK(!ledger_charge(&l, 0, LEDGER_PLAIN, 1));
    CHECK(ledger_charge(&l, 0, LEDGER_SPILLED, 4 * MIB));
    ledger_note_peak(&l, 0);
    ledger_uncharge(&l, 0, LEDGER_PLAIN, 20 * MIB);
    ledger_uncharge(&l, 0, LEDGER_SPILLED, 4 * MIB);
    finish(one);
    finish(other);
    close(hear[0]);
    close(hear[1]);
  }
  CHECK(l.header->peak_vram_bytes[0] <= 20 * MIB);
  ledger_close(&l);
}

static void hold(ledger *l, int say) {
  bool taken = ledger_charge(l, 0, LEDGER_PLAIN, 15 * MIB);
  ssize_t written = write(say, &taken, sizeof taken);
  (void)written;
  for (;;) pause();
}

TEST(what_the_dead_held_is_neither_reported_nor_a_peak)
{
  ledger l;
  int hear;
  bool taken = false;
  CHECK_OK(ledger_create(&l, ledger_path()));
  CHECK_OK(ledger_join(&l));
  l.header->vram_limit_bytes[0] = 20 * MIB;
  pid_t pid = child(hold, &hear);
  CHECK(read(hear, &taken, sizeof taken) == (ssize_t)sizeof taken && taken);
  uint64_t left = 100 * MIB, total = 100 * MIB;
  ledger_report_memory(&l, 0, 0, &left, &total);
  CHECK_U64(left, 5 * MIB);
  kill(pid, SIGKILL);
  finish(pid);
  close(hear);
  ledger_add(&l, 0, LEDGER_CONTEXT, 4 * MIB);
  CHECK_U64(l.header->peak_vram_bytes[0], 4 * MIB);
  left = total = 100 * MIB;
  ledger_report_memory(&l, 0, 0, &left, &total);
  CHECK_U64(left, 16 * MIB);
  CHECK_U64(total, 20 * MIB);
  ledger_close(&l);
}

TEST(slots_of_the_dead_are_used_again)
{
  ledger l;
  CHECK_OK(ledger_create(&l, ledger_path()));
  /* Impossible processes: IDs above the largest that a kernel assigns. */
  for (uint32_t i = 0; i < LEDGER_SLOTS_MAX; i++)
    l.slots[i].owner = (uint64_t)(0x7f000000u + i) << 32 | 5;
  l.header->slots_high = LEDGER_SLOTS_MAX;
  l.slots[0].devices[0].bytes[LEDGER_PLAIN] = 7;
  CHECK_OK(ledger_join(&l));
  CHECK_U64(ledger_own(&l, 0, LEDGER_PLAIN), 0);
  ledger_close(&l);
}

static void only_join(ledger *l, int say) {
  uint64_t owner = l->slots[l->own - 1].owner;
  ssize_t written = write(say, &owner, sizeof owner);
  (void)written;
  for (;;) pause();
}

TEST(all_slots_taken_by_the_living_is_reported)
{
  ledger l;
  int hear;
  uint64_t alive;
  CHECK_OK(ledger_create(&l, ledger_path()));
  pid_t pid = child(only_join, &hear);
  CHECK(read(hear, &alive, sizeof alive) == (ssize_t)sizeof alive);
  for (uint32_t i = 0; i < LEDGER_SLOTS_MAX; i++) l.slots[i].owner = alive;
  l.header->slots_high = LEDGER_SLOTS_MAX;
  CHECK_STATUS(ledger_join(&l), STOW_ERR_BUDGET);
  kill(pid, SIGKILL);
  finish(pid);
  CHECK_OK(ledger_join(&l));
  ledger_close(&l);
}

TEST(a_process_replaced_by_exec_has_its_slot_back_empty)
{
  ledger l;
  CHECK_OK(ledger_create(&l, NULL));
  CHECK_OK(ledger_join(&l));
  ledger_add(&l, 0, LEDGER_PLAIN, 7);
  l.own = 0; /* as when a new program starts */
  CHECK_OK(ledger_join(&l));
  CHECK_U64(l.own, 1);
  CHECK_U64(ledger_own(&l, 0, LEDGER_PLAIN), 0);
  ledger_close(&l);
}

typedef struct racer {
  ledger *l;
  uint64_t count;
} racer;

static void *race(void *user) {
  racer *r = user;
  while (ledger_charge(r->l, 0, LEDGER_PLAIN, MIB)) r->count++;
  return NULL;
}

TEST(threads_of_one_process_share_a_slot_and_the_limit)
{
  enum { THREADS = 4 };
  ledger l;
  CHECK_OK(ledger_create(&l, NULL));
  CHECK_OK(ledger_join(&l));
  l.header->vram_limit_bytes[0] = 5000 * MIB;
  racer racers[THREADS];
  pthread_t threads[THREADS];
  uint64_t sum = 0;
  for (int i = 0; i < THREADS; i++) {
    racers[i] = (racer){&l, 0};
    CHECK(pthread_create(&threads[i], NULL, race, &racers[i]) == 0);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    sum += racers[i].count;
  }
  CHECK_U64(sum, 5000);
  CHECK_U64(ledger_own(&l, 0, LEDGER_PLAIN), 5000 * MIB);
  ledger_close(&l);
}

TEST(the_latest_refusal_is_reported_whole)
{
  ledger l;
  CHECK_OK(ledger_create(&l, ledger_path()));
  ledger_refusal r = {0};
  CHECK(!ledger_last_refusal(&l, &r));
  for (uint64_t i = 1; i <= LEDGER_REFUSALS_MAX + 5; i++)
    ledger_refuse(&l, &(ledger_refusal){.asked_bytes = i, .pid = 1000 + i});
  /* An entry that was being written when its process died is skipped. */
  l.header->refusals[(LEDGER_REFUSALS_MAX + 5) % LEDGER_REFUSALS_MAX].serial = 99999;
  ledger other = open_again();
  CHECK(ledger_last_refusal(&other, &r));
  CHECK_U64(r.asked_bytes, LEDGER_REFUSALS_MAX + 5);
  CHECK_U64(r.pid, 1000 + LEDGER_REFUSALS_MAX + 5);
  ledger_close(&other);
  ledger_close(&l);
}

TEST(a_file_that_is_not_one_is_reported)
{
  ledger l;
  CHECK_STATUS(ledger_open(&l, "/nonexistent/ledger"), STOW_ERR_IO);
  int fd = open(ledger_path(), O_CREAT | O_WRONLY, 0600);
  CHECK(fd >= 0 && write(fd, "SWLEDGER", 8) == 8);
  CHECK_STATUS(ledger_open(&l, ledger_path()), STOW_ERR_FORMAT);
  CHECK_STATUS(ledger_create(&l, ledger_path()), STOW_ERR_IO); /* never overwrites another file */
  CHECK(unlink(ledger_path()) == 0);
  CHECK_OK(ledger_create(&l, ledger_path()));
  l.header->version = 77;
  ledger other;
  CHECK_STATUS(ledger_open(&other, ledger_path()), STOW_ERR_FORMAT);
  CHECK_MESSAGE("not a ledger of this version");
  close(fd);
  ledger_close(&l);
}

TEST(what_the_last_owner_left_is_never_the_next_ones)
{
  ledger l;
  ledger_totals totals;
  CHECK_OK(ledger_create(&l, NULL));
  CHECK_OK(ledger_join(&l));
  CHECK(ledger_charge(&l, 0, LEDGER_PAGES, 100));
  uint64_t owner = l.slots[0].owner;
  /* The state between taking a slot and clearing it: of a process that died there, and of our
   * own. */
  l.slots[1].devices[0].bytes[LEDGER_PAGES] = 50;
  l.slots[1].owner = (UINT64_C(0x3fffffff) << 32 | 7) | LEDGER_TAKING;
  l.slots[2].devices[0].bytes[LEDGER_PAGES] = 60;
  l.slots[2].owner = owner | LEDGER_TAKING;
  l.header->slots_high = 3;
  ledger_sum(&l, 0, &totals);
  CHECK_U64(totals.vram_bytes, 100);
  CHECK_U64(totals.processes, 1);
  CHECK_U64(ledger_reap(&l), 1);
  CHECK_U64(l.slots[1].owner, 0);
  CHECK_U64(l.slots[2].owner, owner | LEDGER_TAKING);
  ledger_close(&l);
}

/* Takes more than half of the limit and releases it, so that only one of two processes can hold it,
 * until the test ends it. */
static void take_turns(ledger *l, int say) {
  _Atomic uint64_t *stop = &l->header->others_bytes[LEDGER_DEVICES_MAX - 1];
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  CHECK(write(say, "j", 1) == 1);
  while (atomic_load(stop) != 1) {
    if (ledger_charge(l, 0, LEDGER_PLAIN, 60 * MIB)) {
      sched_yield();
      ledger_uncharge(l, 0, LEDGER_PLAIN, 60 * MIB);
    }
    sched_yield();
  }
}

static void stay(ledger *l, int say) {
  (void)l;
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves no process behind */
  CHECK(write(say, "j", 1) == 1);
  pause();
}

/* Makes it look as if one live process had all slots from `from` on, except the last `left`. */
static void fill_slots(ledger *l, int from, int left, uint64_t owner) {
  for (int i = from; i < LEDGER_SLOTS_MAX - left; i++) atomic_store(&l->slots[i].owner, owner);
  l->header->slots_high = LEDGER_SLOTS_MAX;
}

/* Bytes that pass from one process to another while a third reads the slots are not counted twice.
 * The two have the first and the last slot, which are the farthest apart. */
TEST(the_peak_never_passes_the_limit)
{
  ledger l;
  int hear[3];
  char said;
  CHECK_OK(ledger_create(&l, ledger_path()));
  l.header->vram_limit_bytes[0] = 100 * MIB;
  pid_t idle = child(stay, &hear[0]);
  CHECK(read(hear[0], &said, 1) == 1);
  fill_slots(&l, 1, 2, atomic_load(&l.slots[0].owner));
  atomic_store(&l.slots[0].owner, 0);
  pid_t first = child(take_turns, &hear[1]);
  CHECK(read(hear[1], &said, 1) == 1);
  CHECK_OK(ledger_join(&l));
  pid_t second = child(take_turns, &hear[2]);
  CHECK(read(hear[2], &said, 1) == 1);
  fill_slots(&l, 1, 2, 0);
  CHECK(ledger_charge(&l, 0, LEDGER_PLAIN, 10 * MIB));
  const int reads = (int)harness_rounds(100000, 4000);
  for (int i = 0; i < reads && l.header->peak_vram_bytes[0] <= 70 * MIB; i++) {
    ledger_note_peak(&l, 0);
    if (i % 64 == 0) sched_yield();
  }
  l.header->others_bytes[LEDGER_DEVICES_MAX - 1] = 1;
  uint64_t peak = l.header->peak_vram_bytes[0];
  kill(idle, SIGKILL);
  finish(idle);
  finish(first);
  finish(second);
  for (int i = 0; i < 3; i++) close(hear[i]);
  CHECK_U64(peak, 70 * MIB);
  ledger_close(&l);
}

/* Memory that the driver took without a request counts above the limit, because it was not
 * granted. */
TEST(what_was_not_granted_raises_the_peak_above_the_limit)
{
  ledger l;
  CHECK_OK(ledger_create(&l, ledger_path()));
  CHECK_OK(ledger_join(&l));
  l.header->vram_limit_bytes[0] = 100 * MIB;
  CHECK(ledger_charge(&l, 0, LEDGER_PLAIN, 90 * MIB));
  ledger_note_peak(&l, 0);
  ledger_set(&l, 0, LEDGER_CONTEXT, 30 * MIB);
  CHECK_U64(l.header->peak_vram_bytes[0], 120 * MIB);
  ledger_close(&l);
}

/* A process that cannot be counted cannot be limited, so it is refused everything that has a
 * limit. */
TEST(a_process_without_a_slot_is_refused_under_a_limit)
{
  ledger l, more;
  int hear;
  char said;
  CHECK_OK(ledger_create(&l, ledger_path()));
  pid_t pid = child(stay, &hear);
  CHECK(read(hear, &said, 1) == 1);
  uint64_t owner = atomic_load(&l.slots[0].owner);
  CHECK(owner >> 32 == (uint64_t)pid);
  fill_slots(&l, 1, 0, owner);
  more = open_again();
  CHECK_STATUS(ledger_join(&more), STOW_ERR_BUDGET);
  CHECK(ledger_charge(&more, 0, LEDGER_PLAIN, 1)); /* no limit: it is only not counted */
  l.header->vram_limit_bytes[0] = 100 * MIB;
  CHECK(!ledger_charge(&more, 0, LEDGER_PLAIN, 1));
  CHECK(!ledger_charge(&more, 0, LEDGER_SPILLED, 1));
  CHECK(ledger_charge(&more, 0, LEDGER_PINNED, 1));
  CHECK(ledger_charge(&more, 1, LEDGER_PLAIN, 1));
  kill(pid, SIGKILL);
  close(hear);
  finish(pid);
  CHECK_OK(ledger_join(&more)); /* its slots are free again */
  CHECK(ledger_charge(&more, 0, LEDGER_PLAIN, 1));
  ledger_close(&more);
  ledger_close(&l);
}

TEST(a_guarded_ledger_survives_the_loss_of_its_file)
{
  ledger l;
  CHECK_OK(ledger_create(&l, ledger_path()));
  ledger_guard(&l);
  l.header->vram_limit_bytes[0] = 100 * MIB;
  CHECK(!ledger_lost(&l, ledger_path()));
  CHECK(truncate(ledger_path(), 0) == 0);
  CHECK(ledger_lost(&l, ledger_path())); /* by its size, before anything is read */
  CHECK_U64(ledger_limit(&l, 0), 0);
  CHECK_U64(ledger_spilled(&l), 0);
  CHECK(unlink(ledger_path()) == 0);
  CHECK(ledger_lost(&l, ledger_path())); /* by the read that failed */
  ledger_close(&l);
}

TEST(a_process_survives_the_loss_of_its_ledger_and_is_served_without_a_limit_only)
{
  ledger made, l;
  CHECK_OK(ledger_create(&made, ledger_path()));
  made.header->vram_limit_bytes[1] = 100 * MIB;
  CHECK_OK(ledger_open(&l, ledger_path()));
  CHECK_OK(ledger_join(&l));
  ledger_guard_process(&l);
  CHECK(ledger_charge(&l, 0, LEDGER_PLAIN, MIB) && ledger_charge(&l, 1, LEDGER_PLAIN, MIB));
  CHECK(truncate(ledger_path(), 0) == 0);
  CHECK(ledger_charge(&l, 0, LEDGER_PLAIN, MIB));
  CHECK(!ledger_charge(&l, 1, LEDGER_PLAIN, MIB));
  ledger_uncharge(&l, 1, LEDGER_PLAIN, MIB);
  CHECK_U64(ledger_own(&l, 1, LEDGER_PLAIN), 0);
  ledger_close(&l);
  CHECK(unlink(ledger_path()) == 0);
}

static void on_bus(int number, siginfo_t *info, void *context) {
  (void)number, (void)info, (void)context;
  _exit(42);
}

TEST(a_bus_error_of_the_program_goes_to_its_own_handler)
{
  int how = 0;
  pid_t child = fork();
  if (child == 0) {
    struct sigaction own = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    ledger l;
    sigaction(SIGBUS, &own, NULL);
    if (ledger_create(&l, NULL) != STOW_OK) _exit(1);
    ledger_guard_process(&l);
    raise(SIGBUS);
    _exit(2);
  }
  CHECK(waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 42);
}

TEST_MAIN
