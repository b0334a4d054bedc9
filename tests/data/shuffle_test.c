/* The order of batches: determined by seed and epoch, and as far from the file's order as a full
 * shuffle. */
#include "data/shuffle.h"

#include <dirent.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "numbered_rows.h"

TEST(rows_of_64_KiB_are_permuted_one_by_one)
{
  const char *path = write_rows("large.npy", 200, 8192, DTYPE_I64);
  stow_array_options f = file_of(path);
  static int64_t order[200];
  static uint8_t seen[200];
  stow_batches_options o = plain(&f, 1);
  o.shuffle = true, o.batch_rows = 3, o.memory_bytes = 8 * MIB;
  stow_batches *b;
  stow_batches_info info = STOW_BATCHES_INFO_INIT;
  CHECK_OK(stow_batches_open(&b, &o));
  CHECK_OK(stow_batches_get_info(b, &info));
  CHECK_U64(info.block_rows, 1);
  CHECK_U64(info.window_rows, 0);
  CHECK_U64(drain(b, order, 200, UINT64_MAX), 200);
  count_rows(seen, order, 200, 200);
  int behind = 0; /* neighbours that stayed neighbours: about one is expected */
  for (int i = 1; i < 200; i++) behind += order[i] == order[i - 1] + 1;
  CHECK(behind < 8);
  stow_batches_close(b);
}

TEST(the_order_is_the_seeds_and_the_epochs_whatever_the_readers)
{
  const char *path = write_rows("rows.npy", 100000, 0, DTYPE_I64);
  static int64_t order[6][100000];
  stow_array_options f = file_of(path);
  for (int i = 0; i < 6; i++) {
    stow_batches_options o = plain(&f, 1);
    o.shuffle = true, o.batch_rows = 100, o.memory_bytes = i == 5 ? 64 * MIB : 4 * MIB;
    o.seed = i == 3 ? 2 : 1;
    o.readers = (uint32_t)(i == 1 ? 4 : 1);
    stow_batches *b;
    CHECK_OK(stow_batches_open(&b, &o));
    if (i == 2) { /* again, after another epoch was begun */
      CHECK_OK(stow_batches_set_epoch(b, 5));
      drain(b, order[i], 100000, 10);
      CHECK_OK(stow_batches_set_epoch(b, 0));
    }
    if (i == 4) CHECK_OK(stow_batches_set_epoch(b, 1));
    CHECK_U64(drain(b, order[i], 100000, UINT64_MAX), 100000);
    stow_batches_close(b);
  }
  CHECK(memcmp(order[0], order[1], sizeof order[0]) == 0);
  CHECK(memcmp(order[0], order[2], sizeof order[0]) == 0);
  CHECK(memcmp(order[0], order[3], sizeof order[0]) != 0);
  CHECK(memcmp(order[0], order[4], sizeof order[0]) != 0);
}

/* In a uniform permutation of n, a row moves n/3 on average, and neighbours stay neighbours as
 * often as expected by chance. Ours stays within the bounds that the header states. */
TEST(a_bounded_shuffle_moves_rows_as_far_as_a_full_one)
{
  enum { ROWS = 400000 };
  static int64_t order[ROWS];
  const char *path = write_rows("rows.npy", ROWS, 4, DTYPE_I64);
  stow_array_options f = file_of(path);
  stow_batches_options o = plain(&f, 1);
  o.shuffle = true, o.batch_rows = 500, o.seed = 3;
  stow_batches *b;
  stow_batches_info info = STOW_BATCHES_INFO_INIT;
  CHECK_OK(stow_batches_open(&b, &o));
  CHECK_OK(stow_batches_get_info(b, &info));
  CHECK(info.window_rows < ROWS / 5 && info.block_rows < info.window_rows / 8);
  CHECK_U64(drain(b, order, ROWS, UINT64_MAX), ROWS);
  double moved = 0, neighbours = 0, same_block = 0;
  for (int64_t i = 0; i < ROWS; i++) {
    moved += (double)llabs(order[i] - i) / ROWS;
    if (i == 0) continue;
    neighbours += llabs(order[i] - order[i - 1]) == 1;
    same_block += order[i] / (int64_t)info.block_rows == order[i - 1] / (int64_t)info.block_rows;
  }
  moved /= ROWS;
  double blocks = (double)info.window_rows / (double)info.block_rows;
  harness_note("moved %.3f of the file (1/3 is uniform); next row from the same block %.4f (window "
               "of %.0f blocks: %.4f)",
               moved, same_block / ROWS, blocks, 1 / blocks);
  CHECK(moved > 0.28 && moved < 0.39);
  CHECK(same_block / ROWS < 1.3 / blocks && same_block / ROWS > 0.7 / blocks);
  CHECK(neighbours < 4.0 * ROWS / (double)info.window_rows + 40);
  stow_batches_close(b);
}

