/* The state of batches: restoring it at any point yields exactly the remaining rows, and only if it
 * fits. */
#include "rows.h"

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
      stow_batches_info info = STOW_BATCHES_INFO_INIT;
      CHECK_OK(stow_batches_open(&b, &o));
      CHECK_OK(stow_batches_get_info(b, &info));
      CHECK(!shuffle || info.window_rows < info.rank_rows);
      CHECK_OK(stow_batches_set_epoch(b, 2));
      uint64_t total = drain(b, whole, ROWS, UINT64_MAX);
      o.seed = 99, o.memory_bytes = 16 * MIB; /* a state has its own seed, blocks and windows */
      CHECK_OK(stow_batches_open(&again, &o));
      for (uint64_t point = 0; point <= info.batch_count; point += 1 + point / 20) {
        stow_batches_state state = STOW_BATCHES_STATE_INIT;
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
  stow_batches_state state = STOW_BATCHES_STATE_INIT, wrong = STOW_BATCHES_STATE_INIT;
  CHECK_OK(stow_batches_open(&b, &o));
  CHECK_OK(stow_batches_get_state(b, &state));
  wrong = state, wrong.rows = 2999;
  CHECK_STATUS(stow_batches_set_state(b, &wrong), STOW_ERR_INVALID);
  CHECK_MESSAGE("rows 2999, these batches have 3000");
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

TEST_MAIN
