/* What calls cost on the simulated device: reproduces the figures measured on a GPU, and they add
 * up to the simulated time. */
#include "device/sim_test.h"

static uint64_t call_ns(stow_device *d) {
  static uint64_t before;
  uint64_t now = counts_of(d).call_ns, spent = now - before;
  before = now;
  return spent;
}

TEST(single_calls_cost_what_was_measured)
{
  /* us: reserve, create, map, access, unmap, release, alloc, free */
  static const struct {
    uint64_t mib, ns[8];
  } rows[] = {{2, {800, 10700, 1000, 24600, 17100, 11200, 40200, 33700}},
              {16, {800, 10200, 900, 25400, 17200, 23100, 41100, 46300}},
              {64, {3000, 11700, 1100, 49700, 25500, 54400, 57400, 70000}},
              {256, {3400, 16000, 1200, 55200, 26400, 145700, 59200, 181800}},
              {1024, {5400, 85500, 1900, 93800, 39600, 519400, 184100, 560500}},
              /* interpolated between two sizes: a quarter of the way from 64 to 256 */
              {112, {3100, 12775, 1125, 51075, 25725, 77225, 57850, 97950}}};
  stow_device *d = open_device("sim:4G,paper,costs");
  call_ns(d);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    uint64_t bytes = rows[i].mib * MIB;
    stow_addr addr, plain;
    stow_page page;
    CHECK_OK(device_reserve(d, &addr, bytes, 0));
    CHECK_U64(call_ns(d), rows[i].ns[0]);
    CHECK_OK(device_page_create(d, &page, bytes, STOW_TIER_VRAM));
    CHECK_U64(call_ns(d), rows[i].ns[1]);
    CHECK_OK(device_map(d, addr, bytes, page));
    CHECK_U64(call_ns(d), rows[i].ns[2]);
    CHECK_OK(device_access(d, addr, bytes));
    CHECK_U64(call_ns(d), rows[i].ns[3]);
    CHECK_OK(device_unmap(d, addr, bytes));
    CHECK_U64(call_ns(d), rows[i].ns[4]);
    CHECK_OK(device_page_release(d, page));
    CHECK_U64(call_ns(d), rows[i].ns[5]);
    CHECK_OK(device_plain_alloc(d, &plain, bytes, STOW_TIER_VRAM));
    CHECK_U64(call_ns(d), rows[i].ns[6]);
    CHECK_OK(device_plain_free(d, plain));
    CHECK_U64(call_ns(d), rows[i].ns[7]);
    CHECK_OK(device_unreserve(d, addr, bytes));
    call_ns(d);
  }
  stow_sim_counts c = counts_of(d);
  CHECK_U64(c.now_ns, c.call_ns); /* nothing else took time */
  CHECK_OK(stow_device_close(d));
}

static void check_near(const char *what, uint64_t got_ns, uint64_t want_ns) {
  uint64_t off = got_ns > want_ns ? got_ns - want_ns : want_ns - got_ns;
  if (off > want_ns / 100)
    FAIL("%s: %" PRIu64 " ns, measured were %" PRIu64, what, got_ns, want_ns);
}

TEST(a_gib_of_512_pages_costs_what_was_measured)
{
  stow_device *d = open_device("sim:4G,paper,costs");
  stow_addr addr;
  stow_page pages[512];
  CHECK_OK(device_reserve(d, &addr, GIB, 0));
  call_ns(d);
  for (int i = 0; i < 512; i++) CHECK_OK(device_page_create(d, &pages[i], PAGE, STOW_TIER_VRAM));
  check_near("create", call_ns(d), 7800000);
  for (uint64_t i = 0; i < 512; i++) CHECK_OK(device_map(d, addr + i * PAGE, PAGE, pages[i]));
  check_near("map", call_ns(d), 800000);
  CHECK_OK(device_access(d, addr, GIB));
  check_near("access", call_ns(d), 18500000);
  CHECK_OK(device_unmap(d, addr, GIB));
  check_near("unmap", call_ns(d), 11000000);
  for (int i = 0; i < 512; i++) CHECK_OK(device_page_release(d, pages[i]));
  CHECK_OK(device_unreserve(d, addr, GIB));
  CHECK_OK(stow_device_close(d));
}

