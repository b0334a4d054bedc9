/* The state of batches: restoring it at any point yields exactly the remaining rows, and only if it
 * fits. */
#include <stdlib.h>

#include "numbered_rows.h"

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

/* ---- another world ---- */

static uint64_t drawn; /* a small generator, seeded in each test */

static uint64_t draw(uint64_t least, uint64_t most) {
  drawn = drawn * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return least + (drawn >> 33) % (most - least + 1);
}

/* Every rank of a world takes `most` batches after loading `state` (NULL: from the start of epoch
 * 3). Marks the rows in `seen`; returns the state of one of the ranks, drawn. */
static stow_batches_state run_world(const stow_batches_options *options, uint32_t world,
                                    uint64_t batch_rows, const stow_batches_state *state,
                                    uint64_t most, uint8_t *seen) {
  static int64_t order[20000];
  stow_batches_state kept = STOW_BATCHES_STATE_INIT;
  uint32_t keeper = (uint32_t)draw(0, world - 1);
  uint64_t furthest = 0;
  for (uint32_t rank = 0; rank < world; rank++) {
    stow_batches_options o = *options;
    o.world = world, o.rank = rank, o.batch_rows = batch_rows;
    stow_batches *b;
    stow_batches_state now = STOW_BATCHES_STATE_INIT;
    CHECK_OK(stow_batches_open(&b, &o));
    if (state != NULL)
      CHECK_OK(stow_batches_set_state(b, state));
    else
      CHECK_OK(stow_batches_set_epoch(b, 3));
    uint64_t taken = drain(b, order, 20000, most);
    for (uint64_t i = 0; i < taken; i++) CHECK(seen[order[i]]++ == 0);
    CHECK_OK(stow_batches_get_state(b, &now));
    CHECK_U64(now.epoch, 3);
    /* A rank whose share is a row smaller may be at its end one batch earlier. */
    if (now.next_batch > furthest || rank == keeper) furthest = now.next_batch, kept = now;
    stow_batches_close(b);
  }
  return kept;
}

TEST(a_state_of_another_world_gives_each_remaining_row_once)
{
  harness_deadline(300);
  enum { ROWS = 8000, MOST = 20000 };
  static uint8_t seen[MOST];
  drawn = 20;
  const char *small = write_rows("small.npy", 613, 3, DTYPE_I64);    /* fits in one window */
  const char *wide = write_rows("wide.npy", ROWS, 200, DTYPE_I64);   /* 12.8 MB: several windows */
  const char *large = write_rows("large.npy", 300, 8192, DTYPE_I64); /* rows one by one */
  const char *paths[] = {small, wide, large};
  const uint64_t rows[] = {613, ROWS, 300};
  int steps = 0;
  for (int round = 0; round < 36; round++) {
    int which = round % 3;
    stow_array_options f = file_of(paths[which]);
    stow_batches_options o = plain(&f, 1);
    o.shuffle = (uint32_t)draw(0, 2), o.seed = draw(0, 1000), o.memory_bytes = 6 * MIB;
    o.scratch = harness_folder();
    memset(seen, 0, sizeof seen);
    stow_batches_state state;
    uint64_t given = 0;
    int worlds = (int)draw(2, 4); /* the last one takes everything */
    for (int i = 0; i < worlds; i++) {
      uint32_t world = (uint32_t)draw(1, 6);
      uint64_t batch = draw(1, which == 2 ? 7 : 61), left = rows[which] - given;
      if (i > 0 && world == state.world) batch = state.batch_rows; /* else it is refused */
      uint64_t most = i == worlds - 1 ? UINT64_MAX : draw(0, left / world / batch + 1);
      bool same = i > 0 && world == state.world;
      if (same && world > 1)
        world = world - 1;
      else if (same)
        world = 2;
      state = run_world(&o, world, batch, i > 0 ? &state : NULL, most, seen);
      given = 0;
      for (uint64_t r = 0; r < rows[which]; r++) given += seen[r];
      steps++;
    }
    CHECK_U64(given, rows[which]);
  }
  harness_note("%d worlds", steps);
}

