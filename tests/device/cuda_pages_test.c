/* The cuda backend over a stand-in driver: ranges, pages, mappings, copies, streams and events. */
#include "cuda_standin_use.h"

static void write_and_read(stow_device *d, stow_addr addr, uint8_t value) {
  uint8_t bytes[64] = {0};
  CHECK_OK(device_fill(d, addr, value, sizeof bytes, NULL));
  CHECK_OK(device_copy(d, (uintptr_t)bytes, addr, sizeof bytes, NULL));
  CHECK_OK(device_stream_sync(d, NULL));
  for (size_t i = 0; i < sizeof bytes; i++) CHECK(bytes[i] == value);
}

TEST(a_page_at_two_addresses_shows_the_same_bytes)
{
  stow_device *d = standin_open("0");
  stow_addr addr;
  stow_page page;
  uint8_t byte = 0;
  CHECK_OK(device_reserve(d, &addr, 4 * PAGE, 0));
  CHECK_OK(device_page_create(d, &page, PAGE, STOW_TIER_VRAM));
  CHECK_OK(device_map(d, addr, PAGE, page));
  CHECK_OK(device_map(d, addr + 2 * PAGE, PAGE, page));
  CHECK_OK(device_access(d, addr, PAGE));
  CHECK_OK(device_access(d, addr + 2 * PAGE, PAGE));
  write_and_read(d, addr, 7);
  CHECK_OK(device_copy(d, (uintptr_t)&byte, addr + 2 * PAGE, 1, NULL));
  CHECK(byte == 7);
  CHECK_STATUS(device_page_release(d, page), STOW_ERR_STATE);
  CHECK_MESSAGE("still mapped at 2 addresses");
  CHECK_OK(device_unmap(d, addr, PAGE));
  CHECK_STATUS(device_page_release(d, page), STOW_ERR_STATE);
  CHECK_MESSAGE("still mapped at 1 address;");
  CHECK_STATUS(device_unreserve(d, addr, 4 * PAGE), STOW_ERR_STATE);
  CHECK_MESSAGE("2.0 MiB of it is still mapped");
  CHECK_OK(device_unmap(d, addr + 2 * PAGE, PAGE));
  CHECK_OK(device_page_release(d, page));
  CHECK_STATUS(device_page_release(d, page), STOW_ERR_STATE);
  CHECK_OK(device_unreserve(d, addr, 4 * PAGE));
  CHECK_STATUS(device_unreserve(d, addr, 4 * PAGE), STOW_ERR_STATE);
  CHECK_OK(stow_device_close(d));
}

TEST(host_pages_take_no_vram)
{
  stow_device *d = standin_open("0");
  stow_addr addr;
  stow_page page;
  uint64_t before, after;
  CHECK_OK(stow_device_memory(d, STOW_TIER_VRAM, &before, NULL));
  CHECK_OK(device_reserve(d, &addr, PAGE, 0));
  CHECK_OK(device_page_create(d, &page, PAGE, STOW_TIER_HOST));
  CHECK_OK(stow_device_memory(d, STOW_TIER_VRAM, &after, NULL));
  CHECK_U64(after, before);
  CHECK_OK(device_map(d, addr, PAGE, page));
  CHECK_OK(device_access(d, addr, PAGE));
  write_and_read(d, addr, 9);
  CHECK_OK(device_unmap(d, addr, PAGE));
  CHECK_OK(device_page_release(d, page));
  CHECK_OK(device_unreserve(d, addr, PAGE));
  CHECK_OK(stow_device_close(d));
}

TEST(more_than_the_host_has_fails_before_the_driver_is_called)
{
  stow_device *d = standin_open("0");
  stow_page page;
  int before = STANDIN_CALLS("cuMemCreate");
  CHECK_STATUS(device_page_create(d, &page, UINT64_C(1) << 50, STOW_TIER_HOST),
               STOW_ERR_OUT_OF_MEMORY);
  CHECK_MESSAGE("is left there");
  CHECK(STANDIN_CALLS("cuMemCreate") == before);
  CHECK_OK(stow_device_close(d));
}

