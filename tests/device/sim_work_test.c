/* The simulated device detects what would corrupt memory on a GPU: reuse before the work is done,
 * through any address, and unmapping during work; it accepts what is ordered, in any way. */
#include "device/sim_test.h"

enum { READ = STOW_SIM_READ, WRITE = STOW_SIM_WRITE };

typedef struct bench {
  stow_device *d;
  block b;
  stow_stream one, two;
  stow_event event;
} bench;

static bench bench_make(const char *device) {
  bench t = {.d = open_device(device)};
  t.b = block_make(t.d, 2 * PAGE, STOW_TIER_VRAM);
  CHECK_OK(device_stream_create(t.d, &t.one));
  CHECK_OK(device_stream_create(t.d, &t.two));
  CHECK_OK(device_event_create(t.d, &t.event));
  return t;
}

static void bench_end(bench t) {
  CHECK_OK(device_stream_sync(t.d, t.one));
  CHECK_OK(device_stream_sync(t.d, t.two));
  CHECK_OK(device_stream_sync(t.d, NULL));
  CHECK_OK(device_event_destroy(t.d, t.event));
  CHECK_OK(device_stream_destroy(t.d, t.one));
  CHECK_OK(device_stream_destroy(t.d, t.two));
  block_end(t.d, t.b);
  CHECK_OK(stow_device_close(t.d));
}

static stow_status use(bench *t, stow_stream stream, uint64_t at, uint64_t bytes, int how) {
  return stow_sim_submit(t->d, stream, t->b.addr + at, bytes, (stow_sim_use)how, 100);
}

/* ---- reuse ---- */

TEST(reuse_on_another_stream_without_an_event_is_caught)
{
  static const struct {
    int first, second;
    stow_status status;
  } cases[] = {{READ, READ, STOW_OK},
               {READ, WRITE, STOW_ERR_VIOLATION},
               {WRITE, READ, STOW_ERR_VIOLATION},
               {WRITE, WRITE, STOW_ERR_VIOLATION}};
  for (int i = 0; i < 4; i++) {
    bench t = bench_make("sim:64M");
    CHECK_OK(use(&t, t.one, 0, 4096, cases[i].first));
    CHECK_STATUS(use(&t, t.two, 0, 4096, cases[i].second), cases[i].status);
    if (cases[i].status != STOW_OK) {
      CHECK_MESSAGE("not ordered before it");
      CHECK_MESSAGE("record an event");
    }
    CHECK_U64(counts_of(t.d).violations, cases[i].status == STOW_OK ? 0 : 1);
    bench_end(t);
  }
}

TEST(reuse_on_the_same_stream_is_fine)
{
  bench t = bench_make("sim:64M");
  for (int i = 0; i < 100; i++) CHECK_OK(use(&t, t.one, 0, PAGE, i % 3 == 0 ? READ : WRITE));
  CHECK_U64(counts_of(t.d).violations, 0);
  bench_end(t);
}

TEST(the_default_stream_is_a_stream_like_the_others)
{
  bench t = bench_make("sim:64M");
  CHECK_OK(use(&t, NULL, 0, 4096, WRITE));
  CHECK_OK(use(&t, NULL, 0, 4096, WRITE));
  CHECK_STATUS(use(&t, t.one, 0, 4096, WRITE), STOW_ERR_VIOLATION);
  CHECK_OK(device_stream_sync(t.d, NULL));
  CHECK_OK(use(&t, t.one, 0, 4096, WRITE));
  CHECK_STATUS(use(&t, NULL, 0, 4096, READ), STOW_ERR_VIOLATION);
  bench_end(t);
}

TEST(an_event_the_stream_waits_for_makes_reuse_fine)
{
  bench t = bench_make("sim:64M");
  CHECK_OK(use(&t, t.one, 0, 4096, WRITE));
  CHECK_OK(device_event_record(t.d, t.event, t.one));
  CHECK_STATUS(use(&t, t.two, 0, 4096, WRITE), STOW_ERR_VIOLATION); /* recorded, but not waited
                                                                     * for */
  CHECK_OK(device_stream_wait(t.d, t.two, t.event));
  CHECK_OK(use(&t, t.two, 0, 4096, WRITE));
  CHECK_STATUS(use(&t, t.one, 0, 4096, READ), STOW_ERR_VIOLATION); /* it orders only one way */
  bench_end(t);
}