TEST(a_draw_of_a_window_gives_every_order_equally_often)
{
  /* The 24 orders of four, 24000 draws: chi-square with 23 degrees of freedom stays under 60 (p =
   * 3e-5). */
  int counts[256] = {0};
  for (uint64_t key = 0; key < 24000; key++) {
    uint32_t n[4];
    shuffle_draw(n, 4, shuffle_key(1, key, 9));
    counts[n[0] << 6 | n[1] << 4 | n[2] << 2 | n[3]]++;
  }
  double chi = 0;
  int orders = 0;
  for (int i = 0; i < 256; i++)
    if (counts[i] > 0) orders++, chi += (counts[i] - 1000.0) * (counts[i] - 1000.0) / 1000.0;
  CHECK(orders == 24);
  CHECK(chi < 60);
  harness_note("chi-square %.1f of 23", chi);
}

TEST(an_order_of_blocks_is_a_permutation_with_its_short_block_anywhere)
{
  static uint8_t seen[1000];
  for (uint64_t rows = 1; rows < 200; rows += 7)
    for (uint64_t block = 1; block < 40; block += 3)
      for (uint64_t key = 0; key < 5; key++) {
        sequence o;
        CHECK_OK(sequence_open(&o, rows, block));
        sequence_draw(&o, key);
        memset(seen, 0, sizeof seen);
        for (uint64_t place = 0; place < rows;) {
          uint64_t row, run = sequence_run(&o, place, &row);
          CHECK(run > 0 && run <= block && row + run <= rows && place + run <= rows);
          for (uint64_t i = 0; i < run; i++) CHECK(seen[row + i]++ == 0);
          place += run;
        }
        sequence_close(&o);
      }
}

/* ---- quality ---- */

enum { SORTED_ROWS = 1000000, CLASSES = 1000, BATCH = 256 };

/* Returns the different classes in a batch of 256, on average, of a file whose row i has class
 * i / 1000; uniform: 226. Also checks that every row comes once. */
static double classes_of(stow_batches *b) {
  static int64_t order[SORTED_ROWS];
  static uint8_t seen[SORTED_ROWS];
  memset(seen, 0, sizeof seen);
  CHECK_U64(drain(b, order, SORTED_ROWS, UINT64_MAX), SORTED_ROWS);
  count_rows(seen, order, SORTED_ROWS, SORTED_ROWS);
  double sum = 0;
  for (int64_t first = 0; first + BATCH <= SORTED_ROWS; first += BATCH) {
    uint8_t there[CLASSES] = {0};
    for (int64_t i = first; i < first + BATCH; i++) there[order[i] / (SORTED_ROWS / CLASSES)] = 1;
    for (int c = 0; c < CLASSES; c++) sum += there[c];
  }
  return sum / (SORTED_ROWS / BATCH);
}

static stow_batches *open_sorted(const char *path, uint32_t shuffle, uint64_t memory) {
  stow_array_options f = file_of(path);
  stow_batches_options o = plain(&f, 1);
  o.shuffle = shuffle, o.batch_rows = BATCH, o.memory_bytes = memory, o.seed = 5;
  o.scratch = harness_folder();
  stow_batches *b;
  CHECK_OK(stow_batches_open(&b, &o));
  return b;
}

