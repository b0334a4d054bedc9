/* The heap on a card: the hot pair, churn, and a recorded loop really allocated with work on it.
 *
 * A recording is named by the argument or STOWAGE_RECORDING; it is replayed at a limit of 1.01
 * times its peak live bytes: every allocation is made and filled on its stream, and what alloc and
 * free took after the first three iterations is set against the recorded time of the same stretch.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/stowage.h>
#include <stowage/sys/device.h>

#include "base/clock.h"
#include "base/hash.h"
#include "formats/recording_file.h"

#define MIB (UINT64_C(1) << 20)

static void must(stow_status status) {
  if (status == STOW_OK) return;
  fprintf(stderr, "gpu_heap_bench: %s: %s\n", stow_status_name(status), stow_status_message());
  exit(1);
}

static stow_device *device;

static stow_heap *heap_of(uint64_t limit) {
  stow_heap *h;
  stow_heap_options o = STOW_HEAP_OPTIONS_INIT;
  o.device = device;
  o.vram_limit_bytes = limit;
  must(stow_heap_open(&h, &o));
  return h;
}

static uint64_t next(uint64_t *state) {
  uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  return z ^ (z >> 31);
}

static void hot(void) {
  stow_heap *h = heap_of(0);
  for (uint64_t bytes = 512; bytes <= 64 * MIB; bytes *= 8) {
    double best = 1e30;
    uint64_t p;
    for (int round = 0; round < 200; round++) {
      uint64_t t = clock_ns();
      for (int i = 0; i < 2000; i++) {
        must(stow_heap_alloc(&p, h, bytes, NULL));
        must(stow_heap_free(h, p, NULL));
      }
      double ns = (double)(clock_ns() - t) / 2000;
      if (round > 0 && ns < best) best = ns;
    }
    printf("case=gpu_hot_pair_%" PRIu64 " ours=%.1f unit=ns\n", bytes, best);
  }
  enum { LIVE = 2000 };
  static uint64_t live[LIVE];
  uint64_t seed = 3;
  double best = 1e30;
  for (int i = 0; i < LIVE; i++)
    must(stow_heap_alloc(&live[i], h, UINT64_C(1) << (9 + next(&seed) % 18), NULL));
  for (int round = 0; round < 50; round++) {
    uint64_t t = clock_ns();
    for (int i = 0; i < 5000; i++) {
      uint64_t r = next(&seed), *p = &live[r % LIVE];
      must(stow_heap_free(h, *p, NULL));
      must(stow_heap_alloc(p, h, UINT64_C(1) << (9 + (r >> 32) % 18), NULL));
    }
    double ns = (double)(clock_ns() - t) / 5000;
    if (ns < best) best = ns;
  }
  printf("case=gpu_churn_2000_live_2^9..2^26 ours=%.1f unit=ns\n", best);
  for (int i = 0; i < LIVE; i++) must(stow_heap_free(h, live[i], NULL));
  must(stow_heap_close(h));
}

static uint64_t peak_of(const recording *r) {
  map sizes = {0};
  uint64_t live = 0, peak = 0, bytes;
  for (size_t i = 0; i < r->event_count; i++) {
    const event *e = &r->events[i];
    if (e->kind == EVENT_ALLOC) {
      bytes = (e->bytes + 511) / 512 * 512;
      must(map_put(&sizes, e->addr, bytes));
      live += bytes;
      if (live > peak) peak = live;
    } else if (e->kind == EVENT_FREE && map_remove(&sizes, e->addr, &bytes)) {
      live -= bytes;
    }
  }
  map_free(&sizes);
  return peak;
}

static void replay(const char *path) {
  recording r;
  recording_init(&r, 0);
  must(recording_read(&r, path, KIND_AUTO, NULL));
  uint64_t peak = peak_of(&r), limit = (uint64_t)((double)peak * 1.01) / (2 * MIB) * (2 * MIB);
  stow_heap *h = heap_of(limit);
  map ptrs = {0};
  uint64_t spent = 0, began = r.events[0].time_ns, waits = 0, p, marks = 0;
  stow_stream stream;
  must(device->ops->stream_create(device, &stream));
  for (size_t i = 0; i < r.event_count; i++) {
    const event *e = &r.events[i];
    if (e->kind == EVENT_MARK_BEGIN && ++marks == 6) { /* two marks an iteration */
      spent = 0;
      began = e->time_ns;
      stow_heap_stats s;
      must(stow_heap_get_stats(h, &s));
      waits = s.event_waits;
    }
    uint64_t t = clock_ns();
    if (e->kind == EVENT_ALLOC) {
      must(stow_heap_alloc(&p, h, e->bytes ? e->bytes : 1, stream));
      spent += clock_ns() - t;
      must(map_put(&ptrs, e->addr, p));
      must(device->ops->fill(device, p, 1, e->bytes, stream));
    } else if (e->kind == EVENT_FREE && map_remove(&ptrs, e->addr, &p)) {
      must(stow_heap_free(h, p, stream));
      spent += clock_ns() - t;
    }
  }
  must(device->ops->stream_sync(device, stream));
  double recorded = (double)(r.events[r.event_count - 1].time_ns - began);
  stow_heap_stats s;
  must(stow_heap_get_stats(h, &s));
  printf("case=gpu_replay ours=%.2f peer=recorded_ms:%.0f ratio=%.4f unit=ms limit/peak=%.4f "
         "creates=%" PRIu64 " maps=%" PRIu64 " unmaps=%" PRIu64 " waits=%" PRIu64 "\n",
         (double)spent / 1e6, recorded / 1e6, (double)spent / recorded,
         (double)limit / (double)peak, s.page_creates, s.maps, s.unmaps, s.event_waits - waits);
  size_t at = 0;
  uint64_t key;
  while (map_next(&ptrs, &at, &key, &p)) must(stow_heap_free(h, p, stream));
  map_free(&ptrs);
  must(stow_heap_close(h));
  must(device->ops->stream_destroy(device, stream));
  recording_free(&r);
}

int main(int argc, char **argv) {
  const char *path = argc > 1 ? argv[1] : getenv("STOWAGE_RECORDING");
  const char *name = getenv("STOWAGE_TEST_DEVICE");
  int count = 0;
  if (!name && (stow_device_count(&count) != STOW_OK || count == 0)) {
    puts("gpu_heap_bench: no card: the driver shows none");
    return 0;
  }
  must(stow_device_open(&device, name ? name : "0"));
  hot();
  if (path)
    replay(path);
  else
    puts("case=gpu_replay: no recording named (argument, or STOWAGE_RECORDING)");
  must(stow_device_close(device));
  return 0;
}
