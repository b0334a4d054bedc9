/* Heap bench on a GPU: the hot pair, churn, the cost of runs of pages, and recorded loops that are
 * really allocated and used.
 *
 * Recordings are named by the arguments or STOWAGE_RECORDING; each is replayed at a limit of 1.01
 * times its peak live bytes: every allocation is made and filled on its stream, and the time in
 * alloc and free from the fourth iteration on (without marks: after the peak, as in loops_bench) is
 * compared with the recorded time of the same range. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/stowage.h>
#include <stowage/sys/device.h>

#include "base/clock.h"
#include "base/hash.h"
#include "recordings/recording_file.h"

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

/* Returns a random size. Keeps 2000 live blocks of 2^9 to 2^26 bytes and replaces one at a time;
 * the mean, like torch_pairs.py with the same sizes, after half as many that do not count. */
static uint64_t size_of(uint64_t *seed) {
  uint64_t least = UINT64_C(1) << (9 + next(seed) % 17);
  return least + next(seed) % least;
}

static void churn(stow_heap *h) {
  enum { LIVE = 2000, COUNT = 200000 };
  static uint64_t live[LIVE];
  uint64_t seed = 1, began = 0;
  for (int i = 0; i < LIVE; i++) must(stow_heap_alloc(&live[i], h, size_of(&seed), NULL));
  for (int i = -COUNT / 2; i < COUNT; i++) {
    if (i == 0) began = clock_ns();
    uint64_t *p = &live[next(&seed) % LIVE];
    must(stow_heap_free(h, *p, NULL));
    must(stow_heap_alloc(p, h, size_of(&seed), NULL));
  }
  printf("case=gpu_churn_2000_live_2^9..2^26 ours=%.1f unit=ns\n",
         (double)(clock_ns() - began) / COUNT);
  for (int i = 0; i < LIVE; i++) must(stow_heap_free(h, live[i], NULL));
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
  churn(h);
  must(stow_heap_close(h));
}

/* ---- runs of pages: map each, then one call for access and one to unmap ---- */

enum { RUN_MAX = 512, RUN_ROUNDS = 9 };

static int by_value(const void *x, const void *y) {
  uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
  return a < b ? -1 : a > b;
}

static double median_us(uint64_t *ns, int pages) {
  qsort(ns, RUN_ROUNDS, sizeof *ns, by_value);
  uint64_t middle = ns[RUN_ROUNDS / 2];
  return (double)middle / 1e3 / pages;
}

static void run_of(int pages, uint64_t bytes) {
  static stow_page page[RUN_MAX];
  const stow_device_ops *ops = device->ops;
  uint64_t took[3][RUN_ROUNDS];
  stow_addr at;
  must(ops->reserve(device, &at, (uint64_t)pages * bytes, 0));
  for (int i = 0; i < pages; i++) must(ops->page_create(device, &page[i], bytes, STOW_TIER_VRAM));
  for (int round = 0; round < RUN_ROUNDS; round++) {
    uint64_t t = clock_ns();
    for (int i = 0; i < pages; i++)
      must(ops->map(device, at + (uint64_t)i * bytes, bytes, page[i]));
    took[0][round] = clock_ns() - t, t = clock_ns();
    must(ops->access(device, at, (uint64_t)pages * bytes));
    took[1][round] = clock_ns() - t, t = clock_ns();
    must(ops->unmap(device, at, (uint64_t)pages * bytes));
    took[2][round] = clock_ns() - t;
  }
  for (int i = 0; i < pages; i++) must(ops->page_release(device, page[i]));
  must(ops->unreserve(device, at, (uint64_t)pages * bytes));
  printf("case=gpu_run_%dx%" PRIu64 "_MiB map=%.2f access=%.1f unmap=%.1f unit=us/page\n", pages,
         bytes / MIB, median_us(took[0], pages), median_us(took[1], pages),
         median_us(took[2], pages));
}

static void runs(void) {
  for (int pages = 1; pages <= RUN_MAX; pages *= 8) run_of(pages, 2 * MIB);
  for (int pages = 1; pages <= RUN_MAX / 8; pages *= 8) run_of(pages, 8 * MIB);
}

