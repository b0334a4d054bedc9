/* The cuda backend on a real GPU: what only a GPU can show. Runs in this process, because a driver
 * does not survive a fork; $STOWAGE_LIBCUDA selects a stand-in, to test the test. */
#include <dlfcn.h>
#include <stdlib.h>

#include <stowage/size.h>

#include "base/clock.h"
#include "device/cuda_probe.h"
#include "device/device.h"
#include "harness.h"

#define MIB  (UINT64_C(1) << 20)
#define RUNS 21

static stow_device *open_device(stow_device_props *props) {
  int count = 0;
  CHECK_OK(stow_device_count(&count));
  if (count == 0) SKIP("no device: the driver shows none");
  stow_device *d = NULL;
  CHECK_OK(stow_device_open(&d, "0"));
  CHECK_OK(device_props(d, props));
  return d;
}

static double ms_since(uint64_t start_ns) {
  return (double)(clock_ns() - start_ns) / 1e6;
}

TEST(the_path_to_host_memory_is_found_by_trying)
{
  stow_device_props props = STOW_DEVICE_PROPS_INIT;
  stow_device *d = open_device(&props);
  cuda_probe probe;
  uint64_t start = clock_ns();
  CHECK_OK(cuda_probe_get(&probe, "0", true));
  double tried_ms = ms_since(start);
  if (!probe.certain) FAIL("not certain: %s", probe.reason);
  start = clock_ns();
  cuda_probe again;
  CHECK_OK(cuda_probe_get(&again, "0", false));
  CHECK(again.from_cache && again.backing == probe.backing && again.numa_node == probe.numa_node);
  harness_note("%s, node %d (%s); tried in %.0f ms, remembered in %.2f ms",
               cuda_backing_name(probe.backing), probe.numa_node, probe.reason, tried_ms,
               ms_since(start));
  CHECK_OK(stow_device_close(d));
}

TEST(opening_costs_little_more_than_the_context)
{
  stow_device_props props = STOW_DEVICE_PROPS_INIT;
  stow_device *d = open_device(&props), *second = NULL; /* the first device holds the context */
  uint64_t start = clock_ns();
  CHECK_OK(stow_device_open(&second, "0"));
  double open_ms = ms_since(start);
  CHECK_OK(stow_device_close(second));
  CHECK_OK(stow_device_close(d));
  start = clock_ns();
  CHECK_OK(stow_device_open(&d, "0"));
  harness_note("%s, CUDA %d: %.2f ms beside a context, %.0f ms with making one", props.name,
               props.driver_version, open_ms, ms_since(start));
  CHECK_OK(stow_device_close(d));
  CHECK(open_ms < 20);
}

TEST(no_context_is_left_current)
{
  stow_device_props props = STOW_DEVICE_PROPS_INIT;
  stow_device *d = open_device(&props);
  const char *path = getenv("STOWAGE_LIBCUDA");
  void *library = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW);
  CHECK(library != NULL);
  int (*current)(void **) = (int (*)(void **))(uintptr_t)dlsym(library, "cuCtxGetCurrent");
  void *before = NULL, *after = NULL;
  stow_addr addr;
  CHECK(current != NULL && current(&before) == 0);
  CHECK_OK(device_plain_alloc(d, &addr, 4096, STOW_TIER_VRAM));
  CHECK_OK(device_fill(d, addr, 1, 4096, NULL));
  CHECK_OK(device_stream_sync(d, NULL));
  CHECK_OK(device_plain_free(d, addr));
  CHECK(current(&after) == 0 && after == before);
  CHECK_OK(stow_device_close(d));
}

TEST(pages_on_the_host_take_no_vram)
{
  stow_device_props props = STOW_DEVICE_PROPS_INIT;
  stow_device *d = open_device(&props);
  if (props.host_backing != STOW_HOST_NUMA && props.host_backing != STOW_HOST_LOCATION) {
    CHECK_OK(stow_device_close(d));
    SKIP("no pages on the host here: path %s", cuda_backing_name(props.host_backing));
  }
  uint64_t before, after, bytes = 256 * MIB;
  stow_page page;
  CHECK_OK(device_memory(d, STOW_TIER_VRAM, &before, NULL));
  uint64_t start = clock_ns();
  CHECK_OK(device_page_create(d, &page, bytes, STOW_TIER_HOST));
  double create_ms = ms_since(start);
  CHECK_OK(device_memory(d, STOW_TIER_VRAM, &after, NULL));
  CHECK_OK(device_page_release(d, page));
  CHECK_OK(stow_device_close(d));
  CHECK(before < after + bytes / 2);
  harness_note("256 MiB in %.0f ms", create_ms);
}

TEST(too_much_says_how_much_is_there)
{
  stow_device_props props = STOW_DEVICE_PROPS_INIT;
  stow_device *d = open_device(&props);
  stow_page page;
  stow_addr addr;
  CHECK_STATUS(
      device_page_create(d, &page, props.vram_bytes / MIB / 2 * 2 * MIB + 64 * MIB, STOW_TIER_VRAM),
      STOW_ERR_OUT_OF_MEMORY);
  CHECK_MESSAGE(" free: ");
  CHECK_MESSAGE("CUDA_ERROR_OUT_OF_MEMORY");
  CHECK_STATUS(device_reserve(d, &addr, UINT64_C(1) << 60, 0), STOW_ERR_OUT_OF_MEMORY);
  CHECK_OK(stow_device_close(d));
}

