/* Heap: one behaviour of its header per test, on the simulated device. */
#include <stdlib.h>

#include "memory/sim_device.h"

static stow_heap *open_on(stow_device *d, uint64_t host_limit) {
  stow_heap *h;
  stow_heap_options o = STOW_HEAP_OPTIONS_INIT;
  o.device = d;
  o.host_limit_bytes = host_limit;
  o.background = false;
  CHECK_OK(stow_heap_open(&h, &o));
  return h;
}

TEST(heap_gives_memory_that_can_be_written_and_read)
{
  stow_device *d = sim_device(256 * MIB, 0);
  stow_heap *h = open_on(d, 0);
  uint64_t sizes[] = {1, 512, 513, 5000, 16384, 16385, 100000, MIB, 2 * MIB + 1, 40 * MIB};
  uint64_t ptr[10];
  char back[64];
  for (int i = 0; i < 10; i++) {
    ptr[i] = need(h, sizes[i], NULL);
    CHECK_OK(d->ops->fill(d, ptr[i], (uint8_t)(i + 1), sizes[i], NULL));
  }
  for (int i = 0; i < 10; i++) {
    uint64_t n = sizes[i] < 64 ? sizes[i] : 64;
    CHECK_OK(d->ops->copy(d, (stow_addr)(uintptr_t)back, ptr[i] + sizes[i] - n, n, NULL));
    CHECK_OK(d->ops->stream_sync(d, NULL));
    for (uint64_t k = 0; k < n; k++) CHECK_U64((uint8_t)back[k], i + 1);
    CHECK_OK(stow_heap_check(h));
  }
  for (int i = 0; i < 10; i++) CHECK_OK(stow_heap_free(h, ptr[i], NULL));
  CHECK_U64(stats_of(h).live_count, 0);
  shut(h, d);
}

TEST(heap_wastes_less_than_a_page_on_odd_sizes)
{
  stow_device *d = sim_device(256 * MIB, 0);
  stow_heap *h = open_on(d, 0);
  uint64_t ptr[40];
  for (int i = 0; i < 40; i++) ptr[i] = need(h, 2 * MIB + 100000, NULL);
  stow_heap_stats s = stats_of(h);
  CHECK(s.tier[0].held_bytes <= s.tier[0].live_bytes + 2 * MIB);
  for (int i = 0; i < 40; i++) CHECK_OK(stow_heap_free(h, ptr[i], NULL));
  shut(h, d);
}

TEST(heap_reuses_at_once_on_the_same_stream)
{
  stow_device *d = sim_device(64 * MIB, 0);
  stow_heap *h = open_on(d, 0);
  uint64_t a = need(h, 40 * MIB, NULL);
  CHECK_OK(stow_sim_submit(d, NULL, a, 40 * MIB, STOW_SIM_WRITE, 1000000));
  CHECK_OK(stow_heap_free(h, a, NULL));
  uint64_t b = need(h, 40 * MIB, NULL);
  CHECK_U64(a, b);
  CHECK_OK(stow_sim_submit(d, NULL, b, 40 * MIB, STOW_SIM_WRITE, 1));
  CHECK_OK(stow_heap_free(h, b, NULL));
  stow_sim_counts c = STOW_SIM_COUNTS_INIT;
  CHECK_OK(stow_sim_get_counts(d, &c));
  CHECK_U64(c.violations, 0);
  CHECK_U64(c.event_waits, 0);
  shut(h, d);
}

