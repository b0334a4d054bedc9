/* The contract of a device, the part about pages and their addresses. Include it after
 * contract.h. */
#ifndef CONTRACT_PAGES_H
#define CONTRACT_PAGES_H

#include "device/contract.h"

/* Opens a device with pages; skips the test without them. */
static stow_device *open_with_pages(stow_device_props *p) {
  stow_device *d = contract_open();
  *p = props_of(d);
  if (!p->has_vmm) {
    contract_close(d);
    SKIP("this device has no pages");
  }
  return d;
}

static bool has_host_pages(const stow_device_props *p) {
  return p->host_backing == STOW_HOST_LOCATION || p->host_backing == STOW_HOST_NUMA ||
         p->host_backing == STOW_HOST_SIMULATED;
}

static stow_addr range_new(stow_device *d, uint64_t bytes) {
  stow_addr addr = 0;
  CHECK_OK(device_reserve(d, &addr, bytes, 0));
  return addr;
}

static stow_page page_new(stow_device *d, uint64_t bytes, stow_tier tier) {
  stow_page page = 0;
  CHECK_OK(device_page_create(d, &page, bytes, tier));
  CHECK(page != 0);
  return page;
}

static void map_with_access(stow_device *d, stow_addr addr, uint64_t bytes, stow_page page) {
  CHECK_OK(device_map(d, addr, bytes, page));
  CHECK_OK(device_access(d, addr, bytes));
}

/* ---- ranges ---- */

TEST(reserved_ranges_are_aligned_and_apart)
{
  stow_device_props p = STOW_DEVICE_PROPS_INIT;
  stow_device *d = open_with_pages(&p);
  enum { COUNT = 24 };
  stow_addr at[COUNT];
  uint64_t bytes[COUNT];
  for (int i = 0; i < COUNT; i++) {
    uint64_t align = i % 3 == 0 ? 0 : p.page_bytes << (i % 8);
    bytes[i] = p.page_bytes * (uint64_t)(1 + i * 5 % 17);
    CHECK_OK(device_reserve(d, &at[i], bytes[i], align));
    CHECK_U64(at[i] % (align == 0 ? p.page_bytes : align), 0);
    for (int k = 0; k < i; k++) CHECK(at[i] + bytes[i] <= at[k] || at[k] + bytes[k] <= at[i]);
  }
  for (int i = 0; i < COUNT; i++) CHECK_OK(device_unreserve(d, at[i], bytes[i]));
  contract_close(d);
}

TEST(ranges_that_cannot_be_are_refused)
{
  stow_device_props p = STOW_DEVICE_PROPS_INIT;
  stow_device *d = open_with_pages(&p);
  stow_addr addr = 0;
  CHECK_STATUS(device_reserve(d, &addr, 0, 0), STOW_ERR_INVALID);
  CHECK_STATUS(device_reserve(d, &addr, p.page_bytes / 2, 0), STOW_ERR_INVALID);
  CHECK_STATUS(device_reserve(d, &addr, p.page_bytes + 1, 0), STOW_ERR_INVALID);
  CHECK(stow_status_message()[0] != '\0');
  CHECK_STATUS(device_reserve(d, &addr, p.page_bytes, p.page_bytes / 2), STOW_ERR_INVALID);
  CHECK_STATUS(device_reserve(d, &addr, p.page_bytes, p.page_bytes * 3), STOW_ERR_INVALID);
  CHECK(device_reserve(d, &addr, UINT64_C(1) << 60, 0) != STOW_OK);
  CHECK(device_reserve(d, &addr, ~(p.page_bytes - 1), 0) != STOW_OK);
  CHECK(stow_status_message()[0] != '\0');
  contract_close(d);
}

