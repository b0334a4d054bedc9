/* The simulated device: how it is opened, what it holds, what it costs. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stowage/size.h>

#include "base/clock.h"
#include "device/sim_test.h"

/* ---- names ---- */

TEST(names_of_simulated_devices_are_parsed)
{
  static const struct {
    const char *name;
    uint64_t vram, host;
    bool vmm;
  } cases[] = {{"sim", 16 * GIB, 32 * GIB, true},
               {"sim:16G", 16 * GIB, 32 * GIB, true},
               {"sim:4G", 4 * GIB, 8 * GIB, true},
               {"sim:16G,host=8G", 16 * GIB, 8 * GIB, true},
               {"sim:1G,host=0", GIB, 0, true},
               {"sim:512 MiB,paper", 512 * MIB, GIB, true},
               {"sim:139G,costs,paper,host=1T", 139 * GIB, 1024 * GIB, true},
               {"sim:2M,no-vmm", 2 * MIB, 4 * MIB, false},
               {"sim:0.999G", 1022 * MIB, 2044 * MIB, true}}; /* rounded down to whole pages */
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    stow_device *d = open_device(cases[i].name);
    stow_device_props props = STOW_DEVICE_PROPS_INIT;
    CHECK_OK(stow_device_get_props(d, &props));
    CHECK_TEXT(props.kind, "sim");
    CHECK_U64(props.vram_bytes, cases[i].vram);
    CHECK_U64(props.host_bytes, cases[i].host);
    CHECK_U64(props.has_vmm, cases[i].vmm);
    CHECK_U64(props.page_bytes, PAGE);
    CHECK_OK(stow_device_close(d));
  }
}

TEST(names_that_cannot_be_right_are_refused_by_name)
{
  static const char *const bad[] = {
      "sim:",
      "sim:4Q",
      "sim:0",
      "sim:-1G",
      "sim:1M",
      "sim:paper",
      "sim:4G,",
      "sim:4G,host=",
      "sim:4G,host=4Q",
      "sim:4G,hots=4G",
      "sim:4G,,",
      "sim:4G,Paper",
      "sim:4G,host=1",
      "sim:99999999999T",
      "sim:2048P",
      "sim:4G;costs",
      "sim:4G,host=1G,host=2G",
      "sim:4G,aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    stow_device *d = (stow_device *)&d;
    stow_status status = stow_device_open(&d, bad[i]);
    if (status != STOW_ERR_INVALID) FAIL("%s: %s", bad[i], stow_status_name(status));
    CHECK(d == NULL);
    if (strcmp(bad[i], "sim:2048P") == 0) continue; /* a valid size, rejected at opening */
    CHECK_MESSAGE(bad[i]);
    CHECK_MESSAGE("write it like sim:16G");
  }
}

TEST(options_that_cannot_be_right_are_refused)
{
  stow_device *d;
  stow_sim_options o = STOW_SIM_OPTIONS_INIT;
  CHECK_STATUS(stow_sim_open(NULL, &o), STOW_ERR_INVALID);
  CHECK_STATUS(stow_sim_open(&d, NULL), STOW_ERR_INVALID);
  o.struct_bytes = 2;
  CHECK_STATUS(stow_sim_open(&d, &o), STOW_ERR_INVALID);
  CHECK_MESSAGE("sizeof(stow_sim_options)");
  o = (stow_sim_options)STOW_SIM_OPTIONS_INIT;
  o.vram_bytes = 3 * MIB;
  CHECK_STATUS(stow_sim_open(&d, &o), STOW_ERR_INVALID);
  CHECK_MESSAGE("2097152 bytes");
  o.vram_bytes = 0;
  CHECK_STATUS(stow_sim_open(&d, &o), STOW_ERR_INVALID);
  o.vram_bytes = GIB;
  o.page_bytes = 3 * MIB;
  CHECK_STATUS(stow_sim_open(&d, &o), STOW_ERR_INVALID);
  o.page_bytes = 512;
  CHECK_STATUS(stow_sim_open(&d, &o), STOW_ERR_INVALID);
  o.page_bytes = 64 << 10;
  CHECK_OK(stow_sim_open(&d, &o));
  block b = block_make(d, 64 << 10, STOW_TIER_VRAM);
  block_end(d, b);
  CHECK_OK(stow_device_close(d));
}

/* ---- bytes ---- */