TEST(wrong_sizes_addresses_and_tiers_are_refused)
{
  stow_device *d = standin_open("0");
  stow_addr addr, other;
  stow_page page;
  CHECK_STATUS(device_reserve(d, &other, 0, 0), STOW_ERR_INVALID);
  CHECK_STATUS(device_reserve(d, &other, PAGE + 1, 0), STOW_ERR_INVALID);
  CHECK_MESSAGE("not a multiple of 2.0 MiB");
  CHECK_STATUS(device_reserve(d, &other, PAGE, 3 * PAGE), STOW_ERR_INVALID);
  CHECK_STATUS(device_reserve(d, &other, PAGE, 4096), STOW_ERR_INVALID);
  CHECK_STATUS(device_reserve(d, &other, UINT64_C(1) << 60, 0), STOW_ERR_OUT_OF_MEMORY);
  CHECK_STATUS(device_page_create(d, &page, 0, STOW_TIER_VRAM), STOW_ERR_INVALID);
  CHECK_STATUS(device_page_create(d, &page, PAGE / 2, STOW_TIER_VRAM), STOW_ERR_INVALID);
  CHECK_STATUS(device_page_create(d, &page, PAGE, STOW_TIER_DISK), STOW_ERR_UNSUPPORTED);
  CHECK_OK(device_reserve(d, &addr, 4 * PAGE, 0));
  CHECK_OK(device_page_create(d, &page, 2 * PAGE, STOW_TIER_VRAM));
  CHECK_STATUS(device_map(d, addr, PAGE, page), STOW_ERR_INVALID);
  CHECK_MESSAGE("mapped whole");
  CHECK_STATUS(device_map(d, addr + 3 * PAGE, 2 * PAGE, page), STOW_ERR_INVALID);
  CHECK_STATUS(device_map(d, addr + 1, 2 * PAGE, page), STOW_ERR_INVALID);
  CHECK_STATUS(device_map(d, addr, 2 * PAGE, page + 1), STOW_ERR_STATE);
  CHECK_STATUS(device_access(d, addr, PAGE), STOW_ERR_STATE);
  CHECK_OK(device_map(d, addr + PAGE, 2 * PAGE, page));
  CHECK_STATUS(device_map(d, addr + 2 * PAGE, 2 * PAGE, page), STOW_ERR_STATE);
  CHECK_MESSAGE("already");
  CHECK_STATUS(device_unmap(d, addr + PAGE, PAGE), STOW_ERR_INVALID);
  CHECK_MESSAGE("ends inside a page");
  CHECK_STATUS(device_unmap(d, addr + 2 * PAGE, PAGE), STOW_ERR_INVALID);
  CHECK_MESSAGE("begins inside a page");
  CHECK_STATUS(device_unmap(d, addr, 3 * PAGE), STOW_ERR_STATE);
  CHECK_STATUS(device_unmap(d, addr + PAGE, 3 * PAGE), STOW_ERR_STATE);
  CHECK_OK(device_access(d, addr + PAGE, 2 * PAGE));
  CHECK_OK(device_access(d, addr + PAGE, 2 * PAGE));
  CHECK_OK(device_unmap(d, addr + PAGE, 2 * PAGE));
  CHECK_STATUS(device_unreserve(d, addr, 2 * PAGE), STOW_ERR_STATE);
  CHECK_MESSAGE("free the whole range");
  CHECK_STATUS(device_unreserve(d, addr + PAGE, 3 * PAGE), STOW_ERR_STATE);
  CHECK_OK(device_unreserve(d, addr, 4 * PAGE));
  CHECK_OK(device_page_release(d, page));
  CHECK_OK(stow_device_close(d));
}

