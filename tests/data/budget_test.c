/* The memory of batches: buffers the caller keeps, returns or provides; and the budget, measured as
 * resident memory and as a container's charge. */
#include "data/budget.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "numbered_rows.h"

/* ---- buffers ---- */

TEST(kept_batches_are_not_overwritten_and_outlive_the_batches)
{
  stow_array_options f = file_of(write_rows("rows.npy", 1000, 100, DTYPE_I64));
  stow_batches_options o = plain(&f, 1);
  o.batch_rows = 10;
  stow_batches *b;
  CHECK_OK(stow_batches_open(&b, &o));
  static void *kept[100];
  uint64_t rows;
  for (int i = 0; i < 100; i++) CHECK_OK(stow_batches_next(b, &kept[i], &rows));
  stow_batches_close(b);
  for (int i = 0; i < 100; i++) {
    const int64_t *values = kept[i];
    for (int k = 0; k < 10; k++)
      CHECK(values[k * 100] == i * 10 + k && values[k * 100 + 99] == i * 10 + k + 99);
    CHECK_OK(stow_batches_release(kept[i]));
  }
  CHECK_OK(stow_batches_release(NULL));
}

TEST(a_buffer_returned_twice_is_noticed)
{
  void *data;
  stow_batches *b = taken_from(&data);
  CHECK_STATUS(stow_batches_release(data), STOW_ERR_STATE);
  stow_batches_close(b);
}

static int pinned_now, pinned_most;
static void *pin(void *user, size_t bytes) {
  (void)user;
  if (++pinned_now > pinned_most) pinned_most = pinned_now;
  return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void unpin(void *user, void *memory, size_t bytes) {
  (void)user, (void)bytes;
  pinned_now--;
  free(memory);
}

TEST(buffers_come_from_the_callers_memory_and_go_back_to_it)
{
  stow_array_options f = file_of(write_rows("rows.npy", 5000, 100, DTYPE_I64));
  stow_batches_options o = plain(&f, 1);
  o.batch_rows = 10;
  o.memory = (stow_batches_memory){pin, unpin, NULL};
  stow_batches *b;
  static int64_t order[5000];
  CHECK_OK(stow_batches_open(&b, &o));
  CHECK_U64(drain(b, order, 5000, UINT64_MAX), 5000);
  CHECK(pinned_most > 0 && pinned_now > 0);
  stow_batches_close(b);
  CHECK(pinned_now == 0);
}

TEST(what_the_caller_held_and_gave_back_is_not_kept_beyond_the_plan)
{
  enum { HELD = 60 };
  stow_array_options f = file_of(write_rows("rows.npy", 40000, 100, DTYPE_I64));
  stow_batches_options o = plain(&f, 1);
  o.batch_rows = 250, o.memory_bytes = 4 * MIB;
  o.memory = (stow_batches_memory){pin, unpin, NULL};
  stow_batches *b;
  stow_batches_info info = STOW_BATCHES_INFO_INIT;
  void *held[HELD];
  uint64_t rows;
  CHECK_OK(stow_batches_open(&b, &o));
  CHECK_OK(stow_batches_get_info(b, &info));
  for (int i = 0; i < HELD; i++) CHECK_OK(stow_batches_next(b, &held[i], &rows));
  uint64_t each = 250 * 800;
  CHECK((uint64_t)pinned_now * each > info.planned_bytes);
  for (int i = 0; i < HELD; i++) CHECK_OK(stow_batches_release(held[i]));
  CHECK((uint64_t)pinned_now * each <= info.planned_bytes);
  stow_batches_close(b);
  CHECK(pinned_now == 0);
}

/* ---- the budget ---- */

TEST(the_budget_holds_as_resident_memory)
{
  const char *path = write_hole(480000, 100);
  harness_deadline(120);
  for (int way = 0; way < 6; way++) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      uint64_t limit = (way < 3 ? 32 : 64) * MIB;
      stow_array_options f = file_of(path);
      if (way % 3 == 2) f.as_dtype = "float16";
      stow_batches_options o = plain(&f, 1);
      o.shuffle = way % 3 > 0, o.batch_rows = 1000, o.memory_bytes = limit, o.readers = 2;
      stow_batches *b;
      void *data;
      uint64_t rows, total = 0;
      if (stow_batches_open(&b, &o) != STOW_OK) _exit(3);
      while (stow_batches_next(b, &data, &rows) == STOW_OK && rows > 0) {
        total += rows;
        stow_batches_release(data);
      }
      stow_batches_info info = STOW_BATCHES_INFO_INIT;
      stow_batches_get_info(b, &info);
      if (total != 480000 || info.planned_bytes > limit) _exit(4);
      _exit(budget_peak() <= limit + 16 * MIB ? 0 : 5);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 5));
#else
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
      FAIL("way %d ended with %d (5: over the budget)", way, WEXITSTATUS(status));
#endif
  }
}

