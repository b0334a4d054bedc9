/* The contract of a device (stowage/sys/device.h) as tests: one suite for every backend.
 *
 * A program defines how to open its device, then includes this, and contract_pages.h if the device
 * may have pages:
 *
 *   static stow_device *contract_open(void) { … }   a fresh device; may SKIP
 *   #define CONTRACT_BYTES 1    bytes can be written and read back (0: a paper device)
 *   #define CONTRACT_SOLE  1    nobody else uses the device, so free memory adds up exactly
 *
 * Bytes are checked only by copying them to the host, as on a GPU. */
#ifndef CONTRACT_H
#define CONTRACT_H

#include <pthread.h>
#include <stdlib.h>

#include <stowage/sys/device.h>

#include "device/device.h"
#include "harness.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static stow_device_props props_of(stow_device *d) {
  stow_device_props props = STOW_DEVICE_PROPS_INIT;
  CHECK_OK(device_props(d, &props));
  return props;
}

static uint64_t free_of(stow_device *d, stow_tier tier) {
  uint64_t free_bytes = 0;
  CHECK_OK(device_memory(d, tier, &free_bytes, NULL));
  return free_bytes;
}

/* Checks that the tier has `expected` bytes free, if nobody else can have changed that. */
static void free_expect(stow_device *d, stow_tier tier, uint64_t expected) {
  uint64_t free_bytes = free_of(d, tier);
  if (free_bytes != expected && CONTRACT_SOLE)
    FAIL("%" PRIu64 " bytes of %s are free, expected %" PRIu64, free_bytes, stow_tier_name(tier),
         expected);
}

/* Closes the device, which must find no leak. Every test ends with it. */
static void contract_close(stow_device *d) {
  CHECK_OK(stow_device_close(d));
}

/* ---- bytes ---- */

static void pattern_fill(unsigned char *bytes, uint64_t count, uint64_t seed) {
  for (uint64_t i = 0; i + 8 <= count; i += 8) {
    uint64_t word = harness_random(&seed);
    memcpy(bytes + i, &word, 8);
  }
}

/* Returns host memory of `count` bytes (a multiple of 8) with this pattern. */
static unsigned char *pattern_new(uint64_t count, uint64_t seed) {
  unsigned char *bytes = malloc(count);
  CHECK(bytes != NULL);
  pattern_fill(bytes, count, seed);
  return bytes;
}

static stow_addr host_addr(const void *pointer) {
  return (stow_addr)(uintptr_t)pointer;
}

/* Writes the pattern to [addr, addr+count) on `stream` and waits for it. */
static void pattern_put(stow_device *d, stow_addr addr, uint64_t count, uint64_t seed,
                        stow_stream stream) {
  unsigned char *bytes = pattern_new(count, seed);
  CHECK_OK(device_copy(d, addr, host_addr(bytes), count, stream));
  CHECK_OK(device_stream_sync(d, stream));
  free(bytes);
}

static void bytes_expect(stow_device *d, stow_addr addr, const unsigned char *want, uint64_t count,
                         stow_stream stream) {
  unsigned char *got = calloc(1, count);
  CHECK(got != NULL);
  CHECK_OK(device_copy(d, host_addr(got), addr, count, stream));
  CHECK_OK(device_stream_sync(d, stream));
  if (CONTRACT_BYTES && memcmp(got, want, count) != 0) {
    uint64_t at = 0;
    while (got[at] == want[at]) at++;
    FAIL("byte %" PRIu64 " of %" PRIu64 " is %u, expected %u", at, count, got[at], want[at]);
  }
  free(got);
}

static void pattern_expect(stow_device *d, stow_addr addr, uint64_t count, uint64_t seed,
                           stow_stream stream) {
  unsigned char *want = pattern_new(count, seed);
  bytes_expect(d, addr, want, count, stream);
  free(want);
}

static void value_expect(stow_device *d, stow_addr addr, uint64_t count, uint8_t value,
                         stow_stream stream) {
  unsigned char *want = malloc(count);
  CHECK(want != NULL);
  memset(want, value, count);
  bytes_expect(d, addr, want, count, stream);
  free(want);
}

/* ---- properties and memory ---- */