TEST(ranges_are_aligned_even_where_the_driver_does_not_care)
{
  setenv("STANDIN_ALIGN", "loose", 1);
  stow_device *d = standin_open("0");
  for (uint64_t align = PAGE; align <= 1024 * MIB; align *= 2) {
    stow_addr addr;
    stow_page page;
    CHECK_OK(device_reserve(d, &addr, 3 * PAGE, align));
    CHECK(addr % align == 0);
    CHECK_OK(device_page_create(d, &page, PAGE, STOW_TIER_VRAM));
    CHECK_OK(device_map(d, addr + 2 * PAGE, PAGE, page));
    CHECK_OK(device_unmap(d, addr + 2 * PAGE, PAGE));
    CHECK_OK(device_page_release(d, page));
    CHECK_OK(device_unreserve(d, addr, 3 * PAGE));
  }
  CHECK_OK(stow_device_close(d));
  CHECK(STANDIN_LIVE() == 0);
}

/* Each driver call in the life of a page fails in turn: the state before it is unchanged, and a
 * retry works. */
TEST(a_refusal_of_the_driver_changes_nothing)
{
  stow_device *d = standin_open("0");
  stow_addr addr, none;
  stow_page page;
  STANDIN_FAIL("cuMemAddressReserve", 2, 1);
  CHECK_STATUS(device_reserve(d, &none, PAGE, 0), STOW_ERR_OUT_OF_MEMORY);
  STANDIN_FAIL("cuMemCreate", 999, 1);
  CHECK_STATUS(device_page_create(d, &page, PAGE, STOW_TIER_VRAM), STOW_ERR_DEVICE);
  CHECK_OK(device_reserve(d, &addr, PAGE, 0));
  STANDIN_FAIL(NULL, 0, 0);
  CHECK_OK(device_page_create(d, &page, PAGE, STOW_TIER_VRAM));
  STANDIN_FAIL("cuMemMap", 999, 1);
  CHECK_STATUS(device_map(d, addr, PAGE, page), STOW_ERR_DEVICE);
  STANDIN_FAIL(NULL, 0, 0);
  CHECK_STATUS(device_unmap(d, addr, PAGE), STOW_ERR_STATE);
  CHECK_OK(device_map(d, addr, PAGE, page));
  STANDIN_FAIL("cuMemSetAccess", 999, 1);
  CHECK_STATUS(device_access(d, addr, PAGE), STOW_ERR_DEVICE);
  STANDIN_FAIL("cuMemUnmap", 999, 1);
  CHECK_OK(device_access(d, addr, PAGE));
  CHECK_STATUS(device_unmap(d, addr, PAGE), STOW_ERR_DEVICE);
  STANDIN_FAIL("cuMemRelease", 999, 1);
  CHECK_STATUS(device_page_release(d, page), STOW_ERR_STATE); /* still mapped */
  CHECK_OK(device_unmap(d, addr, PAGE));
  CHECK_STATUS(device_page_release(d, page), STOW_ERR_DEVICE);
  STANDIN_FAIL("cuMemAddressFree", 999, 1);
  CHECK_OK(device_page_release(d, page));
  CHECK_STATUS(device_unreserve(d, addr, PAGE), STOW_ERR_DEVICE);
  STANDIN_FAIL(NULL, 0, 0);
  CHECK_OK(device_unreserve(d, addr, PAGE));
  CHECK_OK(stow_device_close(d));
  CHECK(STANDIN_LIVE() == 0);
}

TEST(plain_allocations_on_both_tiers)
{
  stow_device *d = standin_open("0");
  stow_addr vram, host, none;
  CHECK_OK(device_plain_alloc(d, &vram, 1000, STOW_TIER_VRAM));
  CHECK_OK(device_plain_alloc(d, &host, 1000, STOW_TIER_HOST));
  write_and_read(d, vram, 1);
  write_and_read(d, host, 2);
  CHECK_OK(device_copy(d, vram, host, 1000, NULL));
  CHECK_STATUS(device_plain_alloc(d, &none, 0, STOW_TIER_VRAM), STOW_ERR_INVALID);
  CHECK_STATUS(device_plain_alloc(d, &none, UINT64_C(1) << 50, STOW_TIER_VRAM),
               STOW_ERR_OUT_OF_MEMORY);
  CHECK_STATUS(device_plain_alloc(d, &none, 8, STOW_TIER_DISK), STOW_ERR_UNSUPPORTED);
  CHECK_OK(device_plain_free(d, vram));
  CHECK_OK(device_plain_free(d, host));
  CHECK_STATUS(device_plain_free(d, host), STOW_ERR_STATE);
  CHECK_OK(stow_device_close(d));
  CHECK(STANDIN_LIVE() == 0);
}