TEST(host_pages_are_slow_to_make)
{
  stow_device *d = open_device("sim:4G,paper,costs");
  call_ns(d);
  stow_page page;
  CHECK_OK(device_page_create(d, &page, GIB, STOW_TIER_HOST));
  uint64_t ns = call_ns(d);
  CHECK(ns >= 214000000 && ns <= 316000000);
  CHECK_OK(device_page_release(d, page));
  stow_addr plain;
  call_ns(d);
  CHECK_OK(device_plain_alloc(d, &plain, GIB, STOW_TIER_HOST));
  check_near("cuMemHostAlloc", call_ns(d), 346000000);
  CHECK_OK(device_plain_free(d, plain));
  check_near("cuMemFreeHost", call_ns(d), 91000000);
  CHECK_OK(stow_device_close(d));
}

TEST(calls_cost_more_while_a_stream_is_busy)
{
  stow_device *d = open_device("sim:4G,paper,costs");
  block b = block_make(d, PAGE, STOW_TIER_VRAM);
  stow_addr addr;
  CHECK_OK(device_reserve(d, &addr, PAGE, 0));
  CHECK_OK(stow_sim_submit(d, NULL, b.addr, PAGE, STOW_SIM_WRITE, 10000000)); /* ten seconds */
  call_ns(d);
  stow_page page;
  CHECK_OK(device_page_create(d, &page, PAGE, STOW_TIER_VRAM));
  CHECK_U64(call_ns(d), 7500000);
  CHECK_OK(device_map(d, addr, PAGE, page));
  CHECK_OK(device_access(d, addr, PAGE));
  CHECK_U64(call_ns(d), 90000);
  CHECK_OK(device_unmap(d, addr, PAGE));
  CHECK_U64(call_ns(d), 85000);
  CHECK_OK(device_stream_sync(d, NULL)); /* idle again */
  CHECK_OK(device_map(d, addr, PAGE, page));
  CHECK_OK(device_access(d, addr, PAGE));
  CHECK_U64(call_ns(d), 25600);
  stow_sim_counts c = counts_of(d);
  CHECK_U64(c.now_ns, c.call_ns + c.wait_ns); /* calls ran in parallel with the stream */
  CHECK_OK(device_unmap(d, addr, PAGE));
  CHECK_OK(device_page_release(d, page));
  CHECK_OK(device_unreserve(d, addr, PAGE));
  block_end(d, b);
  CHECK_OK(stow_device_close(d));
}

TEST(copies_take_the_time_of_their_path)
{
  stow_device *d = open_device("sim:4G,paper");
  block device = block_make(d, 2 * GIB, STOW_TIER_VRAM), host = block_make(d, GIB, STOW_TIER_HOST);
  uint64_t before = counts_of(d).now_ns;
  CHECK_OK(device_copy(d, host.addr, device.addr, GIB, NULL));
  CHECK_OK(device_stream_sync(d, NULL));
  check_near("device to host", counts_of(d).now_ns - before, GIB / 55); /* 55 GB/s: 55 bytes a ns */
  before = counts_of(d).now_ns;
  CHECK_OK(device_copy(d, device.addr, device.addr + GIB, GIB, NULL));
  CHECK_OK(device_stream_sync(d, NULL));
  check_near("on the device", counts_of(d).now_ns - before, GIB / 2000);
  before = counts_of(d).now_ns;
  CHECK_OK(device_copy(d, device.addr, 4096, GIB, NULL)); /* on paper no host byte is read */
  CHECK_OK(device_stream_sync(d, NULL));
  check_near("from host memory", counts_of(d).now_ns - before, GIB / 55);
  CHECK_U64(counts_of(d).copy, 3);
  block_end(d, device);
  block_end(d, host);
  CHECK_OK(stow_device_close(d));
}

TEST(without_costs_calls_are_counted_and_take_no_time)
{
  stow_device *d = open_device("sim:64M,paper");
  block b = block_make(d, PAGE, STOW_TIER_VRAM);
  block_end(d, b);
  stow_addr plain;
  CHECK_OK(device_plain_alloc(d, &plain, PAGE, STOW_TIER_VRAM));
  CHECK_OK(device_plain_free(d, plain));
  stow_sim_counts c = counts_of(d);
  CHECK_U64(c.reserve, 1);
  CHECK_U64(c.unreserve, 1);
  CHECK_U64(c.page_create, 1);
  CHECK_U64(c.page_release, 1);
  CHECK_U64(c.map, 1);
  CHECK_U64(c.unmap, 1);
  CHECK_U64(c.access, 1);
  CHECK_U64(c.plain_alloc, 1);
  CHECK_U64(c.plain_free, 1);
  CHECK_U64(c.now_ns, 0);
  CHECK_OK(stow_device_close(d));
}

TEST_MAIN