TEST(heap_moves_free_pages_under_a_new_range)
{
  stow_device *d = sim_device(64 * MIB, 0);
  stow_heap *h = open_on(d, 0);
  uint64_t p[8];
  for (int i = 0; i < 8; i++) p[i] = need(h, 8 * MIB, NULL);
  for (int i = 0; i < 8; i += 2) {
    CHECK_OK(stow_sim_submit(d, NULL, p[i], 8 * MIB, STOW_SIM_WRITE, 1000));
    CHECK_OK(stow_heap_free(h, p[i], NULL));
  }
  uint64_t big = need(h, 32 * MIB, NULL); /* four holes of 8 MiB, none of 32 */
  CHECK_OK(stow_sim_submit(d, NULL, big, 32 * MIB, STOW_SIM_WRITE, 10));
  CHECK(stats_of(h).stitches > 0);
  stow_sim_counts c = STOW_SIM_COUNTS_INIT;
  CHECK_OK(stow_sim_get_counts(d, &c));
  CHECK_U64(c.violations, 0);
  CHECK_U64(c.event_waits, 0); /* pages are aliased, not waited for */
  CHECK_OK(stow_heap_free(h, big, NULL));
  for (int i = 1; i < 8; i += 2) CHECK_OK(stow_heap_free(h, p[i], NULL));
  shut(h, d);
}

/* Moving pages leaves their old addresses mapped. A request that needs some of them unmaps only
 * those, and moved memory keeps its contents. */
TEST(heap_unmaps_old_addresses_only_where_they_are_wanted_again)
{
  stow_device *d = sim_device(24 * MIB, 0);
  stow_heap *h = open_on(d, 0);
  char back[64];
  uint64_t a = need(h, 16 * MIB, NULL), guard = need(h, 2 * MIB, NULL);
  CHECK_OK(stow_heap_free(h, a, NULL));
  uint64_t moved = need(h, 20 * MIB, NULL); /* 3 new pages and 7 of a's 8 */
  CHECK_OK(d->ops->stream_sync(d, NULL));
  CHECK_U64(stats_of(h).unmaps, 0);
  CHECK_OK(stow_heap_free(h, moved, NULL));
  moved = need(h, 18 * MIB, NULL); /* leaves the last page free, like a's last page */
  CHECK_OK(d->ops->fill(d, moved, 7, 18 * MIB, NULL));
  CHECK_OK(d->ops->stream_sync(d, NULL));
  uint64_t two = need(h, 4 * MIB, NULL);
  CHECK_U64(two, a + 12 * MIB); /* where a page is left, and the address before it */
  stow_sim_counts c = STOW_SIM_COUNTS_INIT;
  CHECK_OK(stow_sim_get_counts(d, &c));
  CHECK_U64(c.unmap, 1);
  CHECK_U64(stats_of(h).unmaps, 1);
  CHECK_OK(d->ops->fill(d, two, 9, 4 * MIB, NULL));
  for (uint64_t at = 0; at < 18 * MIB; at += 2 * MIB) {
    CHECK_OK(d->ops->copy(d, (stow_addr)(uintptr_t)back, moved + at, sizeof back, NULL));
    CHECK_OK(d->ops->stream_sync(d, NULL));
    CHECK(back[0] == 7 && back[63] == 7);
  }
  CHECK_OK(stow_heap_check(h));
  uint64_t *all[] = {&moved, &two, &guard};
  for (int i = 0; i < 3; i++) CHECK_OK(stow_heap_free(h, *all[i], NULL));
  uint64_t released = 0; /* a page is released only when it is mapped nowhere, so the rest is
                          * unmapped now */
  CHECK_OK(stow_heap_trim(h, 0, &released));
  CHECK_U64(released, 24 * MIB);
  CHECK_OK(stow_sim_get_counts(d, &c));
  CHECK_U64(c.violations, 0);
  shut(h, d);
}

TEST(heap_passes_memory_to_another_stream_only_after_its_event)
{
  stow_device *d = sim_device(64 * MIB, 0);
  stow_heap *h = open_on(d, 0);
  stow_stream s1, s2;
  CHECK_OK(d->ops->stream_create(d, &s1));
  CHECK_OK(d->ops->stream_create(d, &s2));
  uint64_t a = need(h, 60 * MIB, s1);
  CHECK_OK(stow_sim_submit(d, s1, a, 60 * MIB, STOW_SIM_WRITE, 5000));
  CHECK_OK(stow_heap_free(h, a, s1));
  uint64_t b = need(h, 60 * MIB, s2);
  CHECK_OK(stow_sim_submit(d, s2, b, 60 * MIB, STOW_SIM_WRITE, 10));
  CHECK_OK(stow_heap_free(h, b, s2));
  stow_sim_counts c = STOW_SIM_COUNTS_INIT;
  CHECK_OK(stow_sim_get_counts(d, &c));
  CHECK_U64(c.violations, 0);
  CHECK_OK(d->ops->stream_sync(d, s1));
  CHECK_OK(d->ops->stream_sync(d, s2));
  CHECK_OK(stow_heap_check(h));
  CHECK_OK(stow_heap_close(h));
  CHECK_OK(d->ops->stream_destroy(d, s1));
  CHECK_OK(d->ops->stream_destroy(d, s2));
  CHECK_OK(stow_device_close(d));
}