TEST(properties_say_what_the_device_is)
{
  stow_device *d = contract_open();
  stow_device_props p = props_of(d), again = props_of(d);
  CHECK(strcmp(p.kind, "sim") == 0 || strcmp(p.kind, "cuda") == 0);
  CHECK(p.name[0] != '\0' && p.uuid[0] != '\0');
  CHECK(p.vram_bytes > 0);
  CHECK(p.page_bytes >= 4096 && (p.page_bytes & (p.page_bytes - 1)) == 0);
  CHECK((p.host_bytes == 0) == (p.host_backing == STOW_HOST_NONE));
  CHECK(p.has_vmm || p.host_backing == STOW_HOST_NONE || p.host_backing == STOW_HOST_PINNED);
  CHECK_TEXT(p.uuid, again.uuid);
  CHECK_U64(p.vram_bytes, again.vram_bytes);
  CHECK(d->ops->struct_bytes == sizeof(stow_device_ops));
  CHECK(d->ops->error_text(d, 0) != NULL && d->ops->error_text(d, -12345) != NULL);
  CHECK_OK(device_thread_enter(d));
  contract_close(d);
}

TEST(memory_reports_free_and_total_of_each_tier)
{
  stow_device *d = contract_open();
  stow_device_props p = props_of(d);
  uint64_t free_bytes = 0, total_bytes = 0;
  CHECK_OK(device_memory(d, STOW_TIER_VRAM, &free_bytes, &total_bytes));
  /* A driver reserves a little of the device's memory, and may or may not count it. */
  CHECK(total_bytes <= p.vram_bytes && total_bytes >= p.vram_bytes / 100 * 95);
  if (CONTRACT_SOLE) CHECK_U64(total_bytes, p.vram_bytes);
  CHECK(free_bytes > 0 && free_bytes <= total_bytes);
  CHECK_OK(device_memory(d, STOW_TIER_VRAM, NULL, NULL));
  if (p.host_backing == STOW_HOST_NONE) {
    CHECK_STATUS(device_memory(d, STOW_TIER_HOST, &free_bytes, &total_bytes), STOW_ERR_UNSUPPORTED);
  } else {
    CHECK_OK(device_memory(d, STOW_TIER_HOST, &free_bytes, &total_bytes));
    CHECK(free_bytes <= total_bytes);
  }
  CHECK_STATUS(device_memory(d, STOW_TIER_DISK, &free_bytes, &total_bytes), STOW_ERR_UNSUPPORTED);
  CHECK_MESSAGE("disk");
  contract_close(d);
}

/* ---- plain blocks ---- */

TEST(plain_blocks_hold_their_bytes_and_are_charged)
{
  stow_device *d = contract_open();
  stow_device_props p = props_of(d);
  static const uint64_t sizes[] = {8, 4096, 1 * MIB, 2 * MIB, 20 * MIB};
  for (int tier = STOW_TIER_VRAM; tier <= STOW_TIER_HOST; tier++) {
    if (tier == STOW_TIER_HOST && p.host_backing == STOW_HOST_NONE) continue;
    uint64_t before = free_of(d, (stow_tier)tier);
    stow_addr at[5];
    for (int i = 0; i < 5; i++) {
      CHECK_OK(device_plain_alloc(d, &at[i], sizes[i], (stow_tier)tier));
      CHECK(at[i] != 0 && at[i] % 256 == 0);
      pattern_put(d, at[i], sizes[i], (uint64_t)i, NULL);
    }
    uint64_t during = free_of(d, (stow_tier)tier);
    CHECK(during <= before - 23 * MIB || !CONTRACT_SOLE);
    for (int i = 0; i < 5; i++) pattern_expect(d, at[i], sizes[i], (uint64_t)i, NULL);
    for (int i = 0; i < 5; i++) CHECK_OK(device_plain_free(d, at[i]));
    free_expect(d, (stow_tier)tier, before);
  }
  contract_close(d);
}

