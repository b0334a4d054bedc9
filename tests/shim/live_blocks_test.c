/* Live blocks: a follower receives every change, in order. */
#include "shim/live_blocks.h"

#include "harness.h"
#include "shim/capture.h"

static block_change heard[16];
static int heard_count;

static void hear(const block_change *c) {
  CHECK(heard_count < 16);
  heard[heard_count++] = *c;
}

TEST(a_follower_begins_with_what_lives)
{
  live_blocks_note(0x1000, 1000, 0);
  live_blocks_note(0x8000, 512, 3);
  live_blocks_note(0x8000, 0, 3);
  CHECK(!live_blocks_changed());
  CHECK(live_blocks_follow() && live_blocks_changed());
  CHECK(live_blocks_changes(hear) && heard_count == 1);
  CHECK(heard[0].addr == 0x1000 && heard[0].bytes == 1024 && heard[0].device == 0);
  CHECK(!live_blocks_changed());
}

TEST(changes_come_in_order)
{
  CHECK(live_blocks_follow());
  live_blocks_note(0x1000, 512, 2);
  live_blocks_note(0x1000, 0, 2);
  live_blocks_note(0x1000, 4096, 2);
  CHECK(live_blocks_changes(hear) && heard_count == 3);
  CHECK(heard[0].bytes == 512 && heard[1].bytes == 0 && heard[2].bytes == 4096);
  CHECK(heard[2].device == 2 && heard[2].addr == 0x1000);
  CHECK(live_blocks_changes(hear) && heard_count == 3);
}

/* A graph uses them after they are freed. */
TEST(blocks_of_a_capture_live_on)
{
  CHECK(live_blocks_follow());
  capture_add(1);
  live_blocks_note(0x1000, 512, 0);
  capture_add(-1);
  live_blocks_note(0x1000, 0, 0);
  live_blocks_note(0x2000, 512, 0);
  live_blocks_note(0x2000, 0, 0);
  CHECK(live_blocks_changes(hear) && heard_count == 3);
  CHECK(heard[0].addr == 0x1000 && heard[1].addr == 0x2000 && heard[2].bytes == 0);
  heard_count = 0;
  CHECK(live_blocks_follow() && live_blocks_changes(hear));
  CHECK(heard_count == 1 && heard[0].addr == 0x1000);
}

static int changes_counted;
static void count(const block_change *c) {
  CHECK(c->addr == ((uint64_t)changes_counted + 1) * 512);
  changes_counted++;
}

TEST(many_changes_are_kept)
{
  CHECK(live_blocks_follow());
  for (uint64_t i = 0; i < 20000; i++) live_blocks_note((i + 1) * 512, 512, 1);
  CHECK(live_blocks_changes(count) && changes_counted == 20000);
}

TEST_MAIN
