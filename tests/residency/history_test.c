/* The history: its forecasts for programs of different shapes. */
#include "base/hash.h"
#include "harness.h"
#include "residency/history.h"

enum { UNITS = 4096 };

static history made(size_t launches) {
  history h;
  CHECK_OK(history_open(&h, launches, 8 * launches));
  CHECK_OK(history_reserve(&h, UNITS));
  return h;
}

/* Adds a launch identified by a number, from which its key and its one unit are derived. */
static void add(history *h, uint32_t number) {
  uint32_t unit = number % UNITS;
  history_add(h, &(history_new){.key = number * UINT64_C(0x9e3779b97f4a7c15) + 1,
                                .function = number + 1,
                                .units = &unit,
                                .count = 1,
                                .time_ns = 1000,
                                .device_ns = 1000});
}

static bool expects(const history *h, uint32_t number) {
  if (h->cursor == HISTORY_NEVER || h->cursor >= h->end) return false;
  return history_entry_at(h, history_at(h, h->cursor)->first)->unit == number % UNITS;
}

/* Plays `rounds` of a sequence. Returns the fraction of launches of the last round that were
 * forecast. */
static double play(history *h, const uint32_t *sequence, size_t count, int rounds) {
  size_t right = 0;
  for (int round = 0; round < rounds; round++) {
    right = 0;
    for (size_t i = 0; i < count; i++) {
      right += expects(h, sequence[i]);
      add(h, sequence[i]);
    }
  }
  return (double)right / (double)count;
}

TEST(a_step_that_repeats_is_forecast_from_the_third_on)
{
  history h = made(4096);
  uint32_t step[500];
  for (uint32_t i = 0; i < 500; i++) step[i] = i % 7 == 3 ? 3 : i; /* some launches recur often */
  play(&h, step, 500, 2);
  CHECK(play(&h, step, 500, 1) == 1.0);
  /* Checks the next use by searching for it. */
  for (uint32_t unit = 0; unit < 500; unit++) {
    uint64_t want = HISTORY_NEVER;
    for (uint64_t at = h.cursor; at < h.end && want == HISTORY_NEVER; at++)
      if (history_entry_at(&h, history_at(&h, at)->first)->unit == unit) want = at;
    CHECK_U64(history_next_use(&h, unit), want);
  }
  CHECK_U64(history_time_to(&h, h.cursor + 10), 10000);
  CHECK_U64(history_next_use(&h, 3000), HISTORY_NEVER);
  history_close(&h);
}

TEST(two_turns_in_alternation_are_forecast)
{
  history h = made(4096);
  uint32_t both[700];
  for (uint32_t i = 0; i < 300; i++) both[i] = i;
  for (uint32_t i = 300; i < 700; i++) both[i] = 1000 + i;
  play(&h, both, 700, 2);
  CHECK(play(&h, both, 700, 1) == 1.0);
  history_close(&h);
}

TEST(tokens_after_a_prompt_are_forecast)
{
  history h = made(16384);
  uint32_t all[300 + 20 * 100];
  for (uint32_t i = 0; i < 300; i++) all[i] = i;
  for (uint32_t i = 300; i < 2300; i++) all[i] = 1000 + (i - 300) % 100;
  play(&h, all, 2300, 1);
  double share = play(&h, all, 2300, 1);
  harness_note("%.3f of the launches", share);
  CHECK(share > 0.97); /* the end of the tokens cannot be forecast */
  history_close(&h);
}

TEST(a_phase_change_is_learned_in_one_round)
{
  history h = made(4096);
  uint32_t one[200], two[300];
  for (uint32_t i = 0; i < 200; i++) one[i] = i;
  for (uint32_t i = 0; i < 300; i++) two[i] = 2000 + i;
  CHECK(play(&h, one, 200, 3) == 1.0);
  play(&h, two, 300, 1);
  CHECK(play(&h, two, 300, 2) == 1.0);
  CHECK(play(&h, one, 200, 1) >= 0.98); /* and back again: it was not forgotten */
  CHECK(play(&h, one, 200, 3) == 1.0);
  history_close(&h);
}

