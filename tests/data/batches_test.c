/* Batches: every row exactly once in every arrangement, resumed at every point, within the budget,
 * and whatever goes wrong told with its place. */
#include <stowage/batches.h>

#include <fcntl.h>
#include <pthread.h> /* the readers are threads: pthread_create */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/dtype.h"
#include "data/budget.h"
#include "data/plan.h"
#include "data/shard.h"
#include "data/shuffle.h"
#include "npz_build.h"

#define MIB (UINT64_C(1) << 20)

/* A .npy file whose row i holds i in its first item and i + 1, i + 2, … behind it. */
static const char *write_rows(const char *name, uint64_t count, uint64_t items, dtype type) {
  static char paths[8][256];
  static int next;
  char *path = paths[next++ % 8];
  snprintf(path, sizeof paths[0], "%s/%s", harness_folder(), name);
  FILE *f = fopen(path, "wb");
  CHECK(f != NULL);
  buffer b = BUFFER_INIT;
  uint64_t shape[2] = {count, items};
  CHECK_OK(npy_write_header(&b, type, false, shape, items == 0 ? 1 : 2));
  CHECK(fwrite(b.data, 1, b.length, f) == b.length);
  for (uint64_t row = 0; row < count; row++)
    for (uint64_t i = 0; i < (items == 0 ? 1 : items); i++) {
      int64_t whole = (int64_t)(row + i);
      double real = (double)whole;
      if (type == DTYPE_I64) CHECK(fwrite(&whole, 8, 1, f) == 1);
      if (type == DTYPE_F64) CHECK(fwrite(&real, 8, 1, f) == 1);
    }
  CHECK(fclose(f) == 0);
  buffer_free(&b);
  return path;
}

static stow_batches_options plain(const stow_array_options *files, uint32_t count) {
  stow_batches_options o = STOW_BATCHES_OPTIONS_INIT;
  o.files = files;
  o.file_count = count;
  o.world = 1;
  o.memory_bytes = 4 * MIB;
  return o;
}

static stow_array_options file_of(const char *path) {
  stow_array_options f = STOW_ARRAY_OPTIONS_INIT;
  f.path = path;
  return f;
}

/* Takes batches to the end of the epoch; each row's number goes to seen[], if wanted, in order. */
static uint64_t drain(stow_batches *b, int64_t *order, uint64_t most, uint64_t stop_after) {
  uint64_t rows = 0, total = 0, batches = 0;
  stow_array_info info;
  CHECK_OK(stow_batches_get_file(b, 0, &info));
  while (batches < stop_after) {
    void *data[STOW_BATCHES_FILES_MAX];
    CHECK_OK(stow_batches_next(b, data, &rows));
    if (rows == 0) break;
    CHECK(((uintptr_t)data[0] & 63) == 0);
    const int64_t *values = data[0];
    for (uint64_t i = 0; i < rows; i++, total++) {
      CHECK(total < most);
      order[total] = values[i * info.row_items];
      for (uint64_t k = 1; k < info.row_items; k++)
        CHECK(values[i * info.row_items + k] == order[total] + (int64_t)k);
    }
    CHECK_OK(stow_batches_release(data[0]));
    batches++;
  }
  return total;
}

static void count_rows(uint8_t *seen, const int64_t *order, uint64_t count, uint64_t rows) {
  for (uint64_t i = 0; i < count; i++) {
    CHECK(order[i] >= 0 && (uint64_t)order[i] < rows);
    CHECK(seen[order[i]]++ == 0);
  }
}

/* ---- every row once ---- */

TEST(every_row_comes_once_over_ranks_readers_sizes_and_shuffles)
{
  harness_deadline(120);
  static const uint64_t counts[] = {0, 1, 7, 1000, 40000}, sizes[] = {1, 3, 64, 1000, 5000};
  static int64_t order[40000];
  static uint8_t seen[40000];
  int arrangements = 0;
  for (size_t c = 0; c < 5; c++) {
    const char *path = write_rows("rows.npy", counts[c], 25, DTYPE_I64);
    for (size_t s = 0; s < 5; s++)
      for (uint32_t world = 1; world <= 3; world++)
        for (uint32_t readers = 1; readers <= 3; readers += 2)
          for (int way = 0; way < 4; way++) {
            bool shuffle = way & 1, drop_last = way & 2;
            uint64_t batches[3] = {0}, total = 0;
            if (sizes[s] == 1 && counts[c] == 40000 && readers == 3) continue; /* as with 1 */
            memset(seen, 0, sizeof seen);
            for (uint32_t rank = 0; rank < world; rank++) {
              stow_array_options f = file_of(path);
              stow_batches_options o = plain(&f, 1);
              o.batch_rows = sizes[s], o.drop_last = drop_last, o.shuffle = shuffle;
              o.seed = 7, o.rank = rank, o.world = world, o.readers = readers;
              o.memory_bytes = 6 * MIB;
              stow_batches *b;
              CHECK_OK(stow_batches_open(&b, &o));
              stow_batches_info info;
              CHECK_OK(stow_batches_get_info(b, &info));
              batches[rank] = info.batch_count;
              uint64_t got = drain(b, order, 40000, UINT64_MAX);
              count_rows(seen, order, got, counts[c]);
              CHECK_U64(got, drop_last ? info.batch_count * sizes[s] : info.rank_rows);
              total += got;
              stow_batches_close(b);
              CHECK(!drop_last || batches[rank] == batches[0]);
            }
            if (!drop_last) CHECK_U64(total, counts[c]);
            CHECK(total + world * sizes[s] > counts[c]);
            arrangements++;
          }
  }
  harness_note("%d arrangements", arrangements);
}