TEST(an_event_recorded_too_early_does_not_help)
{
  bench t = bench_make("sim:64M");
  CHECK_OK(use(&t, t.one, PAGE, 4096, WRITE));
  CHECK_OK(device_event_record(t.d, t.event, t.one));
  CHECK_OK(use(&t, t.one, 0, 4096, WRITE)); /* after the event */
  CHECK_OK(device_stream_wait(t.d, t.two, t.event));
  CHECK_OK(use(&t, t.two, PAGE, 4096, WRITE));
  CHECK_STATUS(use(&t, t.two, 0, 4096, WRITE), STOW_ERR_VIOLATION);
  CHECK_OK(device_event_wait(t.d, t.event)); /* nor does a wait of the host */
  CHECK_STATUS(use(&t, t.two, 0, 4096, WRITE), STOW_ERR_VIOLATION);
  bench_end(t);
}

TEST(order_passes_through_a_third_stream)
{
  bench t = bench_make("sim:64M");
  stow_event second;
  CHECK_OK(device_event_create(t.d, &second));
  CHECK_OK(use(&t, t.one, 0, 4096, WRITE));
  CHECK_OK(device_event_record(t.d, t.event, t.one));
  CHECK_OK(device_stream_wait(t.d, NULL, t.event));
  CHECK_OK(device_event_record(t.d, second, NULL)); /* without other work in between */
  CHECK_OK(device_stream_wait(t.d, t.two, second));
  CHECK_OK(use(&t, t.two, 0, 4096, WRITE));
  CHECK_OK(device_event_destroy(t.d, second));
  bench_end(t);
}

TEST(what_the_host_has_seen_done_is_ordered)
{
  /* 0: waits for the event; 1: sees it passed; 2: waits for the stream */
  for (int way = 0; way < 3; way++) {
    bench t = bench_make("sim:64M");
    CHECK_OK(use(&t, t.one, 0, 4096, WRITE));
    CHECK_OK(device_event_record(t.d, t.event, t.one));
    CHECK_STATUS(device_event_query(t.d, t.event), STOW_ERR_NOT_READY);
    CHECK_STATUS(use(&t, t.two, 0, 4096, WRITE), STOW_ERR_VIOLATION);
    if (way == 0) CHECK_OK(device_event_wait(t.d, t.event));
    if (way == 1) {
      CHECK_OK(stow_sim_advance(t.d, 99));
      CHECK_STATUS(device_event_query(t.d, t.event), STOW_ERR_NOT_READY);
      CHECK_OK(stow_sim_advance(t.d, 1));
      CHECK_OK(device_event_query(t.d, t.event));
    }
    if (way == 2) CHECK_OK(device_stream_sync(t.d, t.one));
    CHECK_OK(use(&t, t.two, 0, 4096, WRITE));
    bench_end(t);
  }
}

TEST(time_that_merely_passes_orders_nothing)
{
  bench t = bench_make("sim:64M");
  CHECK_OK(use(&t, t.one, 0, 4096, WRITE));
  CHECK_OK(stow_sim_advance(t.d, 1000000)); /* done long ago, but the host has not checked */
  CHECK_STATUS(use(&t, t.two, 0, 4096, WRITE), STOW_ERR_VIOLATION);
  bench_end(t);
}

TEST(only_bytes_in_common_matter)
{
  bench t = bench_make("sim:64M");
  CHECK_OK(use(&t, t.one, 4096, 4096, WRITE));
  CHECK_OK(use(&t, t.two, 0, 4096, WRITE));
  CHECK_OK(use(&t, t.two, 8192, 4096, WRITE));
  CHECK_STATUS(use(&t, t.two, 8191, 1, READ), STOW_ERR_VIOLATION);
  CHECK_STATUS(use(&t, t.two, 0, 4097, WRITE), STOW_ERR_VIOLATION);
  CHECK_STATUS(use(&t, t.two, 0, 2 * PAGE, READ), STOW_ERR_VIOLATION);
  CHECK_OK(use(&t, t.two, PAGE - 100, 200, WRITE)); /* across granules of a page */
  CHECK_STATUS(use(&t, t.one, PAGE, 1, READ), STOW_ERR_VIOLATION);
  CHECK_STATUS(use(&t, t.one, PAGE - 1, 1, READ), STOW_ERR_VIOLATION);
  CHECK_OK(use(&t, t.one, PAGE + 100, 1, READ));
  bench_end(t);
}

