/* Misuse of a heap: each case returns a status and a message, and never corrupts the heap. */
#include <stdlib.h>

#include "memory/sim_device.h"

static stow_heap *open_on(stow_device *d) {
  stow_heap *h;
  stow_heap_options o = STOW_HEAP_OPTIONS_INIT;
  o.device = d;
  o.background = false;
  CHECK_OK(stow_heap_open(&h, &o));
  return h;
}

TEST(requests_that_cannot_be_are_refused_with_the_reason)
{
  stow_device *d = sim_device(64 * MIB, 0);
  stow_heap *h = open_on(d);
  uint64_t p = 1;
  CHECK_STATUS(stow_heap_alloc(&p, h, 0, NULL), STOW_ERR_INVALID);
  CHECK_MESSAGE("zero bytes");
  CHECK_U64(p, 0);
  CHECK_STATUS(stow_heap_alloc(NULL, h, 1, NULL), STOW_ERR_INVALID);
  CHECK_MESSAGE("NULL");
  CHECK_STATUS(stow_heap_alloc(&p, NULL, 1, NULL), STOW_ERR_INVALID);
  CHECK_MESSAGE("NULL");
  CHECK_STATUS(stow_heap_alloc(&p, h, UINT64_MAX, NULL), STOW_ERR_OVERFLOW);
  CHECK_MESSAGE("18446744073709551615 bytes");
  CHECK_STATUS(stow_heap_alloc(&p, h, UINT64_MAX - 510, NULL), STOW_ERR_OVERFLOW);
  CHECK_STATUS(stow_heap_alloc(&p, h, UINT64_MAX / 2, NULL), STOW_ERR_OVERFLOW);
  CHECK_STATUS(stow_heap_alloc(&p, h, GIB * 64, NULL), STOW_ERR_OUT_OF_MEMORY);
  CHECK_MESSAGE("alloc of 64.0 GiB needs 64.0 GiB of pages; the vram limit is 64.0 MiB");
  CHECK_STATUS(stow_heap_alloc_aligned(&p, h, 1, 0, NULL), STOW_ERR_INVALID);
  CHECK_MESSAGE("power of two up to 2097152");
  CHECK_STATUS(stow_heap_alloc_aligned(&p, h, 1, 3, NULL), STOW_ERR_INVALID);
  CHECK_MESSAGE("alignment 3");
  CHECK_STATUS(stow_heap_alloc_aligned(&p, h, 1, GIB, NULL), STOW_ERR_INVALID);
  CHECK_MESSAGE("alignment 1073741824");
  CHECK_STATUS(stow_heap_alloc_aligned(&p, h, 1, UINT64_C(1) << 63, NULL), STOW_ERR_INVALID);
  shut(h, d);
}

/* Counts events: each case runs once on the hot path and once with a listener, which must get no
 * event. */
static uint64_t on_event(void *user, const stow_heap_event *e) {
  if (e->kind == STOW_EVENT_FREE) ++*(uint64_t *)user;
  return 0;
}