TEST(touching_an_address_with_nothing_behind_it_is_a_fault)
{
  stow_device *d = open_device("sim:64M");
  block b = block_make(d, PAGE, STOW_TIER_VRAM);
  *(volatile char *)(uintptr_t)b.addr = 1;
  /* 0: with access; 1: mapped without access; 2: unmapped */
  for (int state = 0; state < 3; state++) {
    if (state == 1) {
      CHECK_OK(device_unmap(d, b.addr, PAGE));
      CHECK_OK(device_map(d, b.addr, PAGE, b.page));
    }
    if (state == 2) CHECK_OK(device_unmap(d, b.addr, PAGE));
    pid_t child = fork();
    if (child == 0) {
      signal(SIGSEGV, SIG_DFL); /* a sanitizer's own handler would report it */
      *(volatile char *)(uintptr_t)b.addr = 2;
      _exit(0);
    }
    int how = 0;
    CHECK(waitpid(child, &how, 0) == child);
    if (state == 0)
      CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    else
      CHECK(WIFSIGNALED(how) && WTERMSIG(how) == SIGSEGV);
  }
  CHECK_OK(device_page_release(d, b.page));
  CHECK_OK(device_unreserve(d, b.addr, PAGE));
  CHECK_OK(stow_device_close(d));
}

/* ---- capacity ---- */

TEST(a_tier_gives_exactly_its_capacity)
{
  stow_device *d = open_device("sim:64M,host=32M");
  static const stow_tier tiers[] = {STOW_TIER_VRAM, STOW_TIER_HOST};
  stow_page pages[32];
  for (int t = 0; t < 2; t++) {
    uint64_t count = tiers[t] == STOW_TIER_VRAM ? 32 : 16, left = 77;
    for (uint64_t i = 0; i < count; i++) CHECK_OK(device_page_create(d, &pages[i], PAGE, tiers[t]));
    CHECK_OK(device_memory(d, tiers[t], &left, NULL));
    CHECK_U64(left, 0);
    stow_page more;
    stow_addr addr;
    CHECK_STATUS(device_page_create(d, &more, PAGE, tiers[t]), STOW_ERR_OUT_OF_MEMORY);
    CHECK_MESSAGE("0 B of");
    CHECK_STATUS(device_plain_alloc(d, &addr, 1, tiers[t]), STOW_ERR_OUT_OF_MEMORY);
    CHECK_OK(device_page_release(d, pages[7]));
    CHECK_STATUS(device_page_create(d, &more, 2 * PAGE, tiers[t]), STOW_ERR_OUT_OF_MEMORY);
    CHECK_OK(device_page_create(d, &pages[7], PAGE, tiers[t]));
    for (uint64_t i = 0; i < count; i++) CHECK_OK(device_page_release(d, pages[i]));
  }
  stow_sim_counts c = counts_of(d);
  CHECK_U64(c.vram_used_bytes, 0);
  CHECK_U64(c.vram_peak_bytes, 64 * MIB);
  CHECK_U64(c.host_peak_bytes, 32 * MIB);
  CHECK_U64(c.page_create, 32 + 16 + 2);
  CHECK_U64(c.page_release, c.page_create);
  CHECK_OK(stow_device_close(d));
}

TEST(scattered_room_is_room)
{
  stow_device *d = open_device("sim:64M");
  stow_page small[32], large;
  for (int i = 0; i < 32; i++) CHECK_OK(device_page_create(d, &small[i], PAGE, STOW_TIER_VRAM));
  for (int i = 0; i < 32; i += 2) CHECK_OK(device_page_release(d, small[i]));
  CHECK_OK(device_page_create(d, &large, 16 * PAGE, STOW_TIER_VRAM));
  CHECK_OK(device_page_release(d, large));
  for (int i = 1; i < 32; i += 2) CHECK_OK(device_page_release(d, small[i]));
  CHECK_OK(stow_device_close(d));
}