TEST(a_shuffle_on_disk_is_as_good_as_a_uniform_one_and_a_windows_quality_is_reported)
{
  harness_deadline(120);
  const char *path = write_rows("sorted.npy", SORTED_ROWS, 4, DTYPE_I64); /* 32 MB */
  const double uniform = 226.1;
  const struct {
    uint32_t shuffle;
    uint64_t memory;
    double least, most;
  } cases[] = {{STOW_BATCHES_SHUFFLE_DISK, 4 * MIB, 0.95, 1.01},
               {STOW_BATCHES_SHUFFLE_DISK, 8 * MIB, 0.95, 1.01},
               {STOW_BATCHES_SHUFFLE_DISK, 64 * MIB, 0.99, 1.01}, /* all rows fit in memory */
               {STOW_BATCHES_SHUFFLE_WINDOW, 4 * MIB, 0.05, 0.3},
               {STOW_BATCHES_SHUFFLE_WINDOW, 8 * MIB, 0.1, 0.5},
               {STOW_BATCHES_SHUFFLE_WINDOW, 64 * MIB, 0.99, 1.01}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    stow_batches *b = open_sorted(path, cases[i].shuffle, cases[i].memory);
    stow_batches_info info = STOW_BATCHES_INFO_INIT;
    CHECK_OK(stow_batches_get_info(b, &info));
    bool disk = cases[i].shuffle == STOW_BATCHES_SHUFFLE_DISK && cases[i].memory < 64 * MIB;
    CHECK_U64(info.scratch_bytes, disk ? SORTED_ROWS * 32 : 0);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
      CHECK_OK(stow_batches_set_epoch(b, epoch));
      double measured = classes_of(b) / uniform;
      harness_note("%s, %d MiB: %.3f of uniform, reported %.3f; ", disk ? "disk" : "memory",
                   (int)(cases[i].memory / MIB), measured, info.shuffle_quality);
      CHECK(measured > cases[i].least && measured < cases[i].most);
      CHECK(info.shuffle_quality > measured * 0.9 - 0.02 &&
            info.shuffle_quality < measured * 1.1 + 0.02);
    }
    stow_batches_close(b);
  }
}

TEST(a_shuffle_on_disk_is_the_seeds_and_resumes_exactly)
{
  harness_deadline(120);
  enum { ROWS = 60000 };
  static int64_t whole[ROWS], part[ROWS], other[ROWS];
  static uint8_t seen[ROWS];
  stow_array_options f = file_of(write_rows("rows.npy", ROWS, 30, DTYPE_I64)); /* 14.4 MB */
  stow_batches_options o = plain(&f, 1);
  o.shuffle = STOW_BATCHES_SHUFFLE_DISK, o.batch_rows = 100, o.scratch = harness_folder();
  stow_batches *b, *again;
  stow_batches_state state = STOW_BATCHES_STATE_INIT;
  CHECK_OK(stow_batches_open(&b, &o));
  CHECK_U64(drain(b, other, ROWS, UINT64_MAX), ROWS);
  CHECK_OK(stow_batches_set_epoch(b, 4));
  CHECK_U64(drain(b, whole, ROWS, UINT64_MAX), ROWS);
  count_rows(seen, whole, ROWS, ROWS);
  CHECK(memcmp(whole, other, sizeof whole) != 0);
  CHECK_OK(stow_batches_set_epoch(b, 4));
  drain(b, part, ROWS, 333);
  CHECK_OK(stow_batches_get_state(b, &state));
  CHECK(state.deck_rows > 0);
  o.seed = 77, o.memory_bytes = 6 * MIB, o.readers = 1; /* the state has its own seed and sizes */
  CHECK_OK(stow_batches_open(&again, &o));
  CHECK_OK(stow_batches_set_state(again, &state));
  CHECK_U64(drain(again, part, ROWS, UINT64_MAX), ROWS - 33300);
  CHECK(memcmp(part, whole + 33300, (ROWS - 33300) * sizeof *part) == 0);
  stow_batches_close(again);
  CHECK_OK(stow_batches_open(&again, &o)); /* another seed: another order */
  CHECK_OK(stow_batches_set_epoch(again, 4));
  CHECK_U64(drain(again, part, ROWS, UINT64_MAX), ROWS);
  CHECK(memcmp(part, whole, sizeof part) != 0);
  stow_batches_close(again);
  stow_batches_close(b);
}

