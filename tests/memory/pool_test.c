/* Pool: the guarantees of its header, tested through a heap with its background thread. */
#include <sched.h>
#include <stdlib.h>

#include "memory/sim_device.h"

static stow_device *paper(uint64_t vram, uint64_t host) {
  stow_sim_options o = STOW_SIM_OPTIONS_INIT;
  o.vram_bytes = vram;
  o.host_bytes = host;
  o.paper = true;
  return sim_device_of(o);
}

static stow_heap *open_on(stow_device *d, uint64_t host_limit, uint64_t reserve,
                          uint64_t host_reserve) {
  stow_heap *h;
  stow_heap_options o = STOW_HEAP_OPTIONS_INIT;
  o.device = d;
  o.host_limit_bytes = host_limit;
  o.reserve_bytes = reserve;
  o.host_reserve_bytes = host_reserve;
  CHECK_OK(stow_heap_open(&h, &o));
  return h;
}

/* Waits until the tier has that many bytes cached. */
static void wait_cached(stow_heap *h, stow_tier tier, uint64_t bytes) {
  while (stats_of(h).tier[tier].cached_bytes != bytes) sched_yield();
}

TEST(a_reserve_is_made_ahead_and_made_again_when_it_is_used)
{
  harness_deadline(60);
  stow_device *d = paper(512 * MIB, 0);
  stow_heap *h = open_on(d, 0, 32 * MIB, 0);
  wait_cached(h, STOW_TIER_VRAM, 32 * MIB);
  uint64_t creates = stats_of(h).page_creates, p = need(h, 20 * MIB, NULL);
  CHECK(stats_of(h).page_creates >= creates); /* the request found its pages already created */
  wait_cached(h, STOW_TIER_VRAM, 32 * MIB);   /* and they are replaced */
  CHECK_U64(stats_of(h).page_creates, creates + 10);
  CHECK_OK(stow_heap_free(h, p, NULL));
  shut(h, d);
}

TEST(host_pages_are_made_ahead_of_the_spill_that_needs_them)
{
  harness_deadline(60);
  stow_device *d = paper(64 * MIB, 512 * MIB);
  stow_heap *h = open_on(d, 512 * MIB, 0, 256 * MIB);
  wait_cached(h, STOW_TIER_HOST, 256 * MIB);
  stow_sim_counts before = STOW_SIM_COUNTS_INIT, after = STOW_SIM_COUNTS_INIT;
  uint64_t full = need(h, 60 * MIB, NULL);
  CHECK_OK(stow_sim_get_counts(d, &before));
  uint64_t spilled = need(h, 64 * MIB, NULL); /* exactly one of the pages created ahead */
  CHECK_OK(stow_sim_get_counts(d, &after));
  CHECK_U64(stats_of(h).spilled_bytes, 64 * MIB);
  CHECK(after.host_used_bytes >= before.host_used_bytes); /* taken from the cache */
  wait_cached(h, STOW_TIER_HOST, 256 * MIB);              /* and created again in the background */
  CHECK_U64(stats_of(h).tier[STOW_TIER_HOST].held_bytes, 320 * MIB);
  CHECK_OK(stow_heap_free(h, full, NULL));
  CHECK_OK(stow_heap_free(h, spilled, NULL));
  shut(h, d);
}

TEST(what_lies_cached_beyond_the_reserve_goes_back_when_nobody_asks)
{
  harness_deadline(60);
  stow_device *d = paper(512 * MIB, 0);
  stow_heap *h = open_on(d, 0, 16 * MIB, 0);
  uint64_t p = need(h, 300 * MIB, NULL), keep = need(h, 2 * MIB, NULL);
  CHECK_OK(stow_heap_free(h, p, NULL));
  CHECK_OK(stow_heap_trim(h, UINT64_MAX, NULL)); /* unmapped, but kept */
  CHECK(stats_of(h).tier[0].held_bytes >= 300 * MIB);
  while (stats_of(h).tier[0].cached_bytes > 16 * MIB) sched_yield();
  stow_sim_counts c = STOW_SIM_COUNTS_INIT;
  CHECK_OK(stow_sim_get_counts(d, &c));
  CHECK(c.vram_used_bytes <= 32 * MIB); /* returned to the device */
  CHECK_OK(stow_heap_free(h, keep, NULL));
  shut(h, d);
}

TEST(a_reserve_never_passes_the_limit)
{
  harness_deadline(60);
  stow_device *d = paper(512 * MIB, 0);
  stow_heap *h;
  stow_heap_options o = STOW_HEAP_OPTIONS_INIT;
  o.device = d;
  o.vram_limit_bytes = 64 * MIB;
  o.reserve_bytes = 256 * MIB;
  CHECK_OK(stow_heap_open(&h, &o));
  wait_cached(h, STOW_TIER_VRAM, 64 * MIB);
  uint64_t p = need(h, 64 * MIB, NULL); /* served from the reserve */
  CHECK_OK(stow_heap_free(h, p, NULL));
  stow_sim_counts c = STOW_SIM_COUNTS_INIT;
  CHECK_OK(stow_sim_get_counts(d, &c));
  CHECK(c.vram_peak_bytes <= 64 * MIB);
  shut(h, d);
}

TEST(cached_pages_make_way_under_pressure)
{
  /* 64 MiB of host pages are cached in one piece, and a request needs small ones: the large page is
   * released rather than the request refused. */
  stow_device *d = paper(64 * MIB, 64 * MIB);
  stow_heap *h;
  stow_heap_options o = STOW_HEAP_OPTIONS_INIT;
  o.device = d;
  o.host_limit_bytes = 64 * MIB;
  o.host_reserve_bytes = 64 * MIB;
  CHECK_OK(stow_heap_open(&h, &o));
  wait_cached(h, STOW_TIER_HOST, 64 * MIB);
  CHECK_U64(stats_of(h).page_creates, 1);
  uint64_t full = need(h, 62 * MIB, NULL), p[8];
  for (int i = 0; i < 8; i++) p[i] = need(h, 3 * MIB, NULL);
  CHECK(stats_of(h).page_releases >= 1);
  CHECK(stats_of(h).tier[STOW_TIER_HOST].peak_held_bytes <= 64 * MIB);
  for (int i = 0; i < 8; i++) CHECK_OK(stow_heap_free(h, p[i], NULL));
  CHECK_OK(stow_heap_free(h, full, NULL));
  shut(h, d);
}

TEST_MAIN
