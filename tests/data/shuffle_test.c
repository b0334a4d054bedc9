/* The order of batches: determined by seed and epoch, and as far from the file's order as a full
 * shuffle. */
#include "data/shuffle.h"

#include <stdlib.h>

#include "rows.h"

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

TEST_MAIN