TEST(plain_blocks_and_pages_share_one_capacity)
{
  stow_device *d = open_device("sim:8M");
  stow_addr small, large, none;
  CHECK_OK(device_plain_alloc(d, &small, 100, STOW_TIER_VRAM));
  CHECK_U64(counts_of(d).vram_used_bytes, (uint64_t)getpagesize());
  CHECK_OK(device_plain_alloc(d, &large, 3 * MIB, STOW_TIER_VRAM)); /* rounded up to whole pages */
  CHECK_U64(counts_of(d).vram_used_bytes, (uint64_t)getpagesize() + 4 * MIB);
  CHECK_STATUS(device_plain_alloc(d, &none, 4 * MIB, STOW_TIER_VRAM), STOW_ERR_OUT_OF_MEMORY);
  CHECK_STATUS(device_plain_alloc(d, &none, UINT64_MAX, STOW_TIER_VRAM), STOW_ERR_OUT_OF_MEMORY);
  CHECK_OK(device_plain_free(d, small));
  CHECK_OK(device_plain_free(d, large));
  CHECK_U64(counts_of(d).vram_used_bytes, 0);
  CHECK_OK(stow_device_close(d));
}

/* ---- what it costs this machine ---- */

TEST(a_16_gib_device_that_is_only_mapped_costs_no_ram)
{
  stow_device *d = open_device("sim:16G");
  uint64_t before = resident_bytes();
  enum { COUNT = 8192 };
  stow_page *pages = malloc(COUNT * sizeof *pages);
  stow_addr addr;
  CHECK(pages != NULL);
  CHECK_OK(device_reserve(d, &addr, 16 * GIB, 0));
  for (uint64_t i = 0; i < COUNT; i++) {
    CHECK_OK(device_page_create(d, &pages[i], PAGE, STOW_TIER_VRAM));
    CHECK_OK(device_map(d, addr + i * PAGE, PAGE, pages[i]));
  }
  CHECK_OK(device_access(d, addr, 16 * GIB));
  uint64_t mapped = resident_bytes();
  *(volatile char *)(uintptr_t)addr = 1;
  *(volatile char *)(uintptr_t)(addr + 16 * GIB - 1) = 1;
  CHECK_OK(device_fill(d, addr, 3, 32 * MIB, NULL));
  CHECK_OK(device_stream_sync(d, NULL));
  uint64_t touched = resident_bytes();
  CHECK_OK(device_unmap(d, addr, 16 * GIB));
  for (uint64_t i = 0; i < COUNT; i++) CHECK_OK(device_page_release(d, pages[i]));
  uint64_t released = resident_bytes();
  if (mapped - before > 64 * MIB) FAIL("mapping took %" PRIu64 " bytes", mapped - before);
  CHECK(touched - mapped >= 32 * MIB); /* the measurement does see touched pages */
  CHECK(released < touched - 24 * MIB);
  CHECK_OK(device_unreserve(d, addr, 16 * GIB));
  CHECK_OK(stow_device_close(d));
  free(pages);
  harness_note("mapped: %.1f MiB of RAM", (double)(mapped - before) / (double)MIB);
}

TEST(released_pages_give_their_ram_back_to_the_system)
{
  stow_device *d = open_device("sim:64M,host=0");
  /* 16 GiB in total pass through a device of 64 MiB, touched a little; the file stays sparse. */
  uint64_t before = resident_bytes();
  for (int i = 0; i < 256; i++) {
    block b = block_make(d, 64 * MIB, STOW_TIER_VRAM);
    CHECK_OK(device_fill(d, b.addr, 1, 4 * MIB, NULL));
    CHECK_OK(device_stream_sync(d, NULL));
    block_end(d, b);
  }
  CHECK(resident_bytes() < before + 32 * MIB);
  CHECK_OK(stow_device_close(d));
}

#define MAPPINGS_MAX 140000

TEST(more_mappings_than_linux_allows_is_reported_with_a_way_out)
{
  uint64_t limit = file_number("/proc/sys/vm/max_map_count", 0);
  if (limit == 0) SKIP("vm.max_map_count cannot be read");
  if (limit > 70000) SKIP("vm.max_map_count is %" PRIu64 ": too many to make here", limit);
  stow_device *d;
  stow_sim_options o = STOW_SIM_OPTIONS_INIT;
  o.page_bytes = 64 << 10;
  CHECK_OK(stow_sim_open(&d, &o));
  stow_page page;
  stow_addr addr;
  uint64_t unit = o.page_bytes, made = 0;
  CHECK_OK(device_page_create(d, &page, unit, STOW_TIER_VRAM));
  CHECK_OK(device_reserve(d, &addr, MAPPINGS_MAX * unit, 0));
  stow_status status = STOW_OK;
  while (made < MAPPINGS_MAX && status == STOW_OK) { /* the same page everywhere: nothing merges */
    status = device_map(d, addr + made * unit, unit, page);
    if (status == STOW_OK) made++;
  }
  CHECK_STATUS(status, STOW_ERR_DEVICE);
  CHECK_MESSAGE("vm.max_map_count");
  CHECK_MESSAGE("larger pages");
  CHECK(made > 30000);
  CHECK_U64(counts_of(d).map, made);
  CHECK_OK(device_unmap(d, addr, made * unit));
  CHECK_OK(device_page_release(d, page));
  CHECK_OK(device_unreserve(d, addr, MAPPINGS_MAX * unit));
  CHECK_OK(stow_device_close(d));
  harness_note("refused after %" PRIu64 " mappings", made);
}