TEST(heap_waits_for_recorded_streams_before_it_reuses)
{
  stow_device *d = sim_device(64 * MIB, 0);
  stow_heap *h = open_on(d, 0);
  stow_stream s;
  CHECK_OK(d->ops->stream_create(d, &s));
  for (int small = 0; small < 2; small++) {
    uint64_t bytes = small ? 4096 : 60 * MIB;
    uint64_t a = need(h, bytes, NULL);
    CHECK_OK(stow_heap_record_stream(h, a, s));
    CHECK_OK(stow_sim_submit(d, s, a, bytes, STOW_SIM_READ, 5000));
    CHECK_OK(stow_heap_free(h, a, NULL));
    CHECK_U64(stats_of(h).pending_count, 1);
    CHECK_STATUS(stow_heap_free(h, a, NULL), STOW_ERR_STATE);
    CHECK_MESSAGE("twice");
    uint64_t b = need(h, bytes, NULL);
    CHECK(small ? b != a : true);
    CHECK_OK(stow_sim_submit(d, NULL, b, bytes, STOW_SIM_WRITE, 10));
    CHECK_OK(stow_heap_free(h, b, NULL));
    CHECK_OK(d->ops->stream_sync(d, s));
    CHECK_OK(stow_heap_trim(h, 0, NULL));
    CHECK_U64(stats_of(h).pending_count, 0);
  }
  stow_sim_counts c = STOW_SIM_COUNTS_INIT;
  CHECK_OK(stow_sim_get_counts(d, &c));
  CHECK_U64(c.violations, 0);
  CHECK_OK(stow_heap_close(h));
  CHECK_OK(d->ops->stream_destroy(d, s));
  CHECK_OK(stow_device_close(d));
}

TEST(heap_never_holds_more_than_its_limit)
{
  stow_device *d = sim_device(GIB, 0);
  stow_heap *h;
  stow_heap_options o = STOW_HEAP_OPTIONS_INIT;
  o.device = d;
  o.background = false;
  o.vram_limit_bytes = 100 * MIB;
  CHECK_OK(stow_heap_open(&h, &o));
  uint64_t p[64], n = 0;
  while (n < 64 && stow_heap_alloc(&p[n], h, 7 * MIB, NULL) == STOW_OK) n++;
  CHECK_U64(n, 14);
  stow_heap_failure f = STOW_HEAP_FAILURE_INIT;
  CHECK_OK(stow_heap_last_failure(h, &f));
  CHECK_U64(f.asked_bytes, 7 * MIB);
  CHECK_U64(f.live_bytes, 98 * MIB);
  CHECK_U64(f.limit_bytes, 100 * MIB);
  CHECK(f.needed_page_bytes > f.limit_bytes - f.pinned_bytes);
  CHECK(stats_of(h).tier[0].peak_held_bytes <= 100 * MIB);
  CHECK_STATUS(stow_heap_set_limit(h, STOW_TIER_VRAM, 50 * MIB), STOW_ERR_STATE);
  CHECK_MESSAGE("free some");
  CHECK_U64(stats_of(h).tier[0].limit_bytes, 100 * MIB);
  for (uint64_t i = 0; i < n; i++) CHECK_OK(stow_heap_free(h, p[i], NULL));
  CHECK_OK(stow_heap_set_limit(h, STOW_TIER_VRAM, 50 * MIB));
  CHECK(stats_of(h).tier[0].held_bytes <= 50 * MIB);
  shut(h, d);
}