TEST(a_new_write_counts_only_for_the_bytes_it_covers)
{
  bench t = bench_make("sim:64M");
  stow_stream three;
  CHECK_OK(device_stream_create(t.d, &three));
  CHECK_OK(use(&t, t.one, 0, 3 * 4096, WRITE));
  CHECK_OK(device_event_record(t.d, t.event, t.one));
  CHECK_OK(device_stream_wait(t.d, t.two, t.event));
  CHECK_OK(use(&t, t.two, 4096, 4096, WRITE)); /* the middle: the ends are still one's */
  CHECK_OK(device_event_record(t.d, t.event, t.two));
  CHECK_STATUS(use(&t, three, 0, 1, READ), STOW_ERR_VIOLATION);
  CHECK_STATUS(use(&t, three, 4096, 1, READ), STOW_ERR_VIOLATION);
  CHECK_STATUS(use(&t, three, 3 * 4096 - 1, 1, READ), STOW_ERR_VIOLATION);
  CHECK_STATUS(use(&t, t.one, 4096, 4096, READ), STOW_ERR_VIOLATION);
  CHECK_OK(use(&t, t.one, 0, 4096, WRITE));
  CHECK_OK(use(&t, t.one, 2 * 4096, 4096, WRITE));
  CHECK_OK(device_stream_wait(t.d, three, t.event)); /* after two, and so after one's first */
  CHECK_OK(use(&t, three, 4096, 4096, WRITE));
  CHECK_STATUS(use(&t, three, 0, 1, READ), STOW_ERR_VIOLATION); /* but not after one's second */
  CHECK_OK(device_stream_sync(t.d, three));
  CHECK_OK(device_stream_destroy(t.d, three));
  bench_end(t);
}

TEST(the_same_bytes_by_another_address_are_the_same_bytes)
{
  bench t = bench_make("sim:64M");
  stow_addr alias;
  CHECK_OK(device_reserve(t.d, &alias, 4 * PAGE, 0));
  CHECK_OK(device_map(t.d, alias + PAGE, 2 * PAGE, t.b.page));
  CHECK_OK(device_access(t.d, alias + PAGE, 2 * PAGE));
  CHECK_OK(use(&t, t.one, PAGE + 5, 10, WRITE));
  CHECK_STATUS(stow_sim_submit(t.d, t.two, alias + 2 * PAGE + 5, 1, STOW_SIM_READ, 1),
               STOW_ERR_VIOLATION);
  CHECK_OK(stow_sim_submit(t.d, t.two, alias + 2 * PAGE + 15, 1, STOW_SIM_READ, 1));
  /* An alias that no work uses may be unmapped at any time. */
  CHECK_OK(device_stream_sync(t.d, t.two));
  CHECK_OK(device_unmap(t.d, alias + PAGE, 2 * PAGE));
  CHECK_OK(device_unreserve(t.d, alias, 4 * PAGE));
  bench_end(t);
}

TEST(copies_and_fills_are_work)
{
  bench t = bench_make("sim:64M");
  CHECK_OK(device_fill(t.d, t.b.addr, 1, 4096, t.one));
  CHECK_STATUS(device_fill(t.d, t.b.addr, 2, 4096, t.two), STOW_ERR_VIOLATION);
  CHECK_STATUS(device_copy(t.d, t.b.addr + PAGE, t.b.addr, 4096, t.two), STOW_ERR_VIOLATION);
  CHECK_STATUS(device_copy(t.d, t.b.addr, t.b.addr + PAGE, 4096, t.two), STOW_ERR_VIOLATION);
  CHECK(*(volatile unsigned char *)(uintptr_t)t.b.addr == 1); /* rejected means not done */
  CHECK_OK(device_stream_sync(t.d, t.one));
  CHECK_OK(device_copy(t.d, t.b.addr + PAGE, t.b.addr, 4096, t.two));
  CHECK_OK(use(&t, t.one, 0, 4096, READ)); /* a copy reads its source, and reads share */
  CHECK_STATUS(use(&t, t.one, 0, 4096, WRITE), STOW_ERR_VIOLATION);
  CHECK_STATUS(use(&t, t.one, PAGE, 4096, READ), STOW_ERR_VIOLATION);
  bench_end(t);
}

