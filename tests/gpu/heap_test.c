/* The heap on a real GPU: contents under random use on several streams, and memory that moves
 * between tiers while other streams run. Runs in this process, because a driver does not survive a
 * fork. */
#include <stdlib.h>

#include <stowage/stowage.h>
#include <stowage/sys/device.h>

#include "harness.h"

#define MIB     (UINT64_C(1) << 20)
#define GIB     (UINT64_C(1) << 30)
#define STREAMS 3
#define LIVE    400

static stow_device *gpu_device(void) {
  const char *other = getenv("STOWAGE_TEST_DEVICE"); /* to test the test: "sim:4G,host=4G" */
  int count = 0;
  CHECK_OK(stow_device_count(&count));
  if (count == 0 && !other) SKIP("no device: the driver shows none");
  stow_device *d = NULL;
  CHECK_OK(stow_device_open(&d, other ? other : "0"));
  return d;
}

static stow_heap *heap_on(stow_device *d, uint64_t vram, uint64_t host, const char *folder) {
  stow_device_props props = STOW_DEVICE_PROPS_INIT;
  CHECK_OK(stow_device_get_props(d, &props));
  if (!props.has_vmm) SKIP("%s: no virtual memory management", props.name);
  if (host && props.host_backing < STOW_HOST_LOCATION) SKIP("%s: no host pages here", props.name);
  stow_heap *h;
  stow_heap_options o = STOW_HEAP_OPTIONS_INIT;
  o.device = d;
  o.vram_limit_bytes = vram;
  o.host_limit_bytes = host;
  o.disk_folder = folder;
  CHECK_OK(stow_heap_open(&h, &o));
  return h;
}

typedef struct block {
  uint64_t ptr, bytes;
  uint8_t value;
  int stream;
} block;

/* Checks that every byte of a block is what was last written to it. */
static void check_bytes(stow_device *d, const block *b, stow_stream s, uint8_t *buffer) {
  CHECK_OK(d->ops->copy(d, (stow_addr)(uintptr_t)buffer, b->ptr, b->bytes, s));
  CHECK_OK(d->ops->stream_sync(d, s));
  for (uint64_t i = 0; i < b->bytes; i++)
    if (buffer[i] != b->value)
      FAIL("byte %" PRIu64 " of %" PRIu64 " is %u, expected %u", i, b->bytes, buffer[i], b->value);
}

TEST(blocks_keep_their_bytes_under_random_use_near_the_limit)
{
  stow_device *d = gpu_device();
  stow_heap *h = heap_on(d, GIB, 0, NULL);
  stow_stream streams[STREAMS];
  for (int i = 0; i < STREAMS; i++) CHECK_OK(d->ops->stream_create(d, &streams[i]));
  static block live[LIVE];
  int count = 0;
  uint64_t seed = 7, refused = 0, checked = 0;
  uint8_t *buffer = malloc(64 * MIB);
  for (int step = 0; step < 20000; step++) {
    uint64_t r = harness_random(&seed);
    if (count > 0 && (count == LIVE || r % 100 < 45)) {
      int at = (int)((r >> 16) % (uint64_t)count);
      block b = live[at];
      if ((r >> 40) % 8 == 0) check_bytes(d, &b, streams[b.stream], buffer), checked += b.bytes;
      CHECK_OK(stow_heap_free(h, b.ptr, streams[b.stream]));
      live[at] = live[--count];
      continue;
    }
    block b = {.bytes = 512 * (1 + (r >> 8) % (UINT64_C(1) << (1 + (r >> 32) % 17))),
               .value = (uint8_t)(r >> 50),
               .stream = (int)((r >> 56) % STREAMS)};
    stow_status status = stow_heap_alloc(&b.ptr, h, b.bytes, streams[b.stream]);
    if (status == STOW_ERR_OUT_OF_MEMORY) {
      refused++;
      continue;
    }
    CHECK_OK(status);
    CHECK_OK(d->ops->fill(d, b.ptr, b.value, b.bytes, streams[b.stream]));
    live[count++] = b;
    if (step % 2000 == 0) CHECK_OK(stow_heap_check(h));
  }
  while (count > 0) {
    const block *b = &live[--count];
    check_bytes(d, b, streams[b->stream], buffer);
    CHECK_OK(stow_heap_free(h, b->ptr, streams[b->stream]));
  }
  stow_heap_stats s = STOW_HEAP_STATS_INIT;
  CHECK_OK(stow_heap_get_stats(h, &s));
  harness_note("%" PRIu64 " allocations, %" PRIu64 " refused, %" PRIu64 " stitches, %" PRIu64
               " MiB compared",
               s.alloc_total, refused, s.stitches, checked / MIB);
  CHECK_OK(stow_heap_check(h));
  CHECK_OK(stow_heap_close(h));
  for (int i = 0; i < STREAMS; i++) CHECK_OK(d->ops->stream_destroy(d, streams[i]));
  CHECK_OK(stow_device_close(d));
  free(buffer);
}

