/* Slices of arrays: the requested items in both orders, without reading much more. */
#include <stdlib.h>

#include "numbered_rows.h"

TEST(slices_read_the_requested_items_in_both_orders)
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
