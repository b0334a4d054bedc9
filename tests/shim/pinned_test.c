/* Pinned memory: idle pages, slabs, the bound on them, and a driver that refuses. */
#include "shim/pinned.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness.h"
#include "shim/host_tier.h"
#include "shim/resident.h"
#include "shim/shim.h"

#define MIB ((uint64_t)1 << 20)

static _Atomic uint64_t registered_bytes, usable_bytes;
static _Atomic int calls;
static cu_result answer;

bool host_tier_has(uint64_t bytes) {
  return bytes <= usable_bytes;
}

static cu_result register_memory(void *pointer, size_t bytes, unsigned flags) {
  unsigned char there[1];
  calls++;
  CHECK_U64(flags, 1);
  CHECK_U64((uintptr_t)pointer % (2 * MIB), 0);
  /* Every page is there before the driver gets it. */
  for (size_t at = 0; at < bytes; at += MIB / 2)
    CHECK(mincore((char *)pointer + at, 1, there) == 0 && (there[0] & 1) != 0);
  if (answer == CU_OK) registered_bytes += bytes;
  return answer;
}

static int allocated;

cu_result host_tier_pinned_alloc(cu_addr *addr, void **host, uint64_t bytes, unsigned device) {
  (void)device;
  if (answer != CU_OK || bytes > usable_bytes) return CU_ERROR_OUT_OF_MEMORY;
  *host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *addr = (uintptr_t)*host;
  allocated++;
  return CU_OK;
}

/* Idle pages of 20 MiB on device 3. */
#define PAGE (20 * MIB)
static uint64_t idle_pages;

cu_addr resident_take_host(unsigned device, uint64_t *bytes) {
  if (device != 3 || idle_pages == 0) return 0;
  *bytes = PAGE;
  return (uint64_t)0x5000 << 32 | (uint64_t)(100 - idle_pages--) << 28;
}

uint64_t resident_idle_hosts(unsigned device) {
  return device == 3 ? idle_pages * PAGE : 0;
}

static cuda_driver driver;
const cuda_driver *shim_driver(void) {
  return &driver;
}

static _Atomic int ended; /* threads that made memory ahead */

void shim_log(const char *format, ...) {
  (void)format;
  ended++;
}

static void wait_for_end(int count) {
  for (int turn = 0; turn < 20000 && ended < count; turn++) usleep(1000);
  CHECK(ended == count);
}

ledger *account_ledger(void) {
  static ledger l;
  return &l;
}

static cu_context here(void) {
  static int context;
  return (cu_context)(void *)&context;
}

static cu_result current(cu_context *context) {
  *context = here();
  return CU_OK;
}

static cu_result push(cu_context context) {
  CHECK(context == here());
  return CU_OK;
}

static void begin(void) {
  driver.cuCtxGetCurrent = current;
  driver.cuCtxPushCurrent_v2 = push;
  driver.cuMemHostRegister_v2 = register_memory;
  usable_bytes = UINT64_MAX;
}

static char *take(uint64_t bytes, uint64_t most_bytes) {
  uint64_t got = bytes;
  char *taken = (char *)(uintptr_t)pinned_take(0, &got, most_bytes);
  if (taken != NULL) CHECK_U64(got, bytes);
  return taken;
}

TEST(memory_comes_from_slabs)
{
  begin();
  char *last = NULL;
  for (int i = 0; i < 8; i++) { /* 8 x 64 MiB: two slabs of 256 MiB */
    char *now = take(64 * MIB, 1024 * MIB);
    CHECK(now != NULL);
    if (i % 4 != 0) CHECK(now == last + 64 * MIB);
    now[0] = now[64 * MIB - 1] = 1;
    last = now;
    CHECK(pinned_holds((uintptr_t)now) && pinned_holds((uintptr_t)now + 64 * MIB - 1));
  }
  CHECK(!pinned_holds((uintptr_t)&last) && !pinned_holds(0));
  CHECK(calls == 2);
  CHECK_U64(registered_bytes, 512 * MIB);
}