TEST(a_range_is_returned_whole_empty_and_once)
{
  stow_device_props p = STOW_DEVICE_PROPS_INIT;
  stow_device *d = open_with_pages(&p);
  uint64_t unit = p.page_bytes;
  stow_addr addr = range_new(d, 4 * unit);
  stow_page page = page_new(d, unit, STOW_TIER_VRAM);
  CHECK_STATUS(device_unreserve(d, addr, 2 * unit), STOW_ERR_STATE);
  CHECK_STATUS(device_unreserve(d, addr + unit, 3 * unit), STOW_ERR_STATE);
  CHECK_STATUS(device_unreserve(d, addr, unit + 1), STOW_ERR_INVALID);
  CHECK_OK(device_map(d, addr + 2 * unit, unit, page));
  CHECK_STATUS(device_unreserve(d, addr, 4 * unit), STOW_ERR_STATE);
  CHECK_MESSAGE("mapped");
  CHECK_OK(device_unmap(d, addr + 2 * unit, unit));
  CHECK_OK(device_unreserve(d, addr, 4 * unit));
  CHECK_STATUS(device_unreserve(d, addr, 4 * unit), STOW_ERR_STATE);
  CHECK_OK(device_page_release(d, page));
  contract_close(d);
}

/* ---- pages ---- */

TEST(pages_are_charged_to_their_tier)
{
  stow_device_props p = STOW_DEVICE_PROPS_INIT;
  stow_device *d = open_with_pages(&p);
  for (int tier = STOW_TIER_VRAM; tier <= STOW_TIER_HOST; tier++) {
    if (tier == STOW_TIER_HOST && !has_host_pages(&p)) continue;
    uint64_t before = free_of(d, (stow_tier)tier);
    stow_page small = page_new(d, p.page_bytes, (stow_tier)tier);
    stow_page large = page_new(d, 8 * p.page_bytes, (stow_tier)tier);
    CHECK(small != large);
    free_expect(d, (stow_tier)tier, before - 9 * p.page_bytes);
    CHECK_OK(device_page_release(d, small));
    CHECK_OK(device_page_release(d, large));
    free_expect(d, (stow_tier)tier, before);
  }
  contract_close(d);
}

TEST(pages_that_cannot_be_are_refused)
{
  stow_device_props p = STOW_DEVICE_PROPS_INIT;
  stow_device *d = open_with_pages(&p);
  stow_page page = 0;
  CHECK_STATUS(device_page_create(d, &page, 0, STOW_TIER_VRAM), STOW_ERR_INVALID);
  CHECK_STATUS(device_page_create(d, &page, p.page_bytes + 4096, STOW_TIER_VRAM), STOW_ERR_INVALID);
  CHECK_STATUS(device_page_create(d, &page, p.page_bytes, STOW_TIER_DISK), STOW_ERR_UNSUPPORTED);
  if (!has_host_pages(&p))
    CHECK_STATUS(device_page_create(d, &page, p.page_bytes, STOW_TIER_HOST), STOW_ERR_UNSUPPORTED);
  uint64_t before = free_of(d, STOW_TIER_VRAM);
  uint64_t too_many = (p.vram_bytes / p.page_bytes + 1) * p.page_bytes;
  CHECK_STATUS(device_page_create(d, &page, too_many, STOW_TIER_VRAM), STOW_ERR_OUT_OF_MEMORY);
  CHECK(stow_status_message()[0] != '\0');
  free_expect(d, STOW_TIER_VRAM, before); /* nothing was kept */
  contract_close(d);
}

TEST(a_page_is_released_unmapped_and_once)
{
  stow_device_props p = STOW_DEVICE_PROPS_INIT;
  stow_device *d = open_with_pages(&p);
  uint64_t unit = p.page_bytes;
  stow_addr addr = range_new(d, 2 * unit);
  stow_page page = page_new(d, unit, STOW_TIER_VRAM);
  CHECK_STATUS(device_page_release(d, 0), STOW_ERR_STATE);
  CHECK_OK(device_map(d, addr, unit, page));
  CHECK_OK(device_map(d, addr + unit, unit, page));
  CHECK_STATUS(device_page_release(d, page), STOW_ERR_STATE);
  CHECK_OK(device_unmap(d, addr, unit));
  CHECK_STATUS(device_page_release(d, page), STOW_ERR_STATE);
  CHECK_MESSAGE("mapped");
  CHECK_OK(device_unmap(d, addr + unit, unit));
  CHECK_OK(device_page_release(d, page));
  CHECK_STATUS(device_page_release(d, page), STOW_ERR_STATE);
  CHECK_STATUS(device_map(d, addr, unit, page), STOW_ERR_STATE);
  CHECK_OK(device_unreserve(d, addr, 2 * unit));
  contract_close(d);
}