TEST(a_world_that_continued_another_resumes_exactly_and_begins_its_own_epoch)
{
  enum { ROWS = 3000 };
  static int64_t whole[ROWS], part[ROWS], fresh[ROWS];
  stow_array_options f = file_of(write_rows("rows.npy", ROWS, 400, DTYPE_I64));
  for (uint32_t shuffle = 0; shuffle < 3; shuffle++) {
    stow_batches_options o = plain(&f, 1);
    o.shuffle = shuffle, o.batch_rows = 30, o.world = 3, o.scratch = harness_folder();
    stow_batches *b, *again;
    stow_batches_state first = STOW_BATCHES_STATE_INIT, second = STOW_BATCHES_STATE_INIT;
    CHECK_OK(stow_batches_open(&b, &o));
    drain(b, whole, ROWS, 13);
    CHECK_OK(stow_batches_get_state(b, &first));
    stow_batches_close(b);

    o.world = 2, o.rank = 1, o.batch_rows = 41;
    CHECK_OK(stow_batches_open(&b, &o));
    CHECK_OK(stow_batches_set_state(b, &first));
    uint64_t total = drain(b, whole, ROWS, UINT64_MAX);
    CHECK_U64(total, (ROWS - 3 * 13 * 30) / 2);
    CHECK_OK(stow_batches_set_state(b, &first));
    drain(b, part, ROWS, 7);
    CHECK_OK(stow_batches_get_state(b, &second));
    CHECK_U64(second.earlier_count, 1);
    CHECK_U64(second.earlier[0].world, 3);
    CHECK_U64(second.next_batch, 7);
    CHECK_OK(stow_batches_open(&again, &o));
    CHECK_OK(stow_batches_set_state(again, &second));
    CHECK_U64(drain(again, part, ROWS, UINT64_MAX), total - 7 * 41);
    CHECK(memcmp(part, whole + 7 * 41, (total - 7 * 41) * sizeof *part) == 0);
    stow_batches_close(again);

    CHECK_OK(
        stow_batches_set_epoch(b, 1)); /* as batches of this world that never did anything else */
    CHECK_U64(drain(b, part, ROWS, UINT64_MAX), ROWS / 2);
    CHECK_OK(stow_batches_open(&again, &o));
    CHECK_OK(stow_batches_set_epoch(again, 1));
    CHECK_U64(drain(again, fresh, ROWS, UINT64_MAX), ROWS / 2);
    CHECK(memcmp(part, fresh, ROWS / 2 * sizeof *part) == 0);
    stow_batches_close(again);
    stow_batches_close(b);
  }
}

TEST(a_damaged_state_of_another_world_is_refused)
{
  stow_array_options f = file_of(write_rows("rows.npy", 3000, 400, DTYPE_I64));
  stow_batches_options o = plain(&f, 1);
  o.batch_rows = 10, o.shuffle = true, o.world = 2;
  stow_batches *b;
  stow_batches_state state = STOW_BATCHES_STATE_INIT, wrong = STOW_BATCHES_STATE_INIT;
  CHECK_OK(stow_batches_open(&b, &o));
  CHECK_OK(stow_batches_get_state(b, &state));
  wrong = state, wrong.world = 0;
  CHECK_STATUS(stow_batches_set_state(b, &wrong), STOW_ERR_INVALID);
  wrong = state, wrong.world = UINT64_MAX;
  CHECK_STATUS(stow_batches_set_state(b, &wrong), STOW_ERR_INVALID);
  wrong = state, wrong.world = 3, wrong.batch_rows = 0;
  CHECK_STATUS(stow_batches_set_state(b, &wrong), STOW_ERR_INVALID);
  wrong = state, wrong.earlier_count = 9;
  CHECK_STATUS(stow_batches_set_state(b, &wrong), STOW_ERR_INVALID);
  wrong = state, wrong.world = 3, wrong.earlier_count = 8;
  CHECK_STATUS(stow_batches_set_state(b, &wrong), STOW_ERR_INVALID);
  wrong = state, wrong.rank = 1; /* of the same world: another rank's rows */
  CHECK_STATUS(stow_batches_set_state(b, &wrong), STOW_ERR_INVALID);
  wrong = state, wrong.deck_rows = 5;
  CHECK_STATUS(stow_batches_set_state(b, &wrong), STOW_ERR_INVALID);
  static int64_t order[3000];
  wrong = state, wrong.world = 3, wrong.next_batch = UINT64_MAX; /* it had read everything */
  CHECK_OK(stow_batches_set_state(b, &wrong));
  CHECK_U64(drain(b, order, 3000, UINT64_MAX), 0);
  CHECK_OK(stow_batches_set_epoch(b, 1));
  CHECK_U64(drain(b, order, 3000, UINT64_MAX), 1500);
  stow_batches_close(b);
}

TEST_MAIN