TEST(a_slab_is_no_larger_than_the_budget)
{
  begin();
  CHECK(take(3 * MIB, 5 * MIB) != NULL);
  CHECK_U64(registered_bytes, 6 * MIB);      /* in units of 2 MiB */
  CHECK(take(300 * MIB, 305 * MIB) == NULL); /* in all */
  CHECK(take(300 * MIB, 306 * MIB) != NULL);
  CHECK_U64(registered_bytes, 306 * MIB);
  CHECK(take(UINT64_MAX - 1, UINT64_MAX) == NULL);
}

TEST(a_refusal_leaves_nothing)
{
  begin();
  int before = calls;
  answer = CU_ERROR_OUT_OF_MEMORY;
  CHECK(take(64 * MIB, 1024 * MIB) == NULL);
  CHECK(calls == before + 1);
  usable_bytes = MIB; /* the host is full: the driver is not asked */
  CHECK(take(64 * MIB, 1024 * MIB) == NULL);
  CHECK(calls == before + 1);
  answer = CU_OK;
  usable_bytes = UINT64_MAX;
  CHECK(allocated == 0);
  driver.cuMemHostRegister_v2 = NULL;
  CHECK(take(64 * MIB, 1024 * MIB) != NULL); /* by the driver */
  CHECK(allocated == 1);
}

TEST(idle_pages_come_first)
{
  begin();
  idle_pages = 3;
  uint64_t first = 64 * MIB, second = 16 * MIB, third = 4 * MIB, fourth = 1, last = 64 * MIB;
  uint64_t at = pinned_take(3, &first, 0);
  CHECK(at != 0 && pinned_holds(at) && pinned_holds(at + PAGE - 1) && !pinned_holds(at + PAGE));
  CHECK_U64(first, PAGE);
  uint64_t other = pinned_take(3, &second, 0);
  CHECK(other != 0 && other - at >= PAGE);
  CHECK_U64(second, 16 * MIB);
  uint64_t foreign = MIB;
  CHECK(pinned_take(2, &foreign, 0) == 0); /* another device does not reach these pages */
  CHECK_U64(pinned_take(3, &third, 0), other + 16 * MIB); /* what was left of that page */
  CHECK(idle_pages == 1);
  CHECK(pinned_take(3, &fourth, 0) != 0 && idle_pages == 0);
  pinned_prepare(3, 300 * MIB); /* there are 60 MiB in pages, and no slab is as small as the rest */
  CHECK(calls == 0);
  CHECK(pinned_take(3, &last, 0) == 0 && calls == 0);
  CHECK(pinned_take(3, &last, 1024 * MIB) != 0 && calls == 1);
  CHECK_U64(last, 64 * MIB);
}

TEST(memory_is_made_ahead)
{
  begin();
  pinned_prepare(0, 600 * MIB); /* two slabs; a third would be more */
  wait_for_end(1);
  CHECK(calls == 2);
  pinned_prepare(0, 500 * MIB);
  for (int i = 0; i < 8; i++) CHECK(take(64 * MIB, 1024 * MIB) != NULL);
  CHECK(calls == 2);
  CHECK(take(64 * MIB, 64 * MIB) == NULL);
  CHECK(take(64 * MIB, 576 * MIB) != NULL);
  CHECK(calls == 3);
  CHECK_U64(registered_bytes, 576 * MIB);
  pinned_prepare(0, 832 * MIB); /* as much in all */
  wait_for_end(2);
  CHECK(take(256 * MIB, 1024 * MIB) != NULL);
  CHECK(calls == 4);
}

TEST(a_refusal_ahead_is_the_last)
{
  begin();
  answer = CU_ERROR_OUT_OF_MEMORY;
  pinned_prepare(0, 600 * MIB);
  wait_for_end(1);
  CHECK(calls == 1);
  pinned_prepare(0, 900 * MIB); /* starts no thread */
  CHECK(calls == 1);
  answer = CU_OK;
  CHECK(take(64 * MIB, 1024 * MIB) != NULL);
}

TEST_MAIN