TEST(a_stream_that_takes_the_place_of_a_destroyed_one_is_not_it)
{
  bench t = bench_make("sim:64M");
  stow_stream old, fresh;
  CHECK_OK(device_stream_create(t.d, &old));
  CHECK_OK(use(&t, old, 0, 4096, WRITE));
  CHECK_OK(device_stream_destroy(t.d, old));
  CHECK_STATUS(use(&t, old, 0, 4096, WRITE), STOW_ERR_STATE);
  CHECK_OK(device_stream_create(t.d, &fresh));
  CHECK(fresh != old);
  CHECK_STATUS(use(&t, fresh, 0, 4096, WRITE), STOW_ERR_VIOLATION);
  CHECK_OK(device_stream_destroy(t.d, fresh));
  /* Any number of streams can be created as long as the host waits from time to time. */
  for (uint64_t i = 0; i < harness_rounds(20000, 4000); i++) {
    CHECK_OK(device_stream_create(t.d, &fresh));
    CHECK_OK(use(&t, fresh, PAGE, 4096, WRITE));
    CHECK_OK(device_stream_sync(t.d, fresh));
    CHECK_OK(device_stream_destroy(t.d, fresh));
  }
  /* The host does not know that the first work is done; freeing a plain block waits for the whole
   * device. */
  stow_addr plain;
  CHECK_OK(device_plain_alloc(t.d, &plain, 1, STOW_TIER_VRAM));
  CHECK_OK(device_plain_free(t.d, plain));
  CHECK_OK(use(&t, t.two, 0, 4096, WRITE));
  bench_end(t);
}

TEST(streams_past_the_most_there_can_be_are_refused)
{
  stow_device *d = open_device("sim:2M,paper");
  enum { MOST = 4095 };
  static stow_stream streams[MOST];
  stow_stream more;
  for (int i = 0; i < MOST; i++) CHECK_OK(device_stream_create(d, &streams[i]));
  CHECK_STATUS(device_stream_create(d, &more), STOW_ERR_DEVICE);
  CHECK_MESSAGE("4096 streams");
  for (int i = 0; i < MOST; i++) CHECK_OK(device_stream_destroy(d, streams[i]));
  CHECK_OK(stow_device_close(d));
}

/* ---- unmapping ---- */

TEST(unmapping_under_work_is_caught_and_refused)
{
  bench t = bench_make("sim:64M");
  CHECK_OK(use(&t, t.one, 100, 1, READ));
  CHECK_STATUS(device_unmap(t.d, t.b.addr, 2 * PAGE), STOW_ERR_VIOLATION);
  CHECK_MESSAGE("still reads it for 100 us");
  CHECK_MESSAGE("wait for an event");
  CHECK_U64(counts_of(t.d).violations, 1);
  CHECK_OK(device_copy(t.d, t.b.addr + PAGE, t.b.addr, 1, t.one)); /* it is still mapped */
  CHECK_OK(stow_sim_advance(t.d, 100));
  CHECK_STATUS(device_unmap(t.d, t.b.addr, 2 * PAGE), STOW_ERR_VIOLATION); /* the copy */
  CHECK_OK(device_stream_sync(t.d, t.one));
  CHECK_OK(device_unmap(t.d, t.b.addr, 2 * PAGE));
  CHECK_OK(device_map(t.d, t.b.addr, 2 * PAGE, t.b.page));
  bench_end(t);
}

TEST(an_address_is_in_use_until_its_last_work_is_done)
{
  /* Work through one address, then longer ordered work on the same bytes through the other: the
   * first address may be unmapped once its own work is done, the second may not. */
  bench t = bench_make("sim:64M");
  stow_addr alias;
  CHECK_OK(device_reserve(t.d, &alias, 2 * PAGE, 0));
  CHECK_OK(device_map(t.d, alias, 2 * PAGE, t.b.page));
  CHECK_OK(device_access(t.d, alias, 2 * PAGE));
  CHECK_OK(stow_sim_submit(t.d, t.one, alias, 4096, STOW_SIM_WRITE, 10));
  CHECK_OK(use(&t, t.one, 0, 4096, WRITE));
  CHECK_STATUS(device_unmap(t.d, alias, 2 * PAGE), STOW_ERR_VIOLATION);
  CHECK_OK(stow_sim_advance(t.d, 10));
  CHECK_OK(device_unmap(t.d, alias, 2 * PAGE));
  CHECK_STATUS(device_unmap(t.d, t.b.addr, 2 * PAGE), STOW_ERR_VIOLATION);
  CHECK_OK(device_unreserve(t.d, alias, 2 * PAGE));
  bench_end(t);
}