TEST(launches_that_come_or_fail_to_come_at_random_cost_little)
{
  history h = made(8192);
  uint64_t seed = 5;
  size_t right = 0, all = 0;
  for (int round = 0; round < 12; round++)
    for (uint32_t i = 0; i < 500; i++) {
      uint64_t draw = harness_random(&seed);
      if (draw % 100 == 0) add(&h, 3000 + draw / 100 % 1000); /* noise */
      if (draw % 100 == 1) continue;
      all += round > 2;
      right += round > 2 && expects(&h, i);
      add(&h, i);
    }
  harness_note("%zu of %zu", right, all);
  CHECK(right * 100 > all * 94);
  history_close(&h);
}

/* Layers of the same six functions, whose temporary blocks are somewhere else each time: only the
 * weights, one unit for each layer, show where the present is. */
TEST(a_step_whose_temporary_blocks_move_is_followed)
{
  enum { LAYERS = 24, PARTS = 6, TEMPORARY = 300 };
  history h = made(16384);
  uint64_t seed = 3;
  size_t right = 0, all = 0;
  for (int round = 0; round < 12; round++)
    for (uint32_t layer = 0; layer < LAYERS; layer++)
      for (uint32_t part = 0; part < PARTS; part++) {
        uint32_t units[2] = {1000 + (uint32_t)(harness_random(&seed) % TEMPORARY),
                             2000 + (uint32_t)(harness_random(&seed) % TEMPORARY)};
        if (part == 0) units[0] = layer;
        if (part == 0 && round > 3) {
          all++;
          right += expects(&h, layer);
        }
        history_add(&h, &(history_new){.key = hash_u64(units[0], units[1]) ^ part,
                                       .function = part + 1,
                                       .units = units,
                                       .count = 2,
                                       .time_ns = 1000,
                                       .device_ns = 1000});
      }
  harness_note("%zu of %zu", right, all);
  CHECK(right * 100 > all * 95);
  history_close(&h);
}

TEST(what_never_repeats_is_not_forecast_for_long)
{
  history h = made(1024);
  uint64_t seed = 9;
  for (int i = 0; i < 20000; i++) {
    add(&h, (uint32_t)(harness_random(&seed) % 1000000));
    CHECK(h.end - h.base <= 1024 && h.entry_end - h.entry_base <= 8 * 1024);
    CHECK(h.cursor == HISTORY_NEVER || (h.cursor <= h.end));
    history_next_use(&h, (uint32_t)(i % UNITS));
  }
  CHECK(h.hits < 400);
  history_close(&h);
}

/* Launches with many units replace older ones; links never lead outside the log. */
TEST(a_full_log_forgets_the_oldest)
{
  history h;
  CHECK_OK(history_open(&h, 256, 1024));
  CHECK_OK(history_reserve(&h, UNITS));
  uint64_t seed = 1;
  uint32_t units[64];
  for (int i = 0; i < 5000; i++) {
    uint32_t count = (uint32_t)(harness_random(&seed) % 64), first = (uint32_t)(i % 40);
    for (uint32_t k = 0; k < count; k++) units[k] = (first + k) % UNITS;
    history_add(&h, &(history_new){.key = (uint64_t)(i % 40),
                                   .function = (uint64_t)(i % 40),
                                   .units = units,
                                   .count = count,
                                   .time_ns = 1,
                                   .device_ns = 1});
    CHECK(h.entry_end - h.entry_base <= 1024);
    for (uint32_t unit = 0; unit < 100; unit++) {
      uint64_t next = history_next_use(&h, unit);
      CHECK(next == HISTORY_NEVER || (next >= h.cursor && next < h.end && next >= h.base));
    }
  }
  history_close(&h);
}

TEST_MAIN