TEST(plain_blocks_that_cannot_be_are_refused)
{
  stow_device *d = contract_open();
  stow_addr at = 0;
  CHECK_STATUS(device_plain_alloc(d, &at, 0, STOW_TIER_VRAM), STOW_ERR_INVALID);
  CHECK_STATUS(device_plain_alloc(d, &at, MIB, STOW_TIER_DISK), STOW_ERR_UNSUPPORTED);
  CHECK_STATUS(device_plain_alloc(d, &at, props_of(d).vram_bytes + 2 * MIB, STOW_TIER_VRAM),
               STOW_ERR_OUT_OF_MEMORY);
  CHECK(stow_status_message()[0] != '\0');
  CHECK_STATUS(device_plain_free(d, 0), STOW_ERR_STATE);
  CHECK_OK(device_plain_alloc(d, &at, 4 * MIB, STOW_TIER_VRAM));
  CHECK_STATUS(device_plain_free(d, at + 2 * MIB), STOW_ERR_STATE);
  CHECK_OK(device_plain_free(d, at));
  CHECK_STATUS(device_plain_free(d, at), STOW_ERR_STATE);
  CHECK(stow_status_message()[0] != '\0');
  contract_close(d);
}

/* ---- copies and fills ---- */

TEST(fills_and_copies_of_one_stream_happen_in_order)
{
  stow_device *d = contract_open();
  stow_addr a, b;
  stow_stream stream;
  CHECK_OK(device_plain_alloc(d, &a, 8 * MIB, STOW_TIER_VRAM));
  CHECK_OK(device_plain_alloc(d, &b, 8 * MIB, STOW_TIER_VRAM));
  CHECK_OK(device_stream_create(d, &stream));
  CHECK(stream != NULL);
  for (uint8_t round = 1; round < 20; round++) {
    CHECK_OK(device_fill(d, a, round, 8 * MIB, stream));
    CHECK_OK(device_copy(d, b, a, 8 * MIB, stream));
    CHECK_OK(device_fill(d, a, 0, 8 * MIB, stream));
  }
  value_expect(d, b, 8 * MIB, 19, stream);
  value_expect(d, a, 8 * MIB, 0, stream);
  /* Parts, and odd sizes and addresses. */
  CHECK_OK(device_fill(d, a + 3, 7, 5, stream));
  CHECK_OK(device_copy(d, b + 1, a + 3, 5, stream));
  unsigned char want[8] = {19, 7, 7, 7, 7, 7, 19, 19};
  bytes_expect(d, b, want, 8, stream);
  CHECK_OK(device_copy(d, b, a, 0, stream));
  CHECK_OK(device_fill(d, a, 9, 0, stream));
  CHECK_OK(device_stream_destroy(d, stream));
  CHECK_OK(device_plain_free(d, a));
  CHECK_OK(device_plain_free(d, b));
  contract_close(d);
}

TEST(copies_that_overlap_or_point_nowhere_are_refused)
{
  stow_device *d = contract_open();
  stow_addr a;
  CHECK_OK(device_plain_alloc(d, &a, 4 * MIB, STOW_TIER_VRAM));
  pattern_put(d, a, 4 * MIB, 5, NULL);
  CHECK_STATUS(device_copy(d, a, a, 8, NULL), STOW_ERR_INVALID);
  CHECK_STATUS(device_copy(d, a + 8, a, 16, NULL), STOW_ERR_INVALID);
  CHECK_STATUS(device_copy(d, a, a + 15, 16, NULL), STOW_ERR_INVALID);
  CHECK_MESSAGE("overlap");
  CHECK_STATUS(device_copy(d, 0, a, 8, NULL), STOW_ERR_INVALID);
  CHECK_STATUS(device_copy(d, a, 0, 8, NULL), STOW_ERR_INVALID);
  CHECK_STATUS(device_fill(d, 0, 1, 8, NULL), STOW_ERR_INVALID);
  CHECK_STATUS(device_fill(d, a, 1, UINT64_MAX, NULL), STOW_ERR_INVALID);
  CHECK_STATUS(device_copy(d, a, a + MIB, UINT64_MAX - MIB, NULL), STOW_ERR_INVALID);
  CHECK_OK(device_copy(d, a, a + 16, 16, NULL)); /* adjacent is not overlapping */
  CHECK_OK(device_stream_sync(d, NULL));
  unsigned char *want = pattern_new(4 * MIB, 5);
  memcpy(want, want + 16, 16);
  bytes_expect(d, a, want, 4 * MIB, NULL); /* no rejected copy moved a byte */
  free(want);
  CHECK_OK(device_plain_free(d, a));
  contract_close(d);
}

/* ---- streams and events ---- */