TEST(rows_of_64_KiB_are_permuted_one_by_one)
{
  const char *path = write_rows("large.npy", 200, 8192, DTYPE_I64);
  stow_array_options f = file_of(path);
  static int64_t order[200];
  static uint8_t seen[200];
  stow_batches_options o = plain(&f, 1);
  o.shuffle = true, o.batch_rows = 3, o.memory_bytes = 8 * MIB;
  stow_batches *b;
  stow_batches_info info;
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

/* Of a uniform permutation of n, the mean way a row moves is n/3, and as many pairs of neighbours
 * stay neighbours as one would expect by chance. Of ours, within the bounds the header states. */
TEST(a_bounded_shuffle_moves_rows_as_far_as_a_full_one)
{
  enum { ROWS = 400000 };
  static int64_t order[ROWS];
  const char *path = write_rows("rows.npy", ROWS, 4, DTYPE_I64);
  stow_array_options f = file_of(path);
  stow_batches_options o = plain(&f, 1);
  o.shuffle = true, o.batch_rows = 500, o.seed = 3;
  stow_batches *b;
  stow_batches_info info;
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
  /* The 24 orders of four, 24000 draws: chi-square of 23 degrees stays under 60 (p = 3e-5). */
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

/* ---- files in step ---- */

TEST(several_files_stay_in_step_and_are_converted_on_the_way)
{
  enum { ROWS = 30000 };
  const char *x = write_rows("x.npy", ROWS, 50, DTYPE_F64),
             *y = write_rows("y.npy", ROWS, 0, DTYPE_I64);
  for (int shuffle = 0; shuffle < 2; shuffle++) {
    stow_array_options f[2] = {file_of(x), file_of(y)};
    f[0].as_dtype = "float32";
    stow_batches_options o = plain(f, 2);
    o.batch_rows = 128, o.shuffle = shuffle, o.readers = 2;
    stow_batches *b;
    CHECK_OK(stow_batches_open(&b, &o));
    stow_array_info info;
    CHECK_OK(stow_batches_get_file(b, 0, &info));
    CHECK_TEXT(info.dtype, "float32");
    CHECK_TEXT(info.file_dtype, "float64");
    CHECK(info.item_bytes == 4 && info.dims == 2 && info.shape[1] == 50);
    void *data[2];
    uint64_t rows, total = 0;
    for (;;) {
      CHECK_OK(stow_batches_next(b, data, &rows));
      if (rows == 0) break;
      const float *features = data[0];
      const int64_t *labels = data[1];
      for (uint64_t i = 0; i < rows; i++)
        for (int k = 0; k < 50; k++)
          CHECK(features[i * 50 + (uint64_t)k] == (float)(labels[i] + k));
      total += rows;
      CHECK_OK(stow_batches_release(data[0]));
      CHECK_OK(stow_batches_release(data[1]));
    }
    CHECK_U64(total, ROWS);
    stow_batches_close(b);
  }
}

TEST(files_of_other_lengths_are_refused_with_both_numbers)
{
  stow_array_options f[2] = {file_of(write_rows("x.npy", 10, 2, DTYPE_F64)),
                             file_of(write_rows("y.npy", 11, 0, DTYPE_I64))};
  stow_batches_options o = plain(f, 2);
  stow_batches *b;
  CHECK_STATUS(stow_batches_open(&b, &o), STOW_ERR_INVALID);
  CHECK_MESSAGE("10 rows");
  CHECK_MESSAGE("11");
  CHECK_MESSAGE("x.npy");
  CHECK_MESSAGE("y.npy");
}

TEST(what_cannot_be_batched_is_refused_with_the_reason)
{
  const char *path = write_rows("x.npy", 10, 2, DTYPE_F64);
  stow_array_options f = file_of(path);
  stow_batches *b;
  stow_batches_options o = plain(&f, 1);
  o.batch_rows = 0;
  CHECK_STATUS(stow_batches_open(&b, &o), STOW_ERR_INVALID);
  o = plain(&f, 1), o.rank = 2, o.world = 2;
  CHECK_STATUS(stow_batches_open(&b, &o), STOW_ERR_INVALID);
  CHECK_MESSAGE("rank 2 of 2");
  o = plain(&f, 1), o.batch_rows = UINT64_C(1) << 62;
  CHECK_STATUS(stow_batches_open(&b, &o), STOW_ERR_OVERFLOW);
  o = plain(&f, 1), o.batch_rows = 4 * MIB;
  CHECK_STATUS(stow_batches_open(&b, &o), STOW_ERR_BUDGET);
  CHECK_MESSAGE("the budget is 4.0 MiB");
  o = plain(&f, 1), o.memory_bytes = 1000;
  CHECK_STATUS(stow_batches_open(&b, &o), STOW_ERR_INVALID);
  o = plain(&f, 1), o.file_count = 17;
  CHECK_STATUS(stow_batches_open(&b, &o), STOW_ERR_INVALID);
  f.as_dtype = "complex64";
  o = plain(&f, 1);
  CHECK_STATUS(stow_batches_open(&b, &o), STOW_ERR_INVALID);
  f = file_of("/nonexistent/x.npy");
  o = plain(&f, 1);
  CHECK_STATUS(stow_batches_open(&b, &o), STOW_ERR_NOT_FOUND);
  char table[300];
  snprintf(table, sizeof table, "%s/t.csv", harness_folder());
  FILE *csv = fopen(table, "w");
  CHECK(csv != NULL && fputs("a,b\n1,2\n", csv) >= 0 && fclose(csv) == 0);
  f = file_of(table);
  o = plain(&f, 1);
  CHECK_STATUS(stow_batches_open(&b, &o), STOW_ERR_FORMAT);
  CHECK_MESSAGE("stowage shrink");
}

/* ---- resume ---- */

TEST(a_state_continues_with_exactly_the_batches_left)
{
  harness_deadline(120);
  enum { ROWS = 3000 };
  static int64_t whole[ROWS], part[ROWS];
  const char *path = write_rows("rows.npy", ROWS, 400, DTYPE_I64); /* 9.6 MB: several windows */
  stow_array_options f = file_of(path);
  int points = 0;
  for (int shuffle = 0; shuffle < 2; shuffle++)
    for (uint32_t world = 1; world <= 2; world++) {
      stow_batches_options o = plain(&f, 1);
      o.batch_rows = 37, o.shuffle = shuffle, o.rank = world - 1, o.world = world, o.readers = 2;
      stow_batches *b, *again;
      stow_batches_info info;
      CHECK_OK(stow_batches_open(&b, &o));
      CHECK_OK(stow_batches_get_info(b, &info));
      CHECK(!shuffle || info.window_rows < info.rank_rows);
      CHECK_OK(stow_batches_set_epoch(b, 2));
      uint64_t total = drain(b, whole, ROWS, UINT64_MAX);
      o.seed = 99, o.memory_bytes = 16 * MIB; /* a state brings its own seed, blocks and windows */
      CHECK_OK(stow_batches_open(&again, &o));
      for (uint64_t point = 0; point <= info.batch_count; point += 1 + point / 20) {
        stow_batches_state state;
        CHECK_OK(stow_batches_set_epoch(b, 2));
        drain(b, part, ROWS, point);
        CHECK_OK(stow_batches_get_state(b, &state));
        CHECK_U64(state.next_batch, point);
        CHECK_OK(stow_batches_set_state(again, &state));
        uint64_t before = point * 37 < total ? point * 37 : total;
        CHECK_U64(drain(again, part, ROWS, UINT64_MAX), total - before);
        CHECK(memcmp(part, whole + before, (total - before) * sizeof *part) == 0);
        points++;
      }
      stow_batches_close(again);
      stow_batches_close(b);
    }
  harness_note("%d points", points);
}

TEST(a_state_of_other_batches_is_refused)
{
  stow_array_options f = file_of(write_rows("rows.npy", 3000, 400, DTYPE_I64));
  stow_batches_options o = plain(&f, 1);
  o.batch_rows = 10, o.shuffle = true, o.memory_bytes = 64 * MIB;
  stow_batches *b;
  stow_batches_state state, wrong;
  CHECK_OK(stow_batches_open(&b, &o));
  CHECK_OK(stow_batches_get_state(b, &state));
  wrong = state, wrong.rows = 2999;
  CHECK_STATUS(stow_batches_set_state(b, &wrong), STOW_ERR_INVALID);
  CHECK_MESSAGE("rows 2999, these have 3000");
  wrong = state, wrong.batch_rows = 11;
  CHECK_STATUS(stow_batches_set_state(b, &wrong), STOW_ERR_INVALID);
  wrong = state, wrong.next_batch = 301;
  CHECK_STATUS(stow_batches_set_state(b, &wrong), STOW_ERR_INVALID);
  wrong = state, wrong.window_rows = UINT64_MAX;
  CHECK_STATUS(stow_batches_set_state(b, &wrong), STOW_ERR_INVALID);
  wrong = state, wrong.block_rows = 1, wrong.window_rows = 15;
  CHECK_STATUS(stow_batches_set_state(b, &wrong), STOW_ERR_INVALID);
  stow_batches_close(b);
  o.memory_bytes = 4 * MIB; /* the window of the state took 9.6 MB */
  CHECK_OK(stow_batches_open(&b, &o));
  CHECK_STATUS(stow_batches_set_state(b, &state), STOW_ERR_BUDGET);
  static int64_t order[3000];
  CHECK_U64(drain(b, order, 3000, UINT64_MAX), 3000); /* as it was */
  stow_batches_close(b);
}

/* ---- the environment ---- */

TEST(the_rank_is_found_in_the_environment)
{
  shard s;
  static const char *const all[] = {
      "RANK",         "WORLD_SIZE",    "SLURM_PROCID",         "SLURM_NTASKS",
      "SLURM_JOB_ID", "SLURM_STEP_ID", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
      "PMI_RANK",     "PMI_SIZE"};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) unsetenv(all[i]);
  CHECK_OK(shard_find(&s));
  CHECK(s.rank == 0 && s.world == 1);
  setenv("SLURM_PROCID", "1", 1), setenv("SLURM_NTASKS", "2", 1);
  CHECK_OK(shard_find(&s));
  CHECK(s.rank == 1 && s.world == 2);
  setenv("SLURM_JOB_ID", "17", 1); /* the batch script itself: one process */
  CHECK_OK(shard_find(&s));
  CHECK(s.rank == 0 && s.world == 1);
  setenv("SLURM_STEP_ID", "0", 1);
  CHECK_OK(shard_find(&s));
  CHECK(s.rank == 1 && s.world == 2);
  setenv("PMI_RANK", "2", 1), setenv("PMI_SIZE", "3", 1); /* started by mpirun within the job */
  CHECK_OK(shard_find(&s));
  CHECK(s.rank == 2 && s.world == 3);
  setenv("OMPI_COMM_WORLD_RANK", "3", 1), setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  CHECK_OK(shard_find(&s));
  CHECK(s.rank == 3 && s.world == 4);
  setenv("RANK", "5", 1), setenv("WORLD_SIZE", "8", 1);
  CHECK_OK(shard_find(&s));
  CHECK(s.rank == 5 && s.world == 8);
  setenv("RANK", "8", 1);
  CHECK_STATUS(shard_find(&s), STOW_ERR_INVALID);
  CHECK_MESSAGE("RANK=8 and WORLD_SIZE=8");
  setenv("RANK", "one", 1);
  CHECK_STATUS(shard_find(&s), STOW_ERR_INVALID);
  CHECK_MESSAGE("RANK=one");
}

TEST(shares_differ_by_one_row_at_most)
{
  for (uint64_t rows = 0; rows < 50; rows++)
    for (uint32_t world = 1; world < 9; world++) {
      uint64_t at = 0;
      for (uint32_t rank = 0; rank < world; rank++) {
        uint64_t first, end;
        shard_range(&(shard){rank, world}, rows, &first, &end);
        CHECK(first == at && end - first >= rows / world && end - first <= rows / world + 1);
        at = end;
      }
      CHECK_U64(at, rows);
    }
}

/* ---- memory ---- */

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

TEST(a_buffer_given_back_twice_is_noticed)
{
  stow_array_options f = file_of(write_rows("rows.npy", 1000, 100, DTYPE_I64));
  stow_batches_options o = plain(&f, 1);
  stow_batches *b;
  void *data;
  uint64_t rows;
  CHECK_OK(stow_batches_open(&b, &o));
  CHECK_OK(stow_batches_next(b, &data, &rows));
  CHECK_OK(stow_batches_release(data));
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
  stow_batches_info info;
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

/* A file of 384 MB that is mostly a hole: what counts is what stays resident. */
static const char *write_hole(uint64_t rows, uint64_t items) {
  static char path[256];
  snprintf(path, sizeof path, "%s/hole.npy", harness_folder());
  buffer b = BUFFER_INIT;
  uint64_t shape[2] = {rows, items};
  CHECK_OK(npy_write_header(&b, DTYPE_F64, false, shape, 2));
  FILE *f = fopen(path, "wb");
  CHECK(f != NULL && fwrite(b.data, 1, b.length, f) == b.length && fclose(f) == 0);
  CHECK(truncate(path, (off_t)(b.length + rows * items * 8)) == 0);
  buffer_free(&b);
  return path;
}

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
      stow_batches_info info;
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

/* A control group of our own, version 1 or 2; false where none can be made. */
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

/* The caller reads what it finds cached, and no reader takes its turn. */
TEST(on_one_core_every_row_comes_once_too)
{
  static int64_t order[40000];
  static uint8_t seen[40000];
  cpu_set_t one, all;
  CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
  CPU_ZERO(&one);
  for (int i = 0; CPU_COUNT(&one) == 0; i++)
    if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
  CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
  const char *path = write_rows("rows.npy", 40000, 25, DTYPE_I64);
  for (int way = 0; way < 12; way++) {
    stow_array_options f = file_of(path);
    stow_batches_options o = plain(&f, 1);
    o.batch_rows = way % 3 == 0 ? 1 : way % 3 == 1 ? 64 : 5000;
    o.shuffle = way / 3 % 2 == 1, o.memory_bytes = way < 6 ? 6 * MIB : 64 * MIB;
    stow_batches *b;
    CHECK_OK(stow_batches_open(&b, &o));
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
      int fd = open(path, O_RDONLY);
      CHECK(fd >= 0 && (epoch == 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0));
      CHECK(close(fd) == 0);
      memset(seen, 0, sizeof seen);
      CHECK_OK(stow_batches_set_epoch(b, epoch));
      count_rows(seen, order, drain(b, order, 40000, UINT64_MAX), 40000);
      for (int i = 0; i < 40000; i++) CHECK(seen[i] == 1);
    }
    stow_batches_close(b);
  }
}

/* Moves this process into the group. */
static void enter_group(const char *folder) {
  char procs[300];
  snprintf(procs, sizeof procs, "%s/cgroup.procs", folder);
  FILE *f = fopen(procs, "w");
  if (f == NULL || fprintf(f, "%ld", (long)getpid()) < 0 || fclose(f) != 0) _exit(3);
}

/* Batches that begin at multiples of 64 bytes of the file are read straight into their buffers,
 * others by way of the reader's own: 1000 rows of 800 bytes always do, 333 every other time, and
 * 101 are too few. */
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
      stow_batches_info info;
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

/* Resident memory and page cache together: what a container is charged with. The group would allow
 * 256 MiB, the file has 1 GiB, and the budget is what is used. */
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
      stow_batches_info info;
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

/* ---- what goes wrong ---- */

TEST(a_file_cut_while_it_is_read_is_told_and_one_that_grew_at_the_end)
{
  const char *path = write_rows("rows.npy", 40000, 100, DTYPE_I64); /* 32 MB, read 4 MB ahead */
  stow_array_options f = file_of(path);
  stow_batches_options o = plain(&f, 1);
  o.batch_rows = 1000, o.memory_bytes = 8 * MIB, o.readers = 1;
  stow_batches *b;
  void *data;
  uint64_t rows = 1;
  CHECK_OK(stow_batches_open(&b, &o));
  CHECK_OK(stow_batches_next(b, &data, &rows));
  CHECK_OK(stow_batches_release(data));
  CHECK(truncate(path, 16 * (off_t)MIB) == 0);
  stow_status status = STOW_OK;
  int batches = 1;
  while ((status = stow_batches_next(b, &data, &rows)) == STOW_OK && rows > 0) {
    CHECK_OK(stow_batches_release(data));
    batches++;
  }
  CHECK(status == STOW_ERR_IO && batches >= 20 && batches < 40);
  CHECK_MESSAGE("cut while it was read");
  CHECK_STATUS(stow_batches_next(b, &data, &rows), STOW_ERR_IO); /* and again */
  stow_batches_close(b);
  path = write_rows("grows.npy", 1000, 100, DTYPE_I64);
  f = file_of(path);
  o = plain(&f, 1), o.batch_rows = 100;
  CHECK_OK(stow_batches_open(&b, &o));
  FILE *more = fopen(path, "ab");
  CHECK(more != NULL && fputs("more", more) >= 0 && fclose(more) == 0);
  while ((status = stow_batches_next(b, &data, &rows)) == STOW_OK && rows > 0)
    CHECK_OK(stow_batches_release(data));
  CHECK(status == STOW_ERR_IO);
  CHECK_MESSAGE("wait for its writer");
  stow_batches_close(b);
}

typedef struct flaky {
  const char *bytes;
  uint64_t length;
  pthread_mutex_t guard;
  int reads, fail_at; /* the nth read fails, once */
} flaky;

static int read_flaky(void *user, uint64_t offset, void *to, uint64_t count) {
  flaky *f = user;
  pthread_mutex_lock(&f->guard);
  bool fail = f->reads++ == f->fail_at;
  pthread_mutex_unlock(&f->guard);
  if (fail) return STOW_ERR_IO;
  if (offset + count > f->length) return -99;
  memcpy(to, f->bytes + offset, count);
  return 0;
}

TEST(every_read_that_fails_once_is_told_and_then_tried_again)
{
  harness_deadline(120);
  enum { ROWS = 4000 };
  buffer file = BUFFER_INIT;
  uint64_t shape[2] = {ROWS, 250};
  CHECK_OK(npy_write_header(&file, DTYPE_I64, false, shape, 2));
  for (int64_t i = 0; i < ROWS; i++)
    for (int64_t k = 0; k < 250; k++) buffer_append(&file, &(int64_t){i + k}, 8);
  static int64_t order[ROWS];
  static uint8_t seen[ROWS];
  int told = 0;
  for (int way = 0; way < 4; way++)
    for (int fail_at = 0, reads = 1 << 20; fail_at < reads; fail_at += 1 + fail_at / 8) {
      flaky broken = {.bytes = file.data, .length = file.length, .fail_at = fail_at};
      pthread_mutex_init(&broken.guard, NULL);
      stow_array_options f = file_of("flaky");
      f.read = read_flaky, f.read_user = &broken, f.read_bytes = file.length;
      stow_batches_options o = plain(&f, 1);
      o.batch_rows = 50, o.shuffle = way & 1, o.readers = way & 2 ? 3 : 1;
      stow_batches *b;
      stow_status status = stow_batches_open(&b, &o);
      if (status != STOW_OK) {
        CHECK(status == STOW_ERR_IO);
        CHECK_MESSAGE("flaky: its reader failed");
        told++;
        continue;
      }
      uint64_t total = 0, rows;
      int errors = 0;
      memset(seen, 0, sizeof seen);
      for (;;) {
        void *data;
        status = stow_batches_next(b, &data, &rows);
        if (status == STOW_OK && rows == 0) break;
        if (status != STOW_OK) {
          CHECK(status == STOW_ERR_IO && errors++ == 0);
          CHECK_MESSAGE("flaky: its reader failed");
          continue;
        }
        for (uint64_t i = 0; i < rows; i++) order[total++] = ((const int64_t *)data)[i * 250];
        CHECK_OK(stow_batches_release(data));
      }
      CHECK_U64(total, ROWS);
      count_rows(seen, order, total, ROWS);
      told += errors;
      reads = broken.reads;
      stow_batches_close(b);
    }
  harness_note("%d failures told", told);
  buffer_free(&file);
}

/* ---- other files ---- */

TEST(members_of_an_npz_deflated_ones_too_are_shuffled)
{
  enum { ROWS = 2000 };
  buffer npy = BUFFER_INIT, file = BUFFER_INIT;
  uint64_t shape[2] = {ROWS, 500}; /* 8 MB: more than a window */
  CHECK_OK(npy_write_header(&npy, DTYPE_I64, false, shape, 2));
  for (int64_t i = 0; i < ROWS; i++)
    for (int64_t k = 0; k < 500; k++) buffer_append(&npy, &(int64_t){i + k}, 8);
  member_build m[] = {
      {.name = "stored.npy", .bytes = npy.data, .count = npy.length},
      {.name = "deflated.npy", .bytes = npy.data, .count = npy.length, .deflate = true}};
  build_zip(&file, m, 2);
  char path[300], member[400];
  snprintf(path, sizeof path, "%s/two.npz", harness_folder());
  setenv("TMPDIR", harness_folder(), 1);
  FILE *out = fopen(path, "wb");
  CHECK(out != NULL && fwrite(file.data, 1, file.length, out) == file.length && fclose(out) == 0);
  static int64_t order[ROWS];
  static uint8_t seen[ROWS];
  for (int way = 0; way < 4; way++) {
    snprintf(member, sizeof member, "%s:%s", path, way & 1 ? "deflated" : "stored");
    stow_array_options f = file_of(member);
    stow_batches_options o = plain(&f, 1);
    o.batch_rows = 30, o.shuffle = way & 2, o.readers = 2;
    stow_batches *b;
    stow_batches_info info;
    CHECK_OK(stow_batches_open(&b, &o));
    CHECK_OK(stow_batches_get_info(b, &info));
    CHECK(way != 1 || info.readers == 1);
    memset(seen, 0, sizeof seen);
    CHECK_U64(drain(b, order, ROWS, UINT64_MAX), ROWS);
    count_rows(seen, order, ROWS, ROWS);
    CHECK((order[0] == 0 && order[1] == 1) == !(way & 2));
    stow_batches_close(b);
  }
  setenv("TMPDIR", "/nonexistent", 1);
  stow_array_options f = file_of(member);
  stow_batches_options o = plain(&f, 1);
  o.batch_rows = 30, o.shuffle = true;
  stow_batches *b;
  CHECK_STATUS(stow_batches_open(&b, &o), STOW_ERR_IO);
  CHECK_MESSAGE("TMPDIR");
  buffer_free(&npy), buffer_free(&file);
}

TEST(raw_bytes_and_tensors_are_batched)
{
  char path[300];
  snprintf(path, sizeof path, "%s/t.safetensors", harness_folder());
  static const char head[] = "{\"a\":{\"dtype\":\"BF16\",\"shape\":[4,2],\"data_offsets\":[0,16]},"
                             "\"b\":{\"dtype\":\"I64\",\"shape\":[4],\"data_offsets\":[16,48]}}   ";
  uint64_t length = sizeof head - 1;
  static const uint16_t halves[8] = {0x3f80, 0x4000, 0x4040, 0x4080, 0xbf80, 0, 0x3f00, 0x7f80};
  static const int64_t wholes[4] = {0, 1, 2, 3};
  FILE *f = fopen(path, "wb");
  CHECK(f != NULL && fwrite(&length, 8, 1, f) == 1 && fwrite(head, 1, length, f) == length);
  CHECK(fwrite(halves, 2, 8, f) == 8 && fwrite(wholes, 8, 4, f) == 4 && fclose(f) == 0);
  char a[320], b[320];
  snprintf(a, sizeof a, "%s:a", path), snprintf(b, sizeof b, "%s:b", path);
  stow_array_options files[2] = {file_of(a), file_of(b)};
  files[0].as_dtype = "f32";
  stow_batches_options o = plain(files, 2);
  o.batch_rows = 4;
  stow_batches *batches;
  void *data[2];
  uint64_t rows;
  CHECK_OK(stow_batches_open(&batches, &o));
  CHECK_OK(stow_batches_next(batches, data, &rows));
  CHECK(rows == 4 && ((float *)data[0])[3] == 4.0f && ((float *)data[0])[4] == -1.0f);
  CHECK(((int64_t *)data[1])[3] == 3);
  CHECK_OK(stow_batches_release(data[0]));
  CHECK_OK(stow_batches_release(data[1]));
  stow_batches_close(batches);
  files[0] = file_of(path);
  CHECK_STATUS(stow_batches_open(&batches, &o), STOW_ERR_INVALID);
  CHECK_MESSAGE("a, b");
  uint64_t shape[2] = {2, 3};
  snprintf(path, sizeof path, "%s/raw.bin", harness_folder());
  f = fopen(path, "wb");
  CHECK(f != NULL && fwrite("\1\2\3\4\5\6", 1, 6, f) == 6 && fclose(f) == 0);
  files[0] = file_of(path), files[0].raw_dtype = "uint8";
  files[0].raw_shape = shape, files[0].raw_dims = 2;
  o.file_count = 1;
  CHECK_OK(stow_batches_open(&batches, &o));
  CHECK_OK(stow_batches_next(batches, data, &rows));
  CHECK(rows == 2 && memcmp(data[0], "\1\2\3\4\5\6", 6) == 0);
  CHECK_OK(stow_batches_release(data[0]));
  stow_batches_close(batches);
}

TEST(rows_without_items_and_many_files_work)
{
  uint64_t shape[2] = {5, 0};
  buffer b = BUFFER_INIT;
  CHECK_OK(npy_write_header(&b, DTYPE_F32, false, shape, 2));
  char path[300];
  snprintf(path, sizeof path, "%s/none.npy", harness_folder());
  FILE *f = fopen(path, "wb");
  CHECK(f != NULL && fwrite(b.data, 1, b.length, f) == b.length && fclose(f) == 0);
  buffer_free(&b);
  stow_array_options files[16];
  for (int i = 0; i < 16; i++) files[i] = file_of(path);
  for (int shuffle = 0; shuffle < 2; shuffle++) {
    stow_batches_options o = plain(files, 16);
    o.batch_rows = 2, o.shuffle = shuffle;
    stow_batches *batches;
    void *data[16];
    uint64_t rows, total = 0;
    CHECK_OK(stow_batches_open(&batches, &o));
    for (;;) {
      CHECK_OK(stow_batches_next(batches, data, &rows));
      if (rows == 0) break;
      total += rows;
      for (int i = 0; i < 16; i++) CHECK_OK(stow_batches_release(data[i]));
    }
    CHECK_U64(total, 5);
    stow_batches_close(batches);
  }
}

/* A file that answers everyone but the first slowly, so that they are still opening it later. */
typedef struct slow_file {
  int fd;
  _Atomic int opened;
} slow_file;

static int read_slowly(void *user, uint64_t offset, void *to, uint64_t count) {
  slow_file *f = user;
  if (offset == 0 && atomic_fetch_add(&f->opened, 1) > 0)
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  return pread(f->fd, to, (size_t)count, (off_t)offset) == (ssize_t)count ? 0 : STOW_ERR_IO;
}

TEST(closing_waits_for_readers_that_are_still_opening_their_files)
{
  const char *path = write_rows("early.npy", 64, 4, DTYPE_I64);
  struct stat is;
  CHECK(stat(path, &is) == 0);
  for (int turn = 0; turn < 5; turn++) {
    slow_file slow = {.fd = open(path, O_RDONLY | O_CLOEXEC)};
    CHECK(slow.fd >= 0);
    stow_array_options file = file_of("early.npy");
    file.read = read_slowly, file.read_user = &slow, file.read_bytes = (uint64_t)is.st_size;
    stow_batches_options o = plain(&file, 1);
    o.batch_rows = 4, o.readers = 4;
    stow_batches *b;
    CHECK_OK(stow_batches_open(&b, &o));
    void *data[STOW_BATCHES_FILES_MAX];
    uint64_t rows;
    CHECK_OK(stow_batches_next(b, data, &rows));
    CHECK(rows == 4);
    stow_batches_close(b);
    CHECK_OK(stow_batches_release(data[0]));
    CHECK(close(slow.fd) == 0);
    CHECK(atomic_load(&slow.opened) > 1); /* there was somebody to wait for */
  }
}

TEST(a_child_cannot_use_its_parents_batches)
{
  stow_array_options f = file_of(write_rows("rows.npy", 1000, 100, DTYPE_I64));
  stow_batches_options o = plain(&f, 1);
  stow_batches *b;
  void *data;
  uint64_t rows;
  CHECK_OK(stow_batches_open(&b, &o));
  CHECK_OK(stow_batches_next(b, &data, &rows));
  CHECK_OK(stow_batches_release(data));
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    bool refused = stow_batches_next(b, &data, &rows) == STOW_ERR_STATE &&
                   strstr(stow_status_message(), "open them anew") != NULL;
    stow_batches_close(b);
    _exit(refused ? 0 : 1);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  stow_batches_close(b);
}

/* ---- slices ---- */

TEST(slices_read_what_is_asked_of_both_orders)
{
  enum { ROWS = 50, ITEMS = 300 };
  for (int fortran = 0; fortran < 2; fortran++) {
    buffer b = BUFFER_INIT;
    uint64_t shape[2] = {ROWS, ITEMS};
    CHECK_OK(npy_write_header(&b, DTYPE_I64, fortran, shape, 2));
    for (int64_t i = 0; i < ROWS * ITEMS; i++) {
      int64_t value = fortran ? i % ROWS * ITEMS + i / ROWS : i;
      buffer_append(&b, &value, 8);
    }
    flaky broken = {.bytes = b.data, .length = b.length, .fail_at = -1};
    pthread_mutex_init(&broken.guard, NULL);
    for (int cast = 0; cast < 2; cast++) {
      stow_array_options o = file_of("memory");
      o.read = read_flaky, o.read_user = &broken, o.read_bytes = b.length;
      o.as_dtype = cast ? "int32" : NULL;
      stow_array *a;
      CHECK_OK(stow_array_open(&a, &o));
      for (uint64_t first = 0; first < ROWS; first += 13)
        for (uint64_t step = 1; step < 20; step += 6)
          for (uint64_t item = 0; item < ITEMS; item += 99) {
            uint64_t count = (ROWS - first - 1) / step + 1, items = ITEMS - item < 7 ? 1 : 7;
            static int64_t out[ROWS * ITEMS];
            CHECK_OK(stow_array_read(a, first, count, step, item, items, out));
            for (uint64_t i = 0; i < count; i++)
              for (uint64_t k = 0; k < items; k++) {
                uint64_t at = i * items + k;
                int64_t value = cast ? ((int32_t *)(void *)out)[at] : out[at];
                CHECK_U64(value, (first + i * step) * ITEMS + item + k);
              }
          }
      int64_t none;
      CHECK_STATUS(stow_array_read(a, 49, 2, 1, 0, 0, &none), STOW_ERR_INVALID);
      CHECK_MESSAGE("it has 50");
      CHECK_STATUS(stow_array_read(a, 0, 1, 1, 299, 2, &none), STOW_ERR_INVALID);
      CHECK_STATUS(stow_array_read(a, 0, 1, 0, 0, 0, &none), STOW_ERR_INVALID);
      CHECK_STATUS(stow_array_read(a, 0, UINT64_MAX, UINT64_MAX, 0, 0, &none), STOW_ERR_INVALID);
      CHECK_OK(stow_array_read(a, 50, 0, 1, 0, 0, &none));
      stow_array_close(a);
    }
    buffer_free(&b);
  }
}

TEST(a_column_of_wide_rows_reads_little)
{
  const char *path = write_hole(2000, 8192); /* 64 KiB a row, 128 MB */
  stow_array_options o = file_of(path);
  stow_array *a;
  static double column[2000];
  CHECK_OK(stow_array_open(&a, &o));
  char line[128];
  uint64_t before = 0, after = 0;
  for (int i = 0; i < 2; i++) {
    FILE *io = fopen("/proc/self/io", "r");
    if (io == NULL) SKIP("no /proc/self/io");
    while (fgets(line, sizeof line, io) != NULL)
      if (strncmp(line, "rchar:", 6) == 0)
        *(i == 0 ? &before : &after) = strtoull(line + 6, NULL, 10);
    fclose(io);
    if (i == 0) CHECK_OK(stow_array_read(a, 0, 2000, 1, 17, 1, column));
  }
  CHECK(after - before < 100000);
  stow_array_close(a);
}

TEST_MAIN