TEST(work_on_what_is_not_mapped_is_caught)
{
  bench t = bench_make("sim:64M");
  stow_addr empty;
  CHECK_OK(device_reserve(t.d, &empty, 2 * PAGE, 0));
  CHECK_STATUS(stow_sim_submit(t.d, t.one, empty, 8, STOW_SIM_READ, 1), STOW_ERR_VIOLATION);
  CHECK_MESSAGE("no page mapped");
  CHECK_STATUS(stow_sim_submit(t.d, t.one, 4096, 8, STOW_SIM_READ, 1), STOW_ERR_VIOLATION);
  CHECK_STATUS(use(&t, t.one, 2 * PAGE - 1, 2, READ), STOW_ERR_VIOLATION);
  CHECK_STATUS(use(&t, t.one, 0, 0, READ), STOW_ERR_INVALID);
  CHECK_STATUS(use(&t, t.one, 0, UINT64_MAX, READ), STOW_ERR_INVALID);
  CHECK_STATUS(use(&t, t.one, 0, 1, 7), STOW_ERR_INVALID);
  CHECK_STATUS(stow_sim_submit(t.d, t.one, t.b.addr, 1, STOW_SIM_READ, UINT64_MAX),
               STOW_ERR_OVERFLOW);
  CHECK_STATUS(stow_sim_submit(NULL, t.one, t.b.addr, 1, STOW_SIM_READ, 1), STOW_ERR_INVALID);
  CHECK_U64(counts_of(t.d).violations, 3);
  CHECK_OK(device_unreserve(t.d, empty, 2 * PAGE));
  bench_end(t);
}

/* ---- time ---- */

TEST(work_takes_its_time_and_streams_run_beside_each_other)
{
  bench t = bench_make("sim:64M");
  CHECK_OK(stow_sim_submit(t.d, t.one, t.b.addr, 1, STOW_SIM_READ, 300));
  CHECK_OK(stow_sim_submit(t.d, t.one, t.b.addr, 1, STOW_SIM_READ, 200));
  CHECK_OK(stow_sim_submit(t.d, t.two, t.b.addr, 1, STOW_SIM_READ, 400));
  CHECK_U64(counts_of(t.d).now_ns, 0); /* time does not advance */
  CHECK_OK(device_event_record(t.d, t.event, t.one));
  CHECK_OK(device_stream_sync(t.d, t.two));
  CHECK_U64(counts_of(t.d).now_ns, 400000);
  CHECK_STATUS(device_event_query(t.d, t.event), STOW_ERR_NOT_READY);
  CHECK_OK(device_stream_wait(t.d, t.two, t.event)); /* stream two continues when stream one is
                                                      * done, at 500 */
  CHECK_OK(stow_sim_submit(t.d, t.two, t.b.addr, 1, STOW_SIM_READ, 50));
  CHECK_OK(device_event_wait(t.d, t.event));
  CHECK_U64(counts_of(t.d).now_ns, 500000);
  CHECK_OK(device_stream_sync(t.d, t.two));
  stow_sim_counts c = counts_of(t.d);
  CHECK_U64(c.now_ns, 550000);
  CHECK_U64(c.wait_ns, 550000);
  CHECK_U64(c.event_waits, 3);
  CHECK_U64(c.call_ns, 0);
  CHECK_OK(device_event_wait(t.d, t.event)); /* passed: not a wait */
  CHECK_U64(counts_of(t.d).event_waits, 3);
  CHECK_STATUS(stow_sim_advance(t.d, UINT64_MAX), STOW_ERR_OVERFLOW);
  bench_end(t);
}

/* ---- history ---- */