TEST(files_in_step_stay_in_step_on_disk_and_ranks_share_one_copy)
{
  harness_deadline(120);
  enum { ROWS = 70000, WORLD = 3 };
  static uint8_t seen[ROWS];
  memset(seen, 0, sizeof seen);
  stow_array_options files[2] = {file_of(write_rows("x.npy", ROWS, 30, DTYPE_F64)),
                                 file_of(write_rows("y.npy", ROWS, 0, DTYPE_I64))};
  files[0].as_dtype = "float32";
  stow_batches *all[WORLD];
  for (uint32_t rank = 0; rank < WORLD; rank++) {
    stow_batches_options o = plain(files, 2);
    o.shuffle = STOW_BATCHES_SHUFFLE_DISK, o.batch_rows = 70, o.scratch = harness_folder();
    o.rank = rank, o.world = WORLD;
    CHECK_OK(stow_batches_open(&all[rank], &o));
  }
  uint64_t left = WORLD;
  while (left > 0) { /* in turn: the first builds the copy, the others wait for it */
    left = 0;
    for (uint32_t rank = 0; rank < WORLD; rank++) {
      void *data[2];
      uint64_t count;
      CHECK_OK(stow_batches_next(all[rank], data, &count));
      if (count == 0) continue;
      left++;
      const float *x = data[0];
      const int64_t *y = data[1];
      for (uint64_t i = 0; i < count; i++) {
        CHECK(x[i * 30] == (float)y[i] && x[i * 30 + 29] == (float)(y[i] + 29));
        CHECK(seen[y[i]]++ == 0);
      }
      CHECK_OK(stow_batches_release(data[0]));
      CHECK_OK(stow_batches_release(data[1]));
    }
  }
  for (int i = 0; i < ROWS; i++) CHECK(seen[i] == 1);
  int named = 0;
  for (int closed = 0; closed <= WORLD; closed++) {
    named = 0;
    DIR *folder = opendir(harness_folder());
    CHECK(folder != NULL);
    for (struct dirent *e; (e = readdir(folder)) != NULL;)
      named += strncmp(e->d_name, "stowage-shuffle-", 16) == 0;
    closedir(folder);
    if (closed < WORLD) CHECK_U64((uint64_t)named, 3); /* x, y and the lock */
    if (closed < WORLD) stow_batches_close(all[closed]);
  }
  CHECK_U64((uint64_t)named, 0);
}

static void release_both(void **data) {
  CHECK_OK(stow_batches_release(data[0]));
  CHECK_OK(stow_batches_release(data[1]));
}

/* Takes an epoch of rows and their numbers; returns a hash of their order. Holds up to `held`
 * batches besides the one it checks. */
static uint64_t hash_of_order(stow_batches *b, uint64_t rows, uint64_t items, size_t held) {
  static uint8_t seen[16000];
  void *data[4][2];
  uint64_t hash = 0, total = 0;
  size_t taken = 0, released = 0;
  CHECK(rows <= sizeof seen && held < 4);
  memset(seen, 0, sizeof seen);
  for (uint64_t count;; total += count, taken++) {
    void **now = data[taken % 4];
    CHECK_OK(stow_batches_next(b, now, &count));
    if (count == 0) break;
    const int64_t *x = now[0], *y = now[1];
    for (uint64_t i = 0; i < count; i++, x += items) {
      CHECK(y[i] >= 0 && (uint64_t)y[i] < rows && seen[y[i]]++ == 0);
      for (uint64_t k = 0; k < items; k++) CHECK(x[k] == y[i] + (int64_t)k);
      hash = shuffle_key(hash, (uint64_t)y[i], 0);
    }
    if (taken - released >= held) release_both(data[released++ % 4]);
  }
  while (released < taken) release_both(data[released++ % 4]);
  CHECK_U64(total, rows);
  return hash;
}

TEST(large_rows_on_disk_come_in_the_order_of_the_seed_however_they_are_read)
{
  harness_deadline(120);
  enum { ROWS = 16000, ITEMS = 150 }; /* 19.2 MB */
  /* As read through a window, without reading rows straight into their batches. */
  static const uint64_t expected[2] = {UINT64_C(9980028299817001554),
                                       UINT64_C(12668778962897070527)};
  cpu_set_t one, all;
  CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
  CPU_ZERO(&one);
  for (int i = 0; CPU_COUNT(&one) == 0; i++)
    if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
  stow_array_options files[2] = {file_of(write_rows("x.npy", ROWS, ITEMS, DTYPE_I64)),
                                 file_of(write_rows("y.npy", ROWS, 0, DTYPE_I64))};
  for (int way = 0; way < 6; way++) {
    CHECK(sched_setaffinity(0, sizeof one, way % 2 == 1 ? &one : &all) == 0);
    stow_batches_options o = plain(files, 2);
    o.shuffle = STOW_BATCHES_SHUFFLE_DISK, o.batch_rows = 70, o.scratch = harness_folder();
    o.memory_bytes = 12 * MIB, o.seed = 9, o.readers = way < 2 ? 0 : way < 4 ? 1 : 3;
    stow_batches *b;
    CHECK_OK(stow_batches_open(&b, &o));
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
      CHECK_OK(stow_batches_set_epoch(b, epoch));
      CHECK_U64(hash_of_order(b, ROWS, ITEMS, (size_t)way % 4), expected[epoch]);
    }
    stow_batches_close(b);
  }
  CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
}