TEST(frees_that_cannot_be_are_refused_with_the_reason)
{
  for (int heard = 0; heard < 2; heard++) {
    stow_device *d = sim_device(64 * MIB, 0);
    stow_heap *h = open_on(d);
    uint64_t frees = 0, wild = 0;
    if (heard) CHECK_OK(stow_heap_add_sink(h, on_event, &frees, STOW_EVENT_ALL));
    for (int i = 0; i < 200; i++)
      CHECK_OK(stow_heap_free(h, need(h, 600, NULL), NULL)); /* warm
                                                              * up */
    frees = 0;
    uint64_t big = need(h, 8 * MIB, NULL), small = need(h, 600, NULL);
    CHECK_STATUS(stow_heap_free(h, 12345, NULL), STOW_ERR_NOT_FOUND);
    CHECK_MESSAGE("not an address of this heap");
    CHECK_STATUS(stow_heap_free(h, (uint64_t)(uintptr_t)&wild, NULL), STOW_ERR_NOT_FOUND);
    CHECK_STATUS(stow_heap_free(h, UINT64_MAX, NULL), STOW_ERR_NOT_FOUND);
    CHECK_STATUS(stow_heap_free(h, big + 512, NULL), STOW_ERR_NOT_FOUND);
    CHECK_MESSAGE("points into an allocation, not at its start");
    CHECK_STATUS(stow_heap_free(h, big + 4 * MIB, NULL), STOW_ERR_STATE);
    CHECK_MESSAGE("never allocated");
    CHECK_STATUS(stow_heap_free(h, small + 512, NULL), STOW_ERR_NOT_FOUND);
    CHECK_STATUS(stow_heap_free(h, small + 1, NULL), STOW_ERR_NOT_FOUND);
    CHECK_STATUS(stow_heap_free(h, small + 1024, NULL), STOW_ERR_STATE);
    CHECK_OK(stow_heap_free(h, 0, NULL));
    CHECK_U64(frees, 0);
    CHECK_OK(stow_heap_free(h, big, NULL));
    CHECK_STATUS(stow_heap_free(h, big, NULL), STOW_ERR_STATE);
    CHECK_MESSAGE("freed twice");
#ifdef STOWAGE_CHECKS
    CHECK_MESSAGE("allocated by the code at 0x");
    CHECK_MESSAGE("heap_misuse_test+0x"); /* in the form that addr2line accepts */
#endif
    CHECK_OK(stow_heap_free(h, small, NULL));
    CHECK_STATUS(stow_heap_free(h, small, NULL), STOW_ERR_STATE);
    CHECK_MESSAGE("freed twice");
    CHECK_U64(frees, heard ? 2 : 0);
    stow_heap_stats s = STOW_HEAP_STATS_INIT;
    CHECK_OK(stow_heap_get_stats(h, &s));
    CHECK_U64(s.live_count, 0);
    shut(h, d);
  }
}

TEST(a_closed_heap_says_so)
{
  stow_device *d = sim_device(64 * MIB, 0);
  stow_heap *h = open_on(d);
  uint64_t p, left = need(h, MIB, NULL);
  CHECK_STATUS(stow_heap_close(h), STOW_ERR_STATE);
  CHECK_MESSAGE("1 allocations live");
  CHECK_STATUS(stow_heap_free(h, left, NULL), STOW_ERR_STATE);
  CHECK_MESSAGE("it is closed");
  CHECK_STATUS(stow_heap_alloc(&p, h, 1, NULL), STOW_ERR_STATE);
  CHECK_MESSAGE("it is closed");
  CHECK_STATUS(stow_heap_record_stream(h, left, NULL), STOW_ERR_STATE);
  CHECK_STATUS(stow_heap_migrate(h, left, STOW_TIER_HOST), STOW_ERR_STATE);
  CHECK_STATUS(stow_heap_close(h), STOW_ERR_STATE);
  CHECK_MESSAGE("closed twice");
  CHECK_OK(stow_device_close(d)); /* everything was returned to the device */
}

TEST(a_limit_below_what_is_live_is_refused_and_changes_nothing)
{
  stow_device *d = sim_device(64 * MIB, 0);
  stow_heap *h = open_on(d);
  uint64_t p = need(h, 20 * MIB, NULL), q = need(h, 20 * MIB, NULL);
  CHECK_OK(stow_heap_free(h, q, NULL));
  CHECK_STATUS(stow_heap_set_limit(h, STOW_TIER_VRAM, 10 * MIB), STOW_ERR_STATE);
  CHECK_MESSAGE(
      "limit of 10485760 bytes for vram: live allocations hold 20971520; free some first");
  stow_heap_stats s = STOW_HEAP_STATS_INIT;
  CHECK_OK(stow_heap_get_stats(h, &s));
  CHECK_U64(s.tier[STOW_TIER_VRAM].limit_bytes, 64 * MIB);
  CHECK_STATUS(stow_heap_set_limit(h, STOW_TIER_DISK, 0), STOW_ERR_INVALID);
  CHECK_MESSAGE("tier 2");
  CHECK_OK(stow_heap_free(h, p, NULL));
  CHECK_OK(stow_heap_set_limit(h, STOW_TIER_VRAM, 10 * MIB));
  shut(h, d);
}

