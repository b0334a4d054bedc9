/* The shuffle on disk: every row once, the same however the files are read, and stopped on request.
 */
#include "data/disk_shuffle.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "harness.h"

enum { ROWS = 30000, ITEMS_MOST = 200 };
static int64_t got[3][ROWS * ITEMS_MOST];

/* Writes rows of `items` equal values: the number of the row. */
static origin *rows_of(const char *name, uint64_t items) {
  static char path[256];
  static origin from;
  snprintf(path, sizeof path, "%s/%s", harness_folder(), name);
  FILE *out = fopen(path, "wb");
  CHECK(out != NULL);
  for (uint64_t i = 0; i < ROWS * items; i++) {
    int64_t row = (int64_t)(i / items);
    CHECK(fwrite(&row, sizeof row, 1, out) == 1);
  }
  CHECK(fclose(out) == 0);
  const uint64_t shape[2] = {ROWS, items};
  stow_array_options f = STOW_ARRAY_OPTIONS_INIT;
  f.path = path, f.raw_dtype = "int64", f.raw_shape = shape, f.raw_dims = 2;
  CHECK_OK(origin_open(&from, &f));
  return &from;
}

static disk_shuffle *shuffle_of(const origin *from, bool direct) {
  rows first;
  disk_shuffle *d;
  CHECK_OK(rows_open(&first, from));
  disk_shuffle_options o = {.parts = 1,
                            .origins = from,
                            .folder = harness_folder(),
                            .group_rows = 7001,
                            .block_rows = 800,
                            .seed = 4,
                            .bounce_bytes = direct ? 1 << 20 : 0};
  CHECK_OK(disk_shuffle_open(&d, &o, &first));
  return d;
}

/* Large rows are mapped, unless the process has a limit on its addresses. */
static void read_each_way(uint64_t items) {
  enum { CACHED, DIRECT, LIMITED, WAYS };
  origin *from = rows_of("rows", items);
  struct rlimit before, limit = {.rlim_cur = UINT64_C(1) << 46};
  CHECK(getrlimit(RLIMIT_AS, &before) == 0);
  limit.rlim_max = before.rlim_max;
  for (int way = 0; way < WAYS; way++) {
    rows copy;
    CHECK(setrlimit(RLIMIT_AS, way == LIMITED ? &limit : &before) == 0);
    disk_shuffle *d = shuffle_of(from, way == DIRECT);
    disk_shuffle_cancel(d, true);
    CHECK_STATUS(disk_shuffle_build(d), STOW_ERR_INTERRUPTED);
    disk_shuffle_cancel(d, false);
    CHECK_OK(disk_shuffle_build(d));
    CHECK_OK(disk_shuffle_build(d)); /* once */
    CHECK_OK(rows_open(&copy, disk_shuffle_origin(d, 0)));
    CHECK_U64(copy.count, ROWS);
    CHECK_OK(rows_read(&copy, 0, ROWS, got[way]));
    rows_close(&copy);
    disk_shuffle_close(d);
  }
  CHECK(setrlimit(RLIMIT_AS, &before) == 0);
  static uint8_t seen[ROWS];
  memset(seen, 0, sizeof seen);
  for (uint64_t i = 0; i < ROWS; i++) CHECK(seen[got[0][i * items]]++ == 0);
  for (int way = 1; way < WAYS; way++)
    CHECK(memcmp(got[0], got[way], ROWS * items * sizeof got[0][0]) == 0);
  origin_close(from);
}

TEST(small_rows_are_the_same_however_they_are_read)
{ read_each_way(30); }

TEST(large_rows_are_the_same_however_they_are_read)
{ read_each_way(ITEMS_MOST); }

TEST(a_file_that_is_truncated_is_an_error_of_the_build)
{
  origin *from = rows_of("shorter", ITEMS_MOST);
  disk_shuffle *d = shuffle_of(from, false);
  char path[256];
  snprintf(path, sizeof path, "%s/shorter", harness_folder());
  CHECK(truncate(path, ROWS * ITEMS_MOST * 4) == 0);
  /* One thread may map rows that are gone, before or after another finds the file too short. */
  stow_status status = disk_shuffle_build(d);
  CHECK(status == STOW_ERR_IO || status == STOW_ERR_FORMAT);
  CHECK(strstr(stow_status_message(), "shorter: ") != NULL);
  disk_shuffle_close(d);
  origin_close(from);
}

TEST_MAIN