/* ---- mapping ---- */

TEST(mapping_where_it_cannot_be_is_refused)
{
  stow_device_props p = STOW_DEVICE_PROPS_INIT;
  stow_device *d = open_with_pages(&p);
  uint64_t unit = p.page_bytes;
  stow_addr addr = range_new(d, 4 * unit);
  stow_page page = page_new(d, 2 * unit, STOW_TIER_VRAM);
  CHECK_STATUS(device_map(d, addr, unit, page), STOW_ERR_INVALID);                /* not its size */
  CHECK_STATUS(device_map(d, addr + 4096, 2 * unit, page), STOW_ERR_INVALID);     /* not aligned */
  CHECK_STATUS(device_map(d, addr + 3 * unit, 2 * unit, page), STOW_ERR_INVALID); /* past the end */
  CHECK_MESSAGE("reserved range");
  CHECK_OK(device_map(d, addr + unit, 2 * unit, page));
  CHECK_STATUS(device_map(d, addr, 2 * unit, page), STOW_ERR_STATE); /* over a mapping */
  CHECK_MESSAGE("unmap it first");
  CHECK_STATUS(device_map(d, addr + 2 * unit, 2 * unit, page), STOW_ERR_STATE);
  CHECK_OK(device_unmap(d, addr + unit, 2 * unit));
  CHECK_OK(device_unreserve(d, addr, 4 * unit));
  CHECK_STATUS(device_map(d, addr, 2 * unit, page), STOW_ERR_INVALID); /* no longer reserved */
  CHECK_OK(device_page_release(d, page));
  contract_close(d);
}

TEST(unmapping_and_granting_want_whole_mapped_pages)
{
  stow_device_props p = STOW_DEVICE_PROPS_INIT;
  stow_device *d = open_with_pages(&p);
  uint64_t unit = p.page_bytes;
  stow_addr addr = range_new(d, 8 * unit);
  stow_page page = page_new(d, 2 * unit, STOW_TIER_VRAM);
  stow_status (*const calls[])(stow_device *, stow_addr, uint64_t) = {device_unmap, device_access};
  CHECK_OK(device_map(d, addr + 2 * unit, 2 * unit, page)); /* . . P P . P P . */
  CHECK_OK(device_map(d, addr + 5 * unit, 2 * unit, page));
  for (int i = 0; i < 2; i++) {
    CHECK_STATUS(calls[i](d, addr + 2 * unit, 0), STOW_ERR_INVALID);
    CHECK_STATUS(calls[i](d, addr + 2 * unit, unit + 1), STOW_ERR_INVALID);
    CHECK_STATUS(calls[i](d, addr + 2 * unit + 1, unit), STOW_ERR_INVALID);
    CHECK_STATUS(calls[i](d, addr + 2 * unit, unit), STOW_ERR_INVALID); /* half a page */
    CHECK_STATUS(calls[i](d, addr + 3 * unit, unit), STOW_ERR_INVALID);
    CHECK_STATUS(calls[i](d, addr, 2 * unit), STOW_ERR_STATE); /* nothing there */
    CHECK_MESSAGE("nothing is mapped");
    CHECK_STATUS(calls[i](d, addr + 2 * unit, 5 * unit), STOW_ERR_STATE); /* a gap */
    CHECK_STATUS(calls[i](d, addr + 2 * unit, 16 * unit), STOW_ERR_INVALID);
  }
  CHECK_OK(device_access(d, addr + 2 * unit, 2 * unit));
  CHECK_OK(device_access(d, addr + 2 * unit, 2 * unit)); /* repeating is allowed */
  CHECK_OK(device_unmap(d, addr + 2 * unit, 2 * unit));
  CHECK_STATUS(device_unmap(d, addr + 2 * unit, 2 * unit), STOW_ERR_STATE);
  CHECK_OK(device_unmap(d, addr + 5 * unit, 2 * unit));
  CHECK_OK(device_page_release(d, page));
  CHECK_OK(device_unreserve(d, addr, 8 * unit));
  contract_close(d);
}