/* ---- on paper ---- */

TEST(a_paper_device_makes_a_million_map_calls_a_second)
{
  stow_device *d = open_device("sim:139G,paper");
  enum { COUNT = 139 * 512, ROUNDS = 4 };
  stow_page *pages = malloc(COUNT * sizeof *pages);
  CHECK(pages != NULL);
  stow_addr addr, others[500];
  for (int i = 0; i < 500; i++) CHECK_OK(device_reserve(d, &others[i], GIB, 0));
  CHECK_OK(device_reserve(d, &addr, 139 * GIB, 0));
  for (uint64_t i = 0; i < COUNT; i++)
    CHECK_OK(device_page_create(d, &pages[i], PAGE, STOW_TIER_VRAM));
  uint64_t ns = 0;
  for (int round = 0; round < ROUNDS; round++) {
    uint64_t start = clock_ns();
    for (uint64_t i = 0; i < COUNT; i++) CHECK_OK(device_map(d, addr + i * PAGE, PAGE, pages[i]));
    ns += clock_ns() - start;
    CHECK_OK(device_access(d, addr, 139 * GIB));
    CHECK_OK(device_unmap(d, addr, 139 * GIB));
  }
  for (uint64_t i = 0; i < COUNT; i++) CHECK_OK(device_page_release(d, pages[i]));
  CHECK_OK(device_unreserve(d, addr, 139 * GIB));
  for (int i = 0; i < 500; i++) CHECK_OK(device_unreserve(d, others[i], GIB));
  CHECK_OK(stow_device_close(d));
  free(pages);
  double rate = (double)COUNT * ROUNDS * 1e9 / (double)ns;
  harness_note("%.1f million map calls a second", rate / 1e6);
  /* Sanitizers and busy machines are slower; a search through the pages would be far below this. */
  if (rate < 1e5) FAIL("%.0f map calls a second", rate);
}

TEST(paper_addresses_are_no_addresses_of_a_process)
{
  stow_device *d = open_device("sim:1G,paper");
  stow_addr addr, none;
  CHECK_OK(device_reserve(d, &addr, GIB, GIB));
  CHECK(addr >> 56 != 0);
  CHECK_STATUS(device_reserve(d, &none, UINT64_C(1) << 47, 0), STOW_ERR_OUT_OF_MEMORY);
  CHECK_OK(device_unreserve(d, addr, GIB));
  CHECK_OK(stow_device_close(d));
}

/* ---- many ranges ---- */

TEST(an_address_is_found_among_many_ranges)
{
  stow_device *d = open_device("sim:1T,paper");
  enum { COUNT = 4000 };
  stow_addr at[COUNT];
  bool live[COUNT] = {false};
  uint64_t random = 1, size[COUNT];
  for (int step = 0; step < 40000; step++) {
    uint64_t i = harness_random(&random) % COUNT;
    if (live[i]) {
      CHECK_STATUS(device_plain_free(d, at[i] + 4096), STOW_ERR_STATE);
      CHECK_OK(device_fill(d, at[i] + size[i] - 1, 0, 1, NULL));
      CHECK_OK(device_plain_free(d, at[i]));
      CHECK_STATUS(device_fill(d, at[i], 0, 1, NULL), STOW_ERR_VIOLATION);
    } else {
      size[i] = PAGE << harness_random(&random) % 4;
      CHECK_OK(device_plain_alloc(d, &at[i], size[i], STOW_TIER_VRAM));
    }
    live[i] = !live[i];
  }
  for (int i = 0; i < COUNT; i++)
    if (live[i]) CHECK_OK(device_plain_free(d, at[i]));
  CHECK_U64(counts_of(d).vram_used_bytes, 0);
  CHECK_OK(stow_device_close(d));
}

TEST_MAIN
