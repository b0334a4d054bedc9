/* Tests which launches the engine takes for writers of a block: those that name it, and copies. */
#include "harness.h"
#include "residency/residency.h"

#define MIB  (UINT64_C(1) << 20)
#define UNIT (32 * MIB)
#define BASE (UINT64_C(1) << 40)

enum { UNITS = 4 };
/* Two blocks share the second unit; the second one ends inside the third unit, where a small one
 * follows. */
#define FIRST  BASE
#define SECOND (BASE + 40 * MIB)
#define THIRD  (BASE + 70 * MIB)

static residency *opened(void) {
  residency *r;
  uint32_t unit;
  residency_options o = {.capacity_bytes = UNITS * UNIT, .log_launches = 1024};
  CHECK_OK(residency_open(&r, &o));
  for (uint32_t i = 0; i < UNITS; i++)
    CHECK_OK(residency_unit_add(r, BASE + i * UNIT, UNIT, true, &unit));
  CHECK_OK(residency_block_add(r, FIRST, 40 * MIB));
  CHECK_OK(residency_block_add(r, SECOND, 30 * MIB));
  CHECK_OK(residency_block_add(r, THIRD, 4 * MIB));
  return r;
}

static uint64_t launches;

static void launch(residency *r, uint64_t word) {
  residency_launch_info l = {.function = 7, .words = &word, .word_count = 1};
  residency_launch(r, &l);
  launches++;
}

static void copy_to(residency *r, uint64_t to, uint64_t bytes) {
  uint64_t words[2] = {to, 4096};
  residency_launch_info l = {
      .function = 1, .words = words, .word_count = 2, .once = true, .to = to, .to_bytes = bytes};
  residency_launch(r, &l);
  launches++;
}

/* Returns the last launch that may have written to a block: the latest of its units. */
static uint64_t written(residency *r, uint64_t addr, uint64_t bytes) {
  uint64_t last = 0;
  for (uint64_t at = addr; at < addr + bytes; at = (at / UNIT + 1) * UNIT) {
    uint64_t here = residency_written(r, residency_find(r, at), addr);
    if (here > last) last = here;
  }
  return last;
}

/* Returns the engine after the first question, when every launch so far counts as a writer. */
static residency *asked(void) {
  launches = 0;
  residency *r = opened();
  launch(r, FIRST);
  launch(r, SECOND);
  CHECK(written(r, FIRST, 40 * MIB) == 2);
  CHECK(written(r, SECOND, 30 * MIB) == 2);
  CHECK(written(r, THIRD, 4 * MIB) == 2);
  return r;
}

TEST(a_launch_writes_to_the_blocks_that_it_names)
{
  residency *r = asked();
  launch(r, FIRST);
  CHECK(written(r, FIRST, 40 * MIB) == 3);
  CHECK(written(r, SECOND, 30 * MIB) == 2); /* although they share a unit */
  launch(r, SECOND);
  CHECK(written(r, FIRST, 40 * MIB) == 3);
  CHECK(written(r, SECOND, 30 * MIB) == 4);
  CHECK(written(r, THIRD, 4 * MIB) == 2);
  residency_close(r);
}

TEST(a_word_in_the_middle_names_the_block)
{
  residency *r = asked();
  launch(r, FIRST + 36 * MIB); /* in the unit that both share */
  CHECK(written(r, FIRST, 40 * MIB) == 3);
  CHECK(written(r, SECOND, 30 * MIB) == 2);
  launch(r, SECOND + 25 * MIB);
  CHECK(written(r, SECOND, 30 * MIB) == 4);
  CHECK(written(r, FIRST, 40 * MIB) == 3);
  residency_close(r);
}

TEST(a_word_whose_block_is_not_known_counts_for_the_whole_unit)
{
  residency *r = asked();
  launch(r, THIRD + MIB); /* THIRD crosses no edge, so its end is not known here */
  CHECK(written(r, THIRD, 4 * MIB) == 3);
  CHECK(written(r, SECOND, 30 * MIB) == 3);
  CHECK(written(r, FIRST, 40 * MIB) == 2);
  residency_close(r);
}

TEST(a_copy_writes_to_every_unit_that_it_fills)
{
  residency *r = asked();
  copy_to(r, FIRST + 39 * MIB, MIB / 2);
  CHECK(written(r, FIRST, 40 * MIB) == 3);
  CHECK(written(r, SECOND, 30 * MIB) == 3);
  CHECK(written(r, THIRD, 4 * MIB) == 2);
  residency_close(r);
}

TEST(an_address_inside_a_block_is_answered_for_its_units)
{
  residency *r = asked();
  launch(r, SECOND);
  CHECK(residency_written(r, residency_find(r, FIRST + 33 * MIB), FIRST + 33 * MIB) == 3);
  residency_close(r);
}

TEST(a_hidden_write_is_never_known)
{
  residency *r = asked();
  residency_hidden_write(r, residency_find(r, FIRST));
  CHECK(residency_written(r, residency_find(r, FIRST), FIRST) == UINT64_MAX);
  residency_close(r);
}

TEST(pages_that_are_added_may_have_been_written_before)
{
  residency *r = asked();
  uint32_t unit;
  launch(r, FIRST);
  residency_unit_remove(r, BASE + 2 * UNIT);
  CHECK_OK(residency_unit_add(r, BASE + 2 * UNIT, UNIT, true, &unit));
  CHECK(written(r, SECOND, 30 * MIB) == 3);
  residency_close(r);
}

TEST_MAIN