TEST(many_pages_are_granted_and_unmapped_in_one_call)
{
  stow_device_props p = STOW_DEVICE_PROPS_INIT;
  stow_device *d = open_with_pages(&p);
  uint64_t unit = p.page_bytes;
  enum { COUNT = 12 };
  stow_addr addr = range_new(d, COUNT * 2 * unit), at = addr;
  stow_page pages[COUNT];
  for (uint64_t i = 0; i < COUNT; i++) {
    uint64_t bytes = (1 + i % 2) * unit;
    pages[i] = page_new(d, bytes, STOW_TIER_VRAM);
    CHECK_OK(device_map(d, at, bytes, pages[i]));
    at += bytes;
  }
  CHECK_OK(device_access(d, addr, at - addr));
  pattern_put(d, addr, at - addr, 77, NULL);
  pattern_expect(d, addr, at - addr, 77, NULL);
  CHECK_OK(device_unmap(d, addr, at - addr));
  for (int i = 0; i < COUNT; i++) CHECK_OK(device_page_release(d, pages[i]));
  CHECK_OK(device_unreserve(d, addr, COUNT * 2 * unit));
  contract_close(d);
}

TEST(work_where_the_device_has_no_access_is_refused)
{
  stow_device_props p = STOW_DEVICE_PROPS_INIT;
  stow_device *d = open_with_pages(&p);
  if (strcmp(p.kind, "sim") != 0) {
    contract_close(d);
    SKIP("on a device this is a fault of the whole context");
  }
  stow_addr addr = range_new(d, 2 * p.page_bytes);
  stow_page page = page_new(d, p.page_bytes, STOW_TIER_VRAM);
  CHECK_STATUS(device_fill(d, addr, 1, 8, NULL), STOW_ERR_VIOLATION);
  CHECK_OK(device_map(d, addr, p.page_bytes, page));
  CHECK_STATUS(device_fill(d, addr, 1, 8, NULL), STOW_ERR_VIOLATION);
  CHECK_OK(device_access(d, addr, p.page_bytes));
  CHECK_OK(device_fill(d, addr, 1, p.page_bytes, NULL));
  CHECK_STATUS(device_fill(d, addr, 1, p.page_bytes + 1, NULL), STOW_ERR_VIOLATION);
  CHECK_OK(device_stream_sync(d, NULL));
  CHECK_OK(device_unmap(d, addr, p.page_bytes));
  CHECK_OK(device_map(d, addr, p.page_bytes, page)); /* access is not restored by itself */
  CHECK_STATUS(device_fill(d, addr, 1, 8, NULL), STOW_ERR_VIOLATION);
  CHECK_OK(device_unmap(d, addr, p.page_bytes));
  CHECK_OK(device_page_release(d, page));
  CHECK_OK(device_unreserve(d, addr, 2 * p.page_bytes));
  contract_close(d);
}

/* ---- the page at an address ---- */