TEST(a_device_that_vanishes_is_reported_by_every_call)
{
  stow_device *d = sim_device(64 * MIB, 0), *breaks;
  CHECK_OK(stow_fault_open(&breaks, d));
  stow_heap *h = open_on(breaks);
  uint64_t p = need(h, 8 * MIB, NULL), q;
  CHECK_OK(stow_fault_arm(breaks, STOW_FAULT_PAGE_CREATE, 1, true, STOW_ERR_DEVICE_LOST));
  CHECK_STATUS(stow_heap_alloc(&q, h, 16 * MIB, NULL), STOW_ERR_DEVICE_LOST);
  CHECK_U64(q, 0);
  CHECK_STATUS(stow_heap_alloc(&q, h, 512, NULL), STOW_ERR_DEVICE_LOST);
  CHECK_MESSAGE("its device is lost; close it and open a new one");
  CHECK_STATUS(stow_heap_free(h, p, NULL), STOW_ERR_DEVICE_LOST);
  CHECK_MESSAGE("its device is lost");
  stow_heap_stats s = STOW_HEAP_STATS_INIT;
  CHECK_STATUS(stow_heap_get_stats(h, &s), STOW_ERR_DEVICE_LOST);
  CHECK_STATUS(stow_heap_close(h), STOW_ERR_STATE); /* p was live; the heap is closed anyway */
  CHECK_STATUS(stow_heap_free(h, p, NULL), STOW_ERR_STATE);
  CHECK_OK(stow_device_close(breaks));
}

TEST(heap_migrate_says_what_it_cannot_do)
{
  stow_device *d = sim_device(64 * MIB, 0);
  stow_heap *h = open_on(d);
  uint64_t p = need(h, 8 * MIB, NULL), small = need(h, 100, NULL);
  CHECK_STATUS(stow_heap_migrate(h, p, STOW_TIER_HOST), STOW_ERR_UNSUPPORTED);
  CHECK_STATUS(stow_heap_migrate(h, p, STOW_TIER_DISK), STOW_ERR_UNSUPPORTED);
  CHECK_MESSAGE("disk_folder");
  CHECK_STATUS(stow_heap_migrate(h, small, STOW_TIER_DISK), STOW_ERR_UNSUPPORTED);
  CHECK_MESSAGE("tag");
  CHECK_STATUS(stow_heap_migrate(h, p + 512, STOW_TIER_DISK), STOW_ERR_NOT_FOUND);
  CHECK_STATUS(stow_heap_migrate(h, p, (stow_tier)9), STOW_ERR_INVALID);
  CHECK_OK(stow_heap_free(h, p, NULL));
  CHECK_OK(stow_heap_free(h, small, NULL));
  shut(h, d);
}

TEST(heap_refuses_options_it_does_not_know)
{
  stow_heap *h;
  stow_heap_options o = STOW_HEAP_OPTIONS_INIT;
  o.device_name = "sim:64M";
  o.struct_bytes = 0;
  CHECK_STATUS(stow_heap_open(&h, &o), STOW_ERR_INVALID);
  o.struct_bytes = sizeof o;
  o.page_bytes_max = 3 * MIB;
  CHECK_STATUS(stow_heap_open(&h, &o), STOW_ERR_INVALID);
  o.page_bytes_max = 0;
  CHECK_OK(stow_heap_open(&h, &o));
  CHECK_OK(stow_heap_close(h));
  CHECK_OK(stow_heap_close(NULL));
  stow_sim_options so = STOW_SIM_OPTIONS_INIT;
  so.no_vmm = true;
  CHECK_OK(stow_sim_open(&o.device, &so));
  CHECK_STATUS(stow_heap_open(&h, &o), STOW_ERR_UNSUPPORTED);
  CHECK_OK(stow_device_close(o.device));
}

TEST_MAIN