TEST(events_pass_when_the_work_before_them_is_done)
{
  stow_device *d = contract_open();
  stow_stream stream;
  stow_event event;
  stow_addr a;
  CHECK_OK(device_plain_alloc(d, &a, 16 * MIB, STOW_TIER_VRAM));
  CHECK_OK(device_stream_create(d, &stream));
  CHECK_OK(device_event_create(d, &event));
  CHECK(event != NULL);
  CHECK_OK(device_event_query(d, event)); /* never recorded: passed */
  CHECK_OK(device_event_wait(d, event));
  CHECK_OK(device_stream_wait(d, stream, event));
  for (int i = 0; i < 8; i++) CHECK_OK(device_fill(d, a, (uint8_t)i, 16 * MIB, stream));
  CHECK_OK(device_event_record(d, event, stream));
  stow_status query = device_event_query(d, event);
  CHECK(query == STOW_OK || query == STOW_ERR_NOT_READY);
  CHECK_OK(device_event_wait(d, event));
  CHECK_OK(device_event_query(d, event));
  CHECK_OK(device_event_record(d, event, NULL)); /* recording again moves it */
  CHECK_OK(device_event_wait(d, event));
  CHECK_OK(device_stream_sync(d, stream));
  CHECK_OK(device_event_record(d, event, stream)); /* nothing to wait for */
  CHECK_OK(device_event_wait(d, event));
  CHECK_OK(device_event_destroy(d, event));
  CHECK_OK(device_stream_destroy(d, stream));
  CHECK_OK(device_plain_free(d, a));
  contract_close(d);
}

TEST(an_event_orders_work_of_one_stream_after_another)
{
  stow_device *d = contract_open();
  stow_stream one, two;
  stow_event event;
  stow_addr a, b;
  CHECK_OK(device_plain_alloc(d, &a, 24 * MIB, STOW_TIER_VRAM));
  CHECK_OK(device_plain_alloc(d, &b, 24 * MIB, STOW_TIER_VRAM));
  CHECK_OK(device_stream_create(d, &one));
  CHECK_OK(device_stream_create(d, &two));
  CHECK_OK(device_event_create(d, &event));
  for (uint8_t round = 1; round <= 10; round++) {
    CHECK_OK(device_fill(d, a, round, 24 * MIB, one));
    CHECK_OK(device_event_record(d, event, one));
    CHECK_OK(device_stream_wait(d, two, event));
    CHECK_OK(device_copy(d, b, a, 24 * MIB, two));
    CHECK_OK(device_event_record(d, event, two)); /* and back, before a is written again */
    CHECK_OK(device_stream_wait(d, one, event));
    value_expect(d, b + 23 * MIB, MIB, round, two);
  }
  CHECK_OK(device_stream_sync(d, one));
  CHECK_OK(device_event_destroy(d, event));
  CHECK_OK(device_stream_destroy(d, one));
  CHECK_OK(device_stream_destroy(d, two));
  CHECK_OK(device_plain_free(d, a));
  CHECK_OK(device_plain_free(d, b));
  contract_close(d);
}

TEST(streams_and_events_that_are_none_are_refused)
{
  stow_device *d = contract_open();
  stow_stream stream;
  stow_event event;
  CHECK_STATUS(device_stream_destroy(d, NULL), STOW_ERR_INVALID);
  CHECK_STATUS(device_event_destroy(d, NULL), STOW_ERR_INVALID);
  CHECK_STATUS(device_event_record(d, NULL, NULL), STOW_ERR_INVALID);
  CHECK_STATUS(device_event_query(d, NULL), STOW_ERR_INVALID);
  CHECK_STATUS(device_event_wait(d, NULL), STOW_ERR_INVALID);
  CHECK_STATUS(device_stream_wait(d, NULL, NULL), STOW_ERR_INVALID);
  CHECK(stow_status_message()[0] != '\0');
  CHECK_OK(device_stream_create(d, &stream));
  CHECK_OK(device_event_create(d, &event));
  CHECK_OK(device_stream_destroy(d, stream));
  CHECK_OK(device_event_destroy(d, event));
  CHECK_STATUS(device_stream_destroy(d, stream), STOW_ERR_STATE);
  CHECK_STATUS(device_event_destroy(d, event), STOW_ERR_STATE);
  contract_close(d);
}