TEST(a_device_without_pages_uses_plain_allocations)
{
  setenv("STANDIN_NO_VMM", "1", 1);
  stow_device *d = standin_open("0");
  stow_device_props props = STOW_DEVICE_PROPS_INIT;
  stow_addr addr;
  stow_page page;
  CHECK_OK(device_props(d, &props));
  CHECK(!props.has_vmm && props.host_backing == STOW_HOST_PINNED);
  CHECK_STATUS(device_reserve(d, &addr, PAGE, 0), STOW_ERR_UNSUPPORTED);
  CHECK_STATUS(device_page_create(d, &page, PAGE, STOW_TIER_VRAM), STOW_ERR_UNSUPPORTED);
  CHECK_STATUS(device_map(d, PAGE, PAGE, 1), STOW_ERR_UNSUPPORTED);
  CHECK_OK(device_plain_alloc(d, &addr, 4096, STOW_TIER_HOST));
  write_and_read(d, addr, 5);
  CHECK_OK(device_plain_free(d, addr));
  CHECK_OK(stow_device_close(d));
}

TEST(copies_that_overlap_or_pass_the_end_are_refused)
{
  stow_device *d = standin_open("0");
  stow_addr addr;
  CHECK_OK(device_plain_alloc(d, &addr, 4096, STOW_TIER_VRAM));
  CHECK_STATUS(device_copy(d, addr + 8, addr, 16, NULL), STOW_ERR_INVALID);
  CHECK_MESSAGE("overlap");
  CHECK_STATUS(device_copy(d, addr, addr + 8, 16, NULL), STOW_ERR_INVALID);
  CHECK_STATUS(device_copy(d, addr, 0, 16, NULL), STOW_ERR_INVALID);
  CHECK_STATUS(device_fill(d, UINT64_MAX - 4, 0, 16, NULL), STOW_ERR_INVALID);
  CHECK_OK(device_copy(d, addr + 16, addr, 16, NULL));
  CHECK_OK(device_plain_free(d, addr));
  CHECK_OK(stow_device_close(d));
}

TEST(events_tell_what_a_stream_has_passed)
{
  stow_device *d = standin_open("0");
  stow_stream stream;
  stow_event event;
  CHECK_OK(device_stream_create(d, &stream));
  CHECK_OK(device_event_create(d, &event));
  CHECK_OK(device_event_query(d, event)); /* never recorded */
  STANDIN_HOLD(1);
  CHECK_OK(device_event_record(d, event, stream));
  CHECK_STATUS(device_page_release(d, 1), STOW_ERR_STATE);
  char before[256];
  snprintf(before, sizeof before, "%s", stow_status_message());
  CHECK(device_event_query(d, event) == STOW_ERR_NOT_READY);
  CHECK_TEXT(stow_status_message(), before); /* no message is set by it */
  CHECK_OK(device_stream_wait(d, NULL, event));
  STANDIN_HOLD(0);
  CHECK_OK(device_event_wait(d, event));
  CHECK_OK(device_event_query(d, event));
  CHECK_OK(device_stream_sync(d, stream));
  CHECK_STATUS(device_stream_destroy(d, NULL), STOW_ERR_INVALID);
  CHECK_STATUS(device_event_record(d, NULL, stream), STOW_ERR_INVALID);
  CHECK_OK(device_stream_destroy(d, stream));
  CHECK_STATUS(device_stream_destroy(d, stream), STOW_ERR_STATE);
  CHECK_OK(device_event_destroy(d, event));
  CHECK_STATUS(device_event_destroy(d, event), STOW_ERR_STATE);
  CHECK_OK(stow_device_close(d));
}

TEST_MAIN