/* Creates a control group, version 1 or 2; false if that is impossible. */
static bool make_group(char *folder, size_t size, const char **peak, uint64_t limit) {
  static const struct {
    const char *root, *limit, *peak;
  } kinds[] = {{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"},
               {"/sys/fs/cgroup", "memory.max", "memory.peak"}};
  for (int i = 0; i < 2; i++) {
    char path[400];
    snprintf(folder, size, "%s/stowage-test-%ld", kinds[i].root, (long)getpid());
    if (mkdir(folder, 0755) != 0) continue;
    snprintf(path, sizeof path, "%s/%s", folder, kinds[i].limit);
    FILE *f = fopen(path, "w");
    bool set = f != NULL && fprintf(f, "%llu", (unsigned long long)limit) > 0;
    if (f != NULL) set = fclose(f) == 0 && set;
    *peak = kinds[i].peak;
    snprintf(path, sizeof path, "%s/%s", folder, *peak);
    if (set && access(path, R_OK) == 0) return true;
    rmdir(folder);
  }
  return false;
}

static uint64_t read_group(const char *folder, const char *name) {
  char path[400], text[64] = "";
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *f = fopen(path, "r");
  CHECK(f != NULL && fgets(text, sizeof text, f) != NULL && fclose(f) == 0);
  return strtoull(text, NULL, 10);
}

/* Moves this process into the group. */
static void enter_group(const char *folder) {
  char procs[300];
  snprintf(procs, sizeof procs, "%s/cgroup.procs", folder);
  FILE *f = fopen(procs, "w");
  if (f == NULL || fprintf(f, "%ld", (long)getpid()) < 0 || fclose(f) != 0) _exit(3);
}

/* Batches that begin at multiples of 64 bytes of the file are read straight into their buffers,
 * others through the reader's own: 1000 rows of 800 bytes always do, 333 every other time, and 101
 * are too few. */
TEST(batches_read_past_the_page_cache_hold_their_rows)
{
#ifdef __SANITIZE_THREAD__
  SKIP("the sanitizer's own memory does not fit the group");
#endif
  enum { COUNT = 60000 };
  static const uint64_t sizes[] = {1000, 333, 101};
  static int64_t order[COUNT];
  const char *path = write_rows("rows.npy", COUNT, 100, DTYPE_I64), *peak;
  char folder[256];
  if (!make_group(folder, sizeof folder, &peak, 64 * MIB))
    SKIP("no control group with a memory limit can be made here (needs root)");
  pid_t child = fork();
  if (child == 0) {
    enter_group(folder);
    for (int i = 0; i < 6; i++) {
      stow_array_options file = file_of(path);
      stow_batches_options o = plain(&file, 1);
      o.batch_rows = sizes[i % 3], o.memory_bytes = (i < 3 ? 16 : 8) * MIB, o.readers = 2;
      stow_batches *b;
      stow_batches_info info = STOW_BATCHES_INFO_INIT;
      if (stow_batches_open(&b, &o) != STOW_OK) _exit(4);
      stow_batches_get_info(b, &info);
      if (!info.drops_cache) _exit(5);
      if (drain(b, order, COUNT, UINT64_MAX) != COUNT) _exit(6);
      for (int64_t row = 0; row < COUNT; row++)
        if (order[row] != row) _exit(7);
      stow_batches_close(b);
    }
    _exit(0);
  }
  int status;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  rmdir(folder);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) FAIL("ended with %d", status);
}

/* Resident memory and page cache together: what a container is charged. The group would allow 256
 * MiB, the file has 1 GiB, and the budget is what is used. */
TEST(the_budget_holds_as_what_a_container_is_charged)
{
  harness_deadline(120);
  const char *path = write_hole(1340000, 100);
  uint64_t most = 0;
  for (int shuffle = 0; shuffle < 2; shuffle++) {
    char folder[256];
    const char *peak;
    if (!make_group(folder, sizeof folder, &peak, 256 * MIB))
      SKIP("no control group with a memory limit can be made here (needs root)");
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      enter_group(folder);
      stow_array_options file = file_of(path);
      stow_batches_options o = plain(&file, 1);
      o.batch_rows = 1000, o.shuffle = shuffle, o.memory_bytes = 32 * MIB, o.readers = 2;
      stow_batches *b;
      stow_batches_info info = STOW_BATCHES_INFO_INIT;
      void *data;
      uint64_t rows, total = 0;
      if (stow_batches_open(&b, &o) != STOW_OK) _exit(4);
      stow_batches_get_info(b, &info);
      if (!info.drops_cache) _exit(5);
      while (stow_batches_next(b, &data, &rows) == STOW_OK && rows > 0) {
        total += rows;
        stow_batches_release(data);
      }
      _exit(total == 1340000 ? 0 : 6);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    uint64_t charged = read_group(folder, peak);
    rmdir(folder);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) FAIL("ended with %d", status);
    if (charged > most) most = charged;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    CHECK(charged <= 48 * MIB);
#endif
  }
  harness_note("1.0 GiB in a budget of 32 MiB: %.1f MiB charged at most",
               (double)most / (double)MIB);
}

TEST_MAIN