TEST(a_stream_may_be_destroyed_before_its_work_is_done)
{
  stow_device *d = contract_open();
  stow_stream stream;
  stow_event event;
  stow_addr a;
  CHECK_OK(device_plain_alloc(d, &a, 24 * MIB, STOW_TIER_VRAM));
  CHECK_OK(device_stream_create(d, &stream));
  CHECK_OK(device_event_create(d, &event));
  for (uint8_t i = 0; i < 8; i++) CHECK_OK(device_fill(d, a, i, 24 * MIB, stream));
  CHECK_OK(device_event_record(d, event, stream));
  CHECK_OK(device_stream_destroy(d, stream));
  CHECK_OK(device_event_wait(d, event));
  value_expect(d, a, MIB, 7, NULL);
  CHECK_OK(device_event_destroy(d, event));
  CHECK_OK(device_plain_free(d, a));
  contract_close(d);
}

/* ---- many threads, and the end ---- */

#define CONTRACT_THREADS 4

typedef struct contract_thread {
  stow_device *device;
  uint64_t seed;
  stow_status status; /* the first failure */
  char message[512];
} contract_thread;

/* Does one thread's work: its own block, stream and event, with bytes written and read back. */
static stow_status contract_thread_turn(stow_device *d, uint64_t seed) {
  stow_addr a;
  stow_stream stream;
  stow_event event;
  unsigned char *put = pattern_new(256 << 10, seed), *got = calloc(1, 256 << 10);
  STOW_TRY(device_plain_alloc(d, &a, 256 << 10, STOW_TIER_VRAM));
  STOW_TRY(device_stream_create(d, &stream));
  STOW_TRY(device_event_create(d, &event));
  STOW_TRY(device_copy(d, a, host_addr(put), 256 << 10, stream));
  STOW_TRY(device_copy(d, host_addr(got), a, 256 << 10, stream));
  STOW_TRY(device_event_record(d, event, stream));
  STOW_TRY(device_event_wait(d, event));
  if (CONTRACT_BYTES && memcmp(put, got, 256 << 10) != 0)
    return stow_fail(STOW_ERR_DEVICE, "bytes of another thread came back");
  STOW_TRY(device_memory(d, STOW_TIER_VRAM, NULL, NULL));
  STOW_TRY(device_event_destroy(d, event));
  STOW_TRY(device_stream_destroy(d, stream));
  STOW_TRY(device_plain_free(d, a));
  free(put);
  free(got);
  return STOW_OK;
}

static void *contract_thread_run(void *argument) {
  contract_thread *t = argument;
  t->status = device_thread_enter(t->device);
  for (uint64_t turn = 0; turn < 50 && t->status == STOW_OK; turn++)
    t->status = contract_thread_turn(t->device, t->seed * 1000 + turn);
  snprintf(t->message, sizeof t->message, "%s", stow_status_message());
  return NULL;
}

/* Runs `run` in several threads at once and returns the first failure. */
static void contract_threads(stow_device *d, void *(*run)(void *)) {
  pthread_t threads[CONTRACT_THREADS];
  contract_thread each[CONTRACT_THREADS];
  for (int i = 0; i < CONTRACT_THREADS; i++) {
    each[i] = (contract_thread){.device = d, .seed = (uint64_t)i + 1};
    CHECK(pthread_create(&threads[i], NULL, run, &each[i]) == 0);
  }
  for (int i = 0; i < CONTRACT_THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  for (int i = 0; i < CONTRACT_THREADS; i++)
    if (each[i].status != STOW_OK)
      FAIL("thread %d: %s: %s", i, stow_status_name(each[i].status), each[i].message);
}

TEST(threads_may_call_at_once)
{
  stow_device *d = contract_open();
  uint64_t before = free_of(d, STOW_TIER_VRAM);
  contract_threads(d, contract_thread_run);
  free_expect(d, STOW_TIER_VRAM, before);
  contract_close(d);
}

TEST(closing_reports_what_was_never_freed)
{
  stow_device *d = contract_open();
  stow_addr a;
  stow_stream stream;
  stow_event event;
  CHECK_OK(device_plain_alloc(d, &a, MIB, STOW_TIER_VRAM));
  CHECK_OK(device_stream_create(d, &stream));
  CHECK_OK(device_event_create(d, &event));
  CHECK_STATUS(stow_device_close(d), STOW_ERR_STATE);
  CHECK_MESSAGE("1 plain");
  CHECK_MESSAGE("1 streams");
  CHECK_MESSAGE("1 events");
  d = contract_open(); /* a new device works normally */
  contract_close(d);
}

#endif