TEST(live_memory_moves_between_tiers_between_the_work_that_uses_it)
{
  stow_device *d = gpu_device();
  stow_heap *h = heap_on(d, 2 * GIB, GIB, harness_folder());
  stow_stream mine, others[2];
  CHECK_OK(d->ops->stream_create(d, &mine));
  for (int i = 0; i < 2; i++) CHECK_OK(d->ops->stream_create(d, &others[i]));
  uint64_t busy[2];
  for (int i = 0; i < 2; i++) CHECK_OK(stow_heap_alloc(&busy[i], h, 256 * MIB, others[i]));
  block moving = {.bytes = 96 * MIB + 512};
  CHECK_OK(stow_heap_alloc(&moving.ptr, h, moving.bytes, mine));
  uint8_t *buffer = malloc(256 * MIB);
  stow_tier tiers[] = {STOW_TIER_HOST, STOW_TIER_VRAM, STOW_TIER_DISK, STOW_TIER_VRAM,
                       STOW_TIER_HOST, STOW_TIER_DISK, STOW_TIER_HOST, STOW_TIER_VRAM};
  for (int round = 0; round < 8; round++) {
    for (int i = 0; i < 2; i++) /* meanwhile these streams work on other memory */
      for (int k = 0; k < 20; k++)
        CHECK_OK(d->ops->fill(d, busy[i], (uint8_t)(round * 20 + k), 256 * MIB, others[i]));
    if (round == 0 || tiers[round - 1] != STOW_TIER_DISK) {
      moving.value = (uint8_t)(100 + round);
      CHECK_OK(d->ops->fill(d, moving.ptr, moving.value, moving.bytes, mine));
    }
    CHECK_OK(stow_heap_migrate(h, moving.ptr, tiers[round]));
    CHECK_OK(stow_heap_check(h));
    if (tiers[round] == STOW_TIER_DISK) continue;
    check_bytes(d, &moving, mine, buffer);
  }
  for (int i = 0; i < 2; i++) {
    block b = {.ptr = busy[i], .bytes = 256 * MIB, .value = (uint8_t)(7 * 20 + 19)};
    check_bytes(d, &b, others[i], buffer);
    CHECK_OK(stow_heap_free(h, busy[i], others[i]));
  }
  CHECK_OK(stow_heap_free(h, moving.ptr, mine));
  CHECK_OK(stow_heap_close(h));
  CHECK_OK(d->ops->stream_destroy(d, mine));
  for (int i = 0; i < 2; i++) CHECK_OK(d->ops->stream_destroy(d, others[i]));
  CHECK_OK(stow_device_close(d));
  free(buffer);
}

TEST(memory_past_the_limit_spills_and_works)
{
  stow_device *d = gpu_device();
  stow_heap *h = heap_on(d, 256 * MIB, GIB, NULL);
  uint8_t *buffer = malloc(100 * MIB);
  block b[6];
  for (int i = 0; i < 6; i++) {
    b[i] = (block){.bytes = 100 * MIB, .value = (uint8_t)(i + 1)};
    CHECK_OK(stow_heap_alloc(&b[i].ptr, h, b[i].bytes, NULL));
    CHECK_OK(d->ops->fill(d, b[i].ptr, b[i].value, b[i].bytes, NULL));
  }
  stow_heap_stats s = STOW_HEAP_STATS_INIT;
  CHECK_OK(stow_heap_get_stats(h, &s));
  CHECK_U64(s.spilled_bytes, 400 * MIB);
  CHECK_OK(stow_heap_free(h, b[0].ptr, NULL));
  CHECK_OK(stow_heap_set_heat(h, b[5].ptr, STOW_HEAT_HOT));
  CHECK_OK(stow_heap_trim(h, 0, NULL));
  uint64_t moved;
  CHECK_OK(stow_heap_bring_back(h, &moved));
  CHECK(moved >= 96 * MIB);
  for (int i = 1; i < 6; i++) {
    check_bytes(d, &b[i], NULL, buffer);
    CHECK_OK(stow_heap_free(h, b[i].ptr, NULL));
  }
  CHECK_OK(stow_heap_close(h));
  CHECK_OK(stow_device_close(d));
  free(buffer);
}

int main(int argc, char **argv) {
  char here[] = "--here", *words[64] = {argv[0], here};
  int count = 2;
  for (int i = 1; i < argc && count < 64; i++) words[count++] = argv[i];
  return harness_main(count, words);
}