TEST(a_long_run_keeps_no_long_history)
{
  bench t = bench_make("sim:64M,paper");
  uint64_t random = 7, before = 0;
  const uint64_t uses = harness_rounds(90000, 20000);
  for (uint64_t i = 0; i < uses; i++) {
    uint64_t at = harness_random(&random) % (2 * PAGE - 8192);
    uint64_t bytes = 1 + harness_random(&random) % 8192;
    if (harness_random(&random) % 2 == 0) { /* passed to the other stream and back, in order */
      CHECK_OK(device_event_record(t.d, t.event, t.one));
      CHECK_OK(device_stream_wait(t.d, t.two, t.event));
      CHECK_OK(use(&t, t.two, at, bytes, (int)(harness_random(&random) % 2)));
      CHECK_OK(device_event_record(t.d, t.event, t.two));
      CHECK_OK(device_stream_wait(t.d, t.one, t.event));
    } else {
      CHECK_OK(use(&t, t.one, at, bytes, (int)(harness_random(&random) % 2)));
    }
    if (i == uses / 3) before = resident_bytes();
  }
  uint64_t after = resident_bytes();
  CHECK_U64(counts_of(t.d).violations, 0);
  if (after > before + 2 * MIB)
    FAIL("history grew from %" PRIu64 " to %" PRIu64 " bytes", before, after);
  bench_end(t);
}

/* Compares the check with a simple model: every pair of uses, kept forever. */
TEST(what_is_caught_is_what_a_full_history_says)
{
  enum { STREAMS = 3, STEPS = 3000, CELLS = 16 };
  uint64_t random = 99, caught = 0, passed = 0;
  for (uint64_t round = 0; round < harness_rounds(20, 5); round++) {
    stow_device *d = open_device("sim:64M,paper");
    block b = block_make(d, PAGE, STOW_TIER_VRAM);
    stow_stream streams[STREAMS] = {NULL};
    stow_event event;
    uint64_t seq[STREAMS] = {0}, knows[STREAMS][STREAMS] = {{0}};
    static struct {
      uint64_t seq;
      int stream, lo, hi, how;
    } uses[STEPS];
    int count = 0;
    for (int i = 1; i < STREAMS; i++) CHECK_OK(device_stream_create(d, &streams[i]));
    CHECK_OK(device_event_create(d, &event));
    for (int step = 0; step < STEPS / 20; step++) {
      int s = (int)(harness_random(&random) % STREAMS);
      if (harness_random(&random) % 3 == 0) { /* order another stream, or the host, after s */
        int other = (int)(harness_random(&random) % (STREAMS + 1));
        CHECK_OK(device_event_record(d, event, streams[s]));
        if (other == STREAMS)
          CHECK_OK(device_event_wait(d, event));
        else
          CHECK_OK(device_stream_wait(d, streams[other], event));
        for (int o = 0; o < STREAMS; o++)
          for (int k = 0; k < STREAMS && (other == STREAMS || other == o); k++)
            if (knows[s][k] > knows[o][k]) knows[o][k] = knows[s][k];
        continue;
      }
      int lo = (int)(harness_random(&random) % CELLS);
      int hi = lo + 1 + (int)(harness_random(&random) % (uint64_t)(CELLS - lo));
      int how = (int)(harness_random(&random) % 2);
      bool races = false;
      for (int u = 0; u < count; u++)
        races |= uses[u].lo < hi && lo < uses[u].hi && (uses[u].how == WRITE || how == WRITE) &&
                 knows[s][uses[u].stream] < uses[u].seq;
      stow_status status = stow_sim_submit(d, streams[s], b.addr + (uint64_t)lo * 64,
                                           (uint64_t)(hi - lo) * 64, (stow_sim_use)how, 1);
      CHECK_STATUS(status, races ? STOW_ERR_VIOLATION : STOW_OK);
      caught += races;
      passed += !races;
      if (races) continue;
      knows[s][s] = ++seq[s];
      uses[count].seq = seq[s];
      uses[count].stream = s;
      uses[count].lo = lo;
      uses[count].hi = hi;
      uses[count++].how = how;
    }
    for (int i = 0; i < STREAMS; i++) CHECK_OK(device_stream_sync(d, streams[i]));
    for (int i = 1; i < STREAMS; i++) CHECK_OK(device_stream_destroy(d, streams[i]));
    CHECK_OK(device_event_destroy(d, event));
    block_end(d, b);
    CHECK_OK(stow_device_close(d));
  }
  CHECK(caught > 100 && passed > 100);
  harness_note("%" PRIu64 " caught, %" PRIu64 " passed", caught, passed);
}

TEST_MAIN