/* Returns the peak of live bytes, and the event after it. */
static uint64_t peak_of(const recording *r, size_t *after) {
  map sizes = {0};
  uint64_t live = 0, peak = 0, bytes;
  for (size_t i = 0; i < r->event_count; i++) {
    const event *e = &r->events[i];
    if (e->kind == EVENT_ALLOC) {
      bytes = (e->bytes + 511) / 512 * 512;
      must(map_put(&sizes, e->addr, bytes));
      live += bytes;
      if (live > peak) peak = live, *after = i + 1;
    } else if (e->kind == EVENT_FREE && map_remove(&sizes, e->addr, &bytes)) {
      live -= bytes;
    }
  }
  map_free(&sizes);
  return peak;
}

/* Returns the event where the first mark begins for the fourth time; `otherwise` if there are
 * fewer. */
static size_t fourth(const recording *r, size_t otherwise) {
  uint32_t first = 0;
  int seen = 0;
  for (size_t i = 0; i < r->event_count; i++) {
    if (r->events[i].kind != EVENT_MARK_BEGIN) continue;
    uint32_t name = event_origin(r, &r->events[i])->tag_id;
    if (seen == 0) first = name;
    if (name == first && ++seen == 4) return i;
  }
  return otherwise;
}

static void replay(const char *path) {
  recording r;
  recording_init(&r, 0);
  must(recording_read(&r, path, KIND_AUTO, NULL));
  size_t from = 0;
  uint64_t peak = peak_of(&r, &from),
           limit = (uint64_t)((double)peak * 1.01) / (2 * MIB) * (2 * MIB);
  stow_heap *h = heap_of(limit);
  map ptrs = {0};
  uint64_t spent = 0, began = r.events[0].time_ns, p;
  stow_heap_stats before = STOW_HEAP_STATS_INIT;
  from = fourth(&r, from);
  stow_stream stream;
  must(device->ops->stream_create(device, &stream));
  for (size_t i = 0; i < r.event_count; i++) {
    const event *e = &r.events[i];
    if (i == from) {
      spent = 0;
      began = e->time_ns;
      must(stow_heap_get_stats(h, &before));
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
  stow_heap_stats s = STOW_HEAP_STATS_INIT;
  must(stow_heap_get_stats(h, &s));
  const char *name = strrchr(path, '/');
  printf("case=gpu_replay_%s ours=%.2f peer=recorded_ms:%.0f ratio=%.4f unit=ms limit/peak=%.4f "
         "creates=%" PRIu64 " maps=%" PRIu64 " unmaps=%" PRIu64 " waits=%" PRIu64 "\n",
         name ? name + 1 : path, (double)spent / 1e6, recorded / 1e6, (double)spent / recorded,
         (double)limit / (double)peak, s.page_creates - before.page_creates, s.maps - before.maps,
         s.unmaps - before.unmaps, s.event_waits - before.event_waits);
  size_t at = 0;
  uint64_t key;
  while (map_next(&ptrs, &at, &key, &p)) must(stow_heap_free(h, p, stream));
  map_free(&ptrs);
  must(stow_heap_close(h));
  must(device->ops->stream_destroy(device, stream));
  recording_free(&r);
}

int main(int argc, char **argv) {
  char *path = getenv("STOWAGE_RECORDING");
  const char *name = getenv("STOWAGE_TEST_DEVICE");
  int count = 0;
  if (!name && (stow_device_count(&count) != STOW_OK || count == 0)) {
    puts("gpu_heap_bench: the driver shows no device");
    return 0;
  }
  must(stow_device_open(&device, name ? name : "0"));
  hot();
  runs();
  for (int i = 1; i < argc; i++) replay(argv[i]);
  if (argc == 1 && path) replay(path);
  if (argc == 1 && !path)
    puts("case=gpu_replay: no recording named (argument, or STOWAGE_RECORDING)");
  must(stow_device_close(device));
  return 0;
}