TEST(heap_trim_gives_every_free_page_back)
{
  stow_device *d = sim_device(512 * MIB, 0);
  stow_heap *h = open_on(d, 0);
  uint64_t keep = need(h, 3 * MIB, NULL), p[20];
  for (int i = 0; i < 20; i++) p[i] = need(h, (uint64_t)(i + 1) * MIB, NULL);
  for (int i = 0; i < 20; i++) CHECK_OK(stow_heap_free(h, p[i], NULL));
  uint64_t released = 0;
  CHECK_OK(stow_heap_trim(h, 0, &released));
  CHECK(released >= 200 * MIB);
  CHECK(stats_of(h).tier[0].held_bytes <= 8 * MIB);
  CHECK_OK(stow_heap_free(h, keep, NULL));
  shut(h, d);
}

TEST(heap_spills_past_the_device_and_brings_it_back)
{
  stow_device *d = sim_device(64 * MIB, 256 * MIB);
  stow_heap *h = open_on(d, 128 * MIB);
  uint64_t a = need(h, 60 * MIB, NULL), b = need(h, 40 * MIB, NULL);
  CHECK_OK(d->ops->fill(d, b, 0x5a, 40 * MIB, NULL));
  stow_heap_stats s = stats_of(h);
  CHECK_U64(s.spilled_bytes, 40 * MIB);
  CHECK_U64(s.tier[STOW_TIER_HOST].live_bytes, 40 * MIB);
  uint64_t c;
  CHECK_STATUS(stow_heap_alloc(&c, h, 100 * MIB, NULL), STOW_ERR_OUT_OF_MEMORY);
  CHECK_OK(stow_heap_free(h, a, NULL));
  CHECK_OK(stow_heap_set_heat(h, b, STOW_HEAT_COLD));
  uint64_t moved;
  CHECK_OK(stow_heap_trim(h, 0, NULL));
  CHECK_OK(stow_heap_bring_back(h, &moved));
  CHECK_U64(moved, 0);
  CHECK_OK(stow_heap_set_heat(h, b, STOW_HEAT_HOT));
  CHECK_OK(stow_heap_bring_back(h, &moved));
  CHECK_U64(moved, 40 * MIB);
  CHECK_OK(stow_heap_check(h));
  uint8_t byte = 0;
  CHECK_OK(d->ops->copy(d, (stow_addr)(uintptr_t)&byte, b + 40 * MIB - 1, 1, NULL));
  CHECK_OK(d->ops->stream_sync(d, NULL));
  CHECK_U64(byte, 0x5a);
  CHECK_OK(stow_heap_free(h, b, NULL));
  shut(h, d);
}

TEST(heap_migrate_keeps_address_and_contents)
{
  stow_device *d = sim_device(128 * MIB, 128 * MIB);
  stow_heap *h;
  stow_heap_options o = STOW_HEAP_OPTIONS_INIT;
  o.device = d;
  o.host_limit_bytes = 128 * MIB;
  o.background = false;
  o.disk_folder = harness_folder();
  CHECK_OK(stow_heap_open(&h, &o));
  uint64_t low = need(h, 3 * MIB, NULL), p = need(h, 21 * MIB + 512, NULL),
           high = need(h, 3 * MIB, NULL);
  uint8_t *mine = malloc(21 * MIB + 512), *back = malloc(21 * MIB + 512);
  uint64_t seed = 1;
  for (uint64_t i = 0; i < 21 * MIB + 512; i++) mine[i] = (uint8_t)harness_random(&seed);
  CHECK_OK(d->ops->copy(d, p, (stow_addr)(uintptr_t)mine, 21 * MIB + 512, NULL));
  stow_tier path[] = {STOW_TIER_HOST, STOW_TIER_VRAM, STOW_TIER_DISK, STOW_TIER_HOST,
                      STOW_TIER_DISK, STOW_TIER_VRAM, STOW_TIER_HOST};
  for (int i = 0; i < 7; i++) {
    CHECK_OK(stow_heap_migrate(h, p, path[i]));
    CHECK_OK(stow_heap_check(h));
    if (path[i] == STOW_TIER_DISK) continue;
    memset(back, 0, 21 * MIB + 512);
    CHECK_OK(d->ops->copy(d, (stow_addr)(uintptr_t)back, p, 21 * MIB + 512, NULL));
    CHECK_OK(d->ops->stream_sync(d, NULL));
    CHECK(memcmp(mine, back, 21 * MIB + 512) == 0);
  }
  CHECK_OK(stow_heap_free(h, p, NULL));
  CHECK_OK(stow_heap_check(h));
  uint64_t q = need(h, 21 * MIB, NULL); /* host pages did not stay in the vram arena */
  CHECK_OK(stow_heap_migrate(h, q, STOW_TIER_DISK));
  CHECK_OK(stow_heap_free(h, q, NULL));
  CHECK_OK(stow_heap_check(h));
  CHECK_OK(stow_heap_free(h, low, NULL));
  CHECK_OK(stow_heap_free(h, high, NULL));
  free(mine);
  free(back);
  shut(h, d);
}

