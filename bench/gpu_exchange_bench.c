/* Exchange bench: the cost of exchanging the pages at an address on a GPU, by page size.
 *
 *   STOWAGE_COMMAND=build/release/stowage gpu_exchange_bench [GIB]
 *
 * An exchange unmaps what is behind a range and maps other pages there: `in` replaces host pages by
 * vram pages, `out` the reverse. Ranges are contiguous: one unmap and one access call each. Every
 * page also has a permanent second mapping, as the mover keeps for its copies; `beside` measures
 * the exchange while copies run between those in one direction, `beside_both` in both.
 * src/residency/cost.c holds the figures. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "device/device.h"

#define MIB       ((uint64_t)1 << 20)
#define ROUNDS    4
#define PAGES_MAX 4096

static stow_page pages[2][PAGES_MAX]; /* indexed by tier */

static void must(stow_status status, const char *what) {
  if (status == STOW_OK) return;
  fprintf(stderr, "gpu_exchange_bench: %s: %s\n", what, stow_status_message());
  exit(1);
}

static void map_range(stow_device *d, stow_addr at, uint64_t page_bytes, uint64_t count, int tier) {
  for (uint64_t i = 0; i < count; i++)
    must(device_map(d, at + i * page_bytes, page_bytes, pages[tier][i]), "map");
  must(device_access(d, at, count * page_bytes), "access");
}

/* Returns the milliseconds per GiB to replace the pages at `at` with the pages of `tier`. */
static double exchange(stow_device *d, stow_addr at, uint64_t page_bytes, uint64_t count,
                       int tier) {
  uint64_t start = clock_ns();
  must(device_unmap(d, at, count * page_bytes), "unmap");
  map_range(d, at, page_bytes, count, tier);
  return (double)(clock_ns() - start) / 1e6 * 0x1p30 / (double)(count * page_bytes);
}

static void measure(stow_device *d, uint64_t page_bytes, uint64_t total) {
  uint64_t count = total / page_bytes, bytes = count * page_bytes, half = bytes / 2;
  stow_addr at, alias[2];
  stow_stream stream;
  double cost[3][2] = {{0}}; /* [directions in which copies run][tier] */
  stow_stream other;
  must(device_stream_create(d, &stream), "stream");
  must(device_stream_create(d, &other), "stream");
  must(device_reserve(d, &at, bytes, 0), "reserve");
  for (int tier = 0; tier < 2; tier++) {
    must(device_reserve(d, &alias[tier], bytes, 0), "reserve");
    for (uint64_t i = 0; i < count; i++)
      must(device_page_create(d, &pages[tier][i], page_bytes, (stow_tier)tier), "create");
    map_range(d, alias[tier], page_bytes, count, tier);
  }
  map_range(d, at, page_bytes, count, 1);
  for (int beside = 0; beside < 3; beside++)
    for (int round = 0; round < ROUNDS; round++) {
      for (int i = 0; beside && i < 8; i++)
        must(device_copy(d, alias[0], alias[1], half, stream), "copy");
      for (int i = 0; beside == 2 && i < 8; i++)
        must(device_copy(d, alias[1] + half, alias[0] + half, half, other), "copy");
      for (int tier = 0; tier < 2; tier++)
        cost[beside][tier] += exchange(d, at, page_bytes, count, tier) / ROUNDS;
      must(device_stream_sync(d, stream), "sync");
      must(device_stream_sync(d, other), "sync");
    }
  uint64_t start = clock_ns();
  must(device_copy(d, alias[0], alias[1], bytes, stream), "copy");
  must(device_stream_sync(d, stream), "sync");
  double copy = (double)(clock_ns() - start) / 1e6 * 0x1p30 / (double)bytes;
  start = clock_ns();
  for (int i = 0; i < 2; i++) {
    must(device_copy(d, alias[0], alias[1], half, stream), "copy");
    must(device_copy(d, alias[1] + half, alias[0] + half, half, other), "copy");
  }
  must(device_stream_sync(d, stream), "sync");
  must(device_stream_sync(d, other), "sync");
  double both = (double)(clock_ns() - start) / 1e6 * 0x1p30 / (double)bytes;
  printf(
      "case=exchange_%llu_mib in=%.2f out=%.2f in_beside=%.2f out_beside=%.2f in_beside_both=%.2f "
      "out_beside_both=%.2f copy=%.2f copy_both=%.2f unit=ms/GiB\n",
      (unsigned long long)(page_bytes / MIB), cost[0][0], cost[0][1], cost[1][0], cost[1][1],
      cost[2][0], cost[2][1], copy, both);
  must(device_unmap(d, at, bytes), "unmap");
  must(device_unreserve(d, at, bytes), "unreserve");
  for (int tier = 0; tier < 2; tier++) {
    must(device_unmap(d, alias[tier], bytes), "unmap");
    must(device_unreserve(d, alias[tier], bytes), "unreserve");
    for (uint64_t i = 0; i < count; i++) must(device_page_release(d, pages[tier][i]), "release");
  }
  must(device_stream_destroy(d, stream), "stream");
  must(device_stream_destroy(d, other), "stream");
}

int main(int argc, char **argv) {
  static const uint64_t sizes[] = {2, 20, 64, 256, 1024}; /* MiB; 20 is PyTorch's page */
  uint64_t total = (argc > 1 ? strtoull(argv[1], NULL, 10) : 1) << 30;
  stow_device *d;
  must(stow_device_open(&d, getenv("STOWAGE_DEVICE")), "open");
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (sizes[i] * MIB <= total && total / (sizes[i] * MIB) <= PAGES_MAX)
      measure(d, sizes[i] * MIB, total);
  stow_device_close(d);
  return 0;
}
