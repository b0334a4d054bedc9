/* Batches: every row exactly once in every arrangement, files read together, and every failure
 * reported with its position. Order, shares, states and memory: shuffle_test.c, shard_test.c,
 * state_test.c, budget_test.c. */
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "npz_build.h"
#include "numbered_rows.h"

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
    for (size_t s = 0; s < 5; s += harness_rounds(1, 2))
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
              stow_batches_info info = STOW_BATCHES_INFO_INIT;
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

/* The caller reads cached data itself, and no reader competes with it. */
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

/* ---- files read together ---- */

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
    stow_array_info info = STOW_ARRAY_INFO_INIT;
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
  stow_array_options large = file_of(write_rows("large.npy", 400000, 2, DTYPE_F64));
  o = plain(&large, 1), o.batch_rows = 4 * MIB;
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

/* ---- failures ---- */

TEST(a_file_truncated_while_read_is_reported_at_once_and_one_that_grew_at_the_end)
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
  CHECK_MESSAGE("truncated while being read");
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

TEST(a_batch_of_more_rows_than_the_file_is_the_file)
{
  stow_array_options f = file_of(write_rows("few.npy", 10, 2, DTYPE_F64));
  stow_batches *b;
  void *data;
  uint64_t rows = 0;
  static const uint64_t sizes[] = {11, UINT64_C(1) << 62};
  for (size_t i = 0; i < 2; i++) {
    stow_batches_options o = plain(&f, 1);
    o.batch_rows = sizes[i];
    CHECK_OK(stow_batches_open(&b, &o));
    CHECK_OK(stow_batches_next(b, &data, &rows));
    CHECK_U64(rows, 10);
    CHECK_OK(stow_batches_release(data));
    CHECK_OK(stow_batches_next(b, &data, &rows));
    CHECK_U64(rows, 0);
    stow_batches_close(b);
  }
}

TEST(a_read_behind_the_cut_names_the_byte_the_file_ends_at)
{
  const char *path = write_rows("cut.npy", 1000, 100, DTYPE_I64);
  stow_array_options f = file_of(path);
  stow_array *a;
  int64_t row[100];
  CHECK_OK(stow_array_open(&a, &f));
  CHECK(truncate(path, 1000) == 0);
  CHECK_STATUS(stow_array_read(a, 900, 1, 1, 0, 0, row), STOW_ERR_IO);
  CHECK_MESSAGE("ends at byte 1000, but had 800128 bytes");
  stow_array_close(a);
}

TEST(every_read_that_fails_once_is_reported_and_then_retried)
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
  int reported = 0;
  for (int way = 0; way < 4; way++)
    for (int fail_at = 0, reads = 1 << 20; fail_at < reads;
         fail_at += 1 + fail_at / (int)harness_rounds(8, 2)) {
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
        reported++;
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
      reported += errors;
      reads = broken.reads;
      stow_batches_close(b);
    }
  harness_note("%d failures reported", reported);
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
    stow_batches_info info = STOW_BATCHES_INFO_INIT;
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
    CHECK(atomic_load(&slow.opened) > 1); /* somebody had to be waited for */
  }
}

TEST(a_child_cannot_use_its_parents_batches)
{
  void *data;
  uint64_t rows;
  stow_batches *b = taken_from(&data);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    bool refused = stow_batches_next(b, &data, &rows) == STOW_ERR_STATE &&
                   strstr(stow_status_message(), "open them again") != NULL;
    stow_batches_close(b);
    _exit(refused ? 0 : 1);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  stow_batches_close(b);
}

TEST_MAIN
