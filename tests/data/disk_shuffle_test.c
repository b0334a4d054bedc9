/* The shuffle on disk: every row once, the same however the files are read, and stopped on request.
 */
#include "data/disk_shuffle.h"

#include "harness.h"

TEST(direct_reads_give_the_same_rows_as_reads_through_the_cache)
{
  enum { ROWS = 60000, ITEMS = 30 };
  static int64_t got[2][ROWS * ITEMS];
  char path[256];
  snprintf(path, sizeof path, "%s/rows", harness_folder());
  FILE *out = fopen(path, "wb");
  CHECK(out != NULL);
  for (int64_t i = 0; i < ROWS * ITEMS; i++) {
    int64_t row = i / ITEMS;
    CHECK(fwrite(&row, sizeof row, 1, out) == 1);
  }
  CHECK(fclose(out) == 0);
  const uint64_t shape[2] = {ROWS, ITEMS};
  stow_array_options f = STOW_ARRAY_OPTIONS_INIT;
  f.path = path, f.raw_dtype = "int64", f.raw_shape = shape, f.raw_dims = 2;
  origin from;
  CHECK_OK(origin_open(&from, &f));
  for (int direct = 0; direct < 2; direct++) {
    rows first, copy;
    disk_shuffle *d;
    CHECK_OK(rows_open(&first, &from));
    disk_shuffle_options o = {.parts = 1,
                              .origins = &from,
                              .folder = harness_folder(),
                              .group_rows = 7001,
                              .block_rows = 800,
                              .seed = 4,
                              .bounce_bytes = direct ? 1 << 20 : 0};
    CHECK_OK(disk_shuffle_open(&d, &o, &first));
    disk_shuffle_cancel(d, true);
    CHECK_STATUS(disk_shuffle_build(d), STOW_ERR_INTERRUPTED);
    disk_shuffle_cancel(d, false);
    CHECK_OK(disk_shuffle_build(d));
    CHECK_OK(disk_shuffle_build(d)); /* once */
    CHECK_OK(rows_open(&copy, disk_shuffle_origin(d, 0)));
    CHECK_U64(copy.count, ROWS);
    CHECK_OK(rows_read(&copy, 0, ROWS, got[direct]));
    rows_close(&copy);
    disk_shuffle_close(d);
  }
  static uint8_t seen[ROWS];
  for (int i = 0; i < ROWS; i++) CHECK(seen[got[0][i * ITEMS]]++ == 0);
  CHECK(memcmp(got[0], got[1], sizeof got[0]) == 0);
  origin_close(&from);
}

TEST_MAIN