/* Memory for a few buffers at a time. */
typedef struct few_buffers {
  _Atomic int left;
} few_buffers;

static void *few_allocate(void *user, size_t bytes) {
  few_buffers *few = user;
  if (atomic_fetch_sub(&few->left, 1) > 0) return aligned_alloc(64, (bytes + 63) / 64 * 64);
  atomic_fetch_add(&few->left, 1);
  return NULL;
}

static void few_release(void *user, void *memory, size_t bytes) {
  (void)bytes;
  free(memory);
  atomic_fetch_add(&((few_buffers *)user)->left, 1);
}

TEST(rows_on_disk_keep_their_order_with_few_buffers_and_from_any_batch_on)
{
  harness_deadline(120);
  enum { ROWS = 12000, OF = 70, COUNT = (ROWS + OF - 1) / OF };
  static int64_t order[ROWS], again[ROWS];
  for (int large = 0; large < 2; large++) { /* read into batches through a window, or straight */
    uint64_t items = large ? 150 : 100;
    stow_array_options f = file_of(write_rows("rows.npy", ROWS, items, DTYPE_I64));
    stow_batches_options o = plain(&f, 1);
    o.shuffle = STOW_BATCHES_SHUFFLE_DISK, o.batch_rows = OF, o.scratch = harness_folder();
    o.memory_bytes = 8 * MIB, o.seed = 3;
    stow_batches *b;
    CHECK_OK(stow_batches_open(&b, &o));
    stow_batches_info info = {.struct_bytes = sizeof info};
    CHECK_OK(stow_batches_get_info(b, &info));
    CHECK(info.scratch_bytes > 0 && info.window_rows >= 3 * OF && info.window_rows < ROWS / 2);
    CHECK_U64(drain(b, order, ROWS, UINT64_MAX), ROWS);
    for (uint64_t batch = 1; batch < COUNT; batch += 41) { /* in the middle of a window */
      stow_batches_state state = STOW_BATCHES_STATE_INIT;
      CHECK_OK(stow_batches_get_state(b, &state));
      state.epoch = 0, state.next_batch = batch;
      CHECK_OK(stow_batches_set_state(b, &state));
      CHECK_U64(drain(b, again, ROWS, UINT64_MAX), ROWS - batch * OF);
      CHECK(memcmp(again, order + batch * OF, (ROWS - batch * OF) * sizeof *order) == 0);
    }
    stow_batches_close(b);
    few_buffers few = {.left = 2}; /* less than a window needs */
    o.memory.allocate = few_allocate, o.memory.release = few_release, o.memory.user = &few;
    CHECK_OK(stow_batches_open(&b, &o));
    CHECK_U64(drain(b, again, ROWS, UINT64_MAX), ROWS);
    CHECK(memcmp(again, order, sizeof order) == 0);
    stow_batches_close(b);
    CHECK(few.left == 2);
  }
}

TEST(a_folder_that_cannot_hold_the_copy_is_named)
{
  stow_array_options f = file_of(write_rows("rows.npy", 60000, 30, DTYPE_I64));
  stow_batches_options o = plain(&f, 1);
  o.shuffle = STOW_BATCHES_SHUFFLE_DISK, o.scratch = "/nonexistent/folder";
  stow_batches *b;
  void *data[1];
  uint64_t count;
  CHECK_OK(stow_batches_open(&b, &o));
  CHECK_STATUS(stow_batches_next(b, data, &count), STOW_ERR_IO);
  CHECK_MESSAGE("/nonexistent/folder");
  CHECK_STATUS(stow_batches_next(b, data, &count), STOW_ERR_IO);
  stow_batches_close(b);
  o.shuffle = 3;
  CHECK_STATUS(stow_batches_open(&b, &o), STOW_ERR_INVALID);
}

TEST_MAIN