TEST(aliases_see_the_same_bytes)
{
  stow_device_props p = STOW_DEVICE_PROPS_INIT;
  stow_device *d = open_with_pages(&p);
  uint64_t unit = p.page_bytes;
  stow_addr one = range_new(d, 4 * unit), two = range_new(d, 2 * unit);
  stow_page page = page_new(d, 2 * unit, STOW_TIER_VRAM);
  map_with_access(d, one, 2 * unit, page);
  map_with_access(d, one + 2 * unit, 2 * unit, page);
  map_with_access(d, two, 2 * unit, page);
  pattern_put(d, one, 2 * unit, 1, NULL);
  pattern_expect(d, two, 2 * unit, 1, NULL);
  pattern_put(d, two + unit, unit, 2, NULL);
  pattern_expect(d, one + unit, unit, 2, NULL);
  pattern_expect(d, one + 3 * unit, unit, 2, NULL);
  CHECK_OK(device_unmap(d, one, 4 * unit));
  pattern_expect(d, two + unit, unit, 2, NULL); /* removing the others changes nothing */
  CHECK_OK(device_unmap(d, two, 2 * unit));
  CHECK_OK(device_page_release(d, page));
  CHECK_OK(device_unreserve(d, one, 4 * unit));
  CHECK_OK(device_unreserve(d, two, 2 * unit));
  contract_close(d);
}

TEST(contents_survive_being_mapped_elsewhere)
{
  stow_device_props p = STOW_DEVICE_PROPS_INIT;
  stow_device *d = open_with_pages(&p);
  uint64_t unit = p.page_bytes;
  for (int tier = STOW_TIER_VRAM; tier <= STOW_TIER_HOST; tier++) {
    if (tier == STOW_TIER_HOST && !has_host_pages(&p)) continue;
    stow_addr addr = range_new(d, 8 * unit);
    stow_page page = page_new(d, unit, (stow_tier)tier);
    for (uint64_t i = 0; i < 8; i++) {
      map_with_access(d, addr + i * unit, unit, page);
      if (i == 0) pattern_put(d, addr, unit, 9, NULL);
      pattern_expect(d, addr + i * unit, unit, 9, NULL);
      CHECK_OK(device_unmap(d, addr + i * unit, unit));
    }
    CHECK_OK(device_page_release(d, page));
    CHECK_OK(device_unreserve(d, addr, 8 * unit));
  }
  contract_close(d);
}

TEST(pages_of_every_size_hold_their_bytes)
{
  stow_device_props p = STOW_DEVICE_PROPS_INIT;
  stow_device *d = open_with_pages(&p);
  for (uint64_t bytes = p.page_bytes; bytes <= 64 * MIB; bytes *= 2) {
    stow_addr addr = 0;
    CHECK_OK(device_reserve(d, &addr, 2 * bytes, bytes));
    stow_page page = page_new(d, bytes, STOW_TIER_VRAM);
    map_with_access(d, addr + bytes, bytes, page);
    CHECK_OK(device_fill(d, addr + bytes, 0x5a, bytes, NULL));
    pattern_put(d, addr + 2 * bytes - MIB, MIB, bytes, NULL);
    value_expect(d, addr + bytes, MIB, 0x5a, NULL);
    pattern_expect(d, addr + 2 * bytes - MIB, MIB, bytes, NULL);
    CHECK_OK(device_unmap(d, addr + bytes, bytes));
    CHECK_OK(device_page_release(d, page));
    CHECK_OK(device_unreserve(d, addr, 2 * bytes));
  }
  contract_close(d);
}

TEST(an_address_outlives_its_pages)
{
  stow_device_props p = STOW_DEVICE_PROPS_INIT;
  stow_device *d = open_with_pages(&p);
  if (!has_host_pages(&p)) {
    contract_close(d);
    SKIP("this device has no host pages");
  }
  uint64_t bytes = 8 * p.page_bytes;
  stow_addr addr = range_new(d, bytes), side = range_new(d, bytes);
  stow_page page = page_new(d, bytes, STOW_TIER_VRAM);
  stow_stream stream;
  CHECK_OK(device_stream_create(d, &stream));
  map_with_access(d, addr, bytes, page);
  pattern_put(d, addr, bytes, 3, stream);
  for (int round = 0; round < 4; round++) { /* vram to host and back, twice */
    stow_page next = page_new(d, bytes, round % 2 == 0 ? STOW_TIER_HOST : STOW_TIER_VRAM);
    map_with_access(d, side, bytes, next);
    CHECK_OK(device_copy(d, side, addr, bytes, stream));
    CHECK_OK(device_stream_sync(d, stream));
    CHECK_OK(device_unmap(d, addr, bytes));
    CHECK_OK(device_unmap(d, side, bytes));
    map_with_access(d, addr, bytes, next);
    CHECK_OK(device_page_release(d, page));
    page = next;
    pattern_expect(d, addr, bytes, 3, stream);
  }
  CHECK_OK(device_unmap(d, addr, bytes));
  CHECK_OK(device_page_release(d, page));
  CHECK_OK(device_unreserve(d, addr, bytes));
  CHECK_OK(device_unreserve(d, side, bytes));
  CHECK_OK(device_stream_destroy(d, stream));
  contract_close(d);
}