TEST(heap_aligns_on_request)
{
  stow_device *d = sim_device(64 * MIB, 0);
  stow_heap *h = open_on(d, 0);
  uint64_t held[64], n = 0;
  for (uint64_t align = 512; align <= 2 * MIB; align *= 2)
    for (uint64_t bytes = 700; bytes < 4 * MIB; bytes *= 13) {
      uint64_t p;
      CHECK_OK(stow_heap_alloc_aligned(&p, h, bytes, align, NULL));
      CHECK_U64(p % align, 0);
      held[n++] = p;
      CHECK_OK(stow_heap_check(h));
    }
  while (n > 0) CHECK_OK(stow_heap_free(h, held[--n], NULL));
  shut(h, d);
}

/* ---- tags, events, walking ---- */

typedef struct seen {
  uint64_t count[STOW_EVENT_COUNT], bytes;
  stow_heap *heap;
  uint64_t spare; /* freed under pressure */
  uint32_t tag;
} seen;

static uint64_t watch(void *user, const stow_heap_event *e) {
  seen *s = user;
  s->count[e->kind]++;
  if (e->kind == STOW_EVENT_ALLOC) s->tag = e->tag;
  if (e->kind != STOW_EVENT_PRESSURE || s->spare == 0) return 0;
  s->bytes = e->bytes;
  uint64_t p = s->spare;
  s->spare = 0;
  return stow_heap_free(s->heap, p, NULL) == STOW_OK ? 40 * MIB : 0;
}

TEST(heap_asks_listeners_before_it_fails)
{
  stow_device *d = sim_device(64 * MIB, 0);
  stow_heap *h = open_on(d, 0);
  seen s = {.heap = h};
  CHECK_OK(stow_heap_add_sink(h, watch, &s, STOW_EVENT_ALL));
  s.spare = need(h, 40 * MIB, NULL);
  uint64_t p = need(h, 40 * MIB, NULL);
  CHECK_U64(s.count[STOW_EVENT_PRESSURE], 1);
  CHECK(s.bytes > 0);
  uint64_t q;
  CHECK_STATUS(stow_heap_alloc(&q, h, 40 * MIB, NULL), STOW_ERR_OUT_OF_MEMORY);
  CHECK_U64(s.count[STOW_EVENT_FAIL], 1);
  CHECK_U64(s.count[STOW_EVENT_ALLOC], 2);
  CHECK_U64(s.count[STOW_EVENT_FREE], 1);
  CHECK(s.count[STOW_EVENT_MAP] >= 1);
  CHECK_OK(stow_heap_free(h, p, NULL));
  CHECK_U64(s.count[STOW_EVENT_FREE], 2);
  CHECK_OK(stow_heap_trim(h, 0, NULL));
  CHECK(s.count[STOW_EVENT_UNMAP] >= 1);
  CHECK_OK(stow_heap_remove_sink(h, watch, &s));
  CHECK_STATUS(stow_heap_remove_sink(h, watch, &s), STOW_ERR_NOT_FOUND);
  CHECK_OK(stow_heap_free(h, need(h, 512, NULL), NULL));
  CHECK_U64(s.count[STOW_EVENT_FREE], 2);
  shut(h, d);
}