/* Copies between all pairs of host and device memory. */
TEST(copies_go_between_all_places)
{
  stow_device_props props = STOW_DEVICE_PROPS_INIT;
  stow_device *d = open_device(&props);
  enum { PLACES = 4 };
  stow_addr at[PLACES] = {0};
  uint64_t bytes = 4 * MIB;
  unsigned char *host = malloc(bytes), *back = malloc(bytes);
  CHECK(host != NULL && back != NULL);
  CHECK_OK(device_plain_alloc(d, &at[0], bytes, STOW_TIER_VRAM));
  if (props.host_backing != STOW_HOST_NONE)
    CHECK_OK(device_plain_alloc(d, &at[1], bytes, STOW_TIER_HOST));
  stow_page pages[2] = {0};
  for (int tier = 0; tier < 2 && props.has_vmm; tier++) {
    if (tier == 1 && props.host_backing < STOW_HOST_LOCATION) continue;
    CHECK_OK(device_reserve(d, &at[2 + tier], bytes, 0));
    CHECK_OK(device_page_create(d, &pages[tier], bytes, (stow_tier)tier));
    CHECK_OK(device_map(d, at[2 + tier], bytes, pages[tier]));
    CHECK_OK(device_access(d, at[2 + tier], bytes));
  }
  uint64_t random = 11;
  int copies = 0;
  for (int from = 0; from < PLACES; from++)
    for (int to = 0; to < PLACES; to++) {
      if (from == to || at[from] == 0 || at[to] == 0) continue;
      for (uint64_t i = 0; i < bytes; i++) host[i] = (unsigned char)harness_random(&random);
      CHECK_OK(device_copy(d, at[from], (uintptr_t)host, bytes, NULL));
      CHECK_OK(device_copy(d, at[to], at[from], bytes, NULL));
      CHECK_OK(device_copy(d, (uintptr_t)back, at[to], bytes, NULL));
      CHECK_OK(device_stream_sync(d, NULL));
      if (memcmp(host, back, bytes) != 0) FAIL("from place %d to %d: bytes changed", from, to);
      copies++;
    }
  for (int tier = 0; tier < 2; tier++) {
    if (at[tier] != 0) CHECK_OK(device_plain_free(d, at[tier]));
    if (at[2 + tier] == 0) continue;
    CHECK_OK(device_unmap(d, at[2 + tier], bytes));
    CHECK_OK(device_page_release(d, pages[tier]));
    CHECK_OK(device_unreserve(d, at[2 + tier], bytes));
  }
  free(host);
  free(back);
  CHECK_OK(stow_device_close(d));
  harness_note("%d pairs of places", copies);
}

/* ---- what the calls cost through the device interface ---- */

static int compare(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static double median_us(uint64_t *ns) {
  qsort(ns, RUNS, sizeof *ns, compare);
  uint64_t middle = ns[RUNS / 2];
  return (double)middle / 1e3;
}

#define TIMED(slot, call)                                                                          \
  do {                                                                                             \
    uint64_t timed_start = clock_ns();                                                             \
    CHECK_OK(call);                                                                                \
    (slot)[run] = clock_ns() - timed_start;                                                        \
  } while (0)

TEST(what_page_calls_cost)
{
  stow_device_props props = STOW_DEVICE_PROPS_INIT;
  stow_device *d = open_device(&props);
  if (!props.has_vmm) {
    CHECK_OK(stow_device_close(d));
    SKIP("this device or driver has no pages");
  }
  uint64_t ns[8][RUNS];
  stow_event event;
  CHECK_OK(device_event_create(d, &event));
  for (int run = 0; run < RUNS; run++) {
    stow_addr addr;
    stow_page page;
    TIMED(ns[0], device_reserve(d, &addr, props.page_bytes, 0));
    TIMED(ns[1], device_page_create(d, &page, props.page_bytes, STOW_TIER_VRAM));
    TIMED(ns[2], device_map(d, addr, props.page_bytes, page));
    TIMED(ns[3], device_access(d, addr, props.page_bytes));
    TIMED(ns[4], device_event_query(d, event));
    TIMED(ns[5], device_unmap(d, addr, props.page_bytes));
    TIMED(ns[6], device_page_release(d, page));
    TIMED(ns[7], device_unreserve(d, addr, props.page_bytes));
  }
  CHECK_OK(device_event_destroy(d, event));
  CHECK_OK(stow_device_close(d));
  harness_note("one page, median us: reserve %.1f create %.1f map %.1f access %.1f unmap %.1f "
               "release %.1f unreserve %.1f; event query %.2f",
               median_us(ns[0]), median_us(ns[1]), median_us(ns[2]), median_us(ns[3]),
               median_us(ns[5]), median_us(ns[6]), median_us(ns[7]), median_us(ns[4]));
}

int main(int argc, char **argv) {
  char here[] = "--here", *words[64] = {argv[0], here};
  int count = 2;
  for (int i = 1; i < argc && count < 64; i++) words[count++] = argv[i];
  return harness_main(count, words);
}