/* ---- many threads, and the end ---- */

static stow_status contract_pages_turn(stow_device *d, uint64_t unit, uint64_t seed) {
  stow_addr addr;
  stow_page page;
  stow_stream stream;
  unsigned char *put = pattern_new(4096, seed), *got = calloc(1, 4096);
  STOW_TRY(device_stream_create(d, &stream));
  STOW_TRY(device_reserve(d, &addr, 4 * unit, 0));
  STOW_TRY(device_page_create(d, &page, 2 * unit, STOW_TIER_VRAM));
  STOW_TRY(device_map(d, addr + unit, 2 * unit, page));
  STOW_TRY(device_access(d, addr + unit, 2 * unit));
  STOW_TRY(device_copy(d, addr + 2 * unit, host_addr(put), 4096, stream));
  STOW_TRY(device_copy(d, host_addr(got), addr + 2 * unit, 4096, stream));
  STOW_TRY(device_stream_sync(d, stream));
  if (CONTRACT_BYTES && memcmp(put, got, 4096) != 0)
    return stow_fail(STOW_ERR_DEVICE, "bytes of another thread came back");
  STOW_TRY(device_unmap(d, addr + unit, 2 * unit));
  STOW_TRY(device_page_release(d, page));
  STOW_TRY(device_unreserve(d, addr, 4 * unit));
  STOW_TRY(device_stream_destroy(d, stream));
  free(put);
  free(got);
  return STOW_OK;
}

static void *contract_pages_run(void *argument) {
  contract_thread *t = argument;
  stow_device_props p = {.page_bytes = 0};
  t->status = device_thread_enter(t->device);
  if (t->status == STOW_OK) t->status = device_props(t->device, &p);
  for (uint64_t turn = 0; turn < 50 && t->status == STOW_OK; turn++)
    t->status = contract_pages_turn(t->device, p.page_bytes, t->seed * 1000 + turn);
  snprintf(t->message, sizeof t->message, "%s", stow_status_message());
  return NULL;
}

TEST(threads_may_make_and_map_pages_at_once)
{
  stow_device_props p = STOW_DEVICE_PROPS_INIT;
  stow_device *d = open_with_pages(&p);
  uint64_t before = free_of(d, STOW_TIER_VRAM);
  contract_threads(d, contract_pages_run);
  free_expect(d, STOW_TIER_VRAM, before);
  contract_close(d);
}

TEST(closing_releases_pages_and_ranges_and_describes_them)
{
  stow_device_props p = STOW_DEVICE_PROPS_INIT;
  stow_device *d = open_with_pages(&p);
  stow_addr addr = range_new(d, 4 * p.page_bytes);
  range_new(d, p.page_bytes);
  stow_page page = page_new(d, p.page_bytes, STOW_TIER_VRAM);
  page_new(d, p.page_bytes, STOW_TIER_VRAM);
  page_new(d, 2 * p.page_bytes, STOW_TIER_VRAM);
  map_with_access(d, addr, p.page_bytes, page);
  CHECK_STATUS(stow_device_close(d), STOW_ERR_STATE);
  CHECK_MESSAGE("3 pages");
  CHECK_MESSAGE("2 ranges");
  CHECK_MESSAGE("1 mappings");
  d = contract_open();
  contract_close(d);
}

#endif