static bool find_tag(void *user, const stow_heap_entry *e) {
  uint64_t *out = user;
  out[0]++;
  if (strcmp(stow_tag_name(e->tag), "optimizer") == 0) out[1] += e->bytes;
  if (e->tier == STOW_TIER_HOST) out[2] += e->bytes;
  return true;
}

TEST(heap_walks_what_is_live_with_its_tags_and_tiers)
{
  stow_device *d = sim_device(64 * MIB, 64 * MIB);
  stow_heap *h = open_on(d, 64 * MIB);
  uint64_t p[4];
  p[0] = need(h, 4 * MIB, NULL);
  CHECK_OK(stow_tag_push("optimizer"));
  p[1] = need(h, 3 * MIB, NULL);
  p[2] = need(h, 2048, NULL);
  CHECK_OK(stow_tag_push_tier("offloaded", STOW_TIER_HOST));
  p[3] = need(h, 5 * MIB, NULL);
  CHECK_OK(stow_tag_pop());
  CHECK_OK(stow_tag_pop());
  CHECK_STATUS(stow_tag_pop(), STOW_ERR_STATE);
  uint64_t out[3] = {0};
  CHECK_OK(stow_heap_each(h, find_tag, out));
  CHECK_U64(out[0], 4);
  CHECK_U64(out[1], 3 * MIB + 2048);
  CHECK_U64(out[2], 5 * MIB);
  for (int i = 0; i < 4; i++) CHECK_OK(stow_heap_free(h, p[i], NULL));
  CHECK_TEXT(stow_tag_name(0), "");
  CHECK_TEXT(stow_tag_name(60000), "");
  shut(h, d);
}

/* The tables use at most 24 bytes per live block, plus 0.1% of what is held, plus 1 MiB, for each
 * length alone. */
TEST(heap_keeps_little_metadata)
{
  static const uint64_t sizes[] = {512, 4096, 16384, 16896, 40000, 131072, 250000, 262144, 3 * MIB};
  for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
    stow_device *d;
    stow_sim_options o = STOW_SIM_OPTIONS_INIT;
    o.vram_bytes = 16 * GIB;
    o.host_bytes = 0;
    o.paper = true;
    CHECK_OK(stow_sim_open(&d, &o));
    stow_heap *h = open_on(d, 0);
    uint64_t count = 15 * GIB / sizes[k];
    if (count > 300000) count = 300000;
    for (uint64_t i = 0; i < count; i++) need(h, sizes[k], NULL);
    stow_heap_stats s = stats_of(h);
    uint64_t most = 24 * count + s.tier[STOW_TIER_VRAM].held_bytes / 1000 + MIB;
    if (s.metadata_bytes > most)
      FAIL("%" PRIu64 " blocks of %" PRIu64 ": %" PRIu64 " bytes of metadata, %" PRIu64 " allowed",
           count, sizes[k], s.metadata_bytes, most);
    CHECK_STATUS(stow_heap_close(h), STOW_ERR_STATE); /* reports that they are live */
    CHECK_OK(stow_device_close(d));
  }
}

TEST(heap_keeps_a_reserve_in_the_background)
{
  stow_device *d = sim_device(GIB, GIB);
  stow_heap *h;
  stow_heap_options o = STOW_HEAP_OPTIONS_INIT;
  o.device = d;
  o.host_limit_bytes = 512 * MIB;
  o.reserve_bytes = 32 * MIB;
  o.host_reserve_bytes = 128 * MIB;
  CHECK_OK(stow_heap_open(&h, &o));
  stow_heap_stats s = STOW_HEAP_STATS_INIT;
  do CHECK_OK(stow_heap_get_stats(h, &s));
  while (s.tier[0].cached_bytes < 32 * MIB || s.tier[1].cached_bytes < 128 * MIB);
  CHECK_U64(s.tier[0].cached_bytes, 32 * MIB);
  uint64_t p = need(h, 20 * MIB, NULL);
  CHECK_OK(stow_heap_free(h, p, NULL));
  shut(h, d);
}

TEST_MAIN
