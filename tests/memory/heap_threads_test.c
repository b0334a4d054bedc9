/* Threads: several on streams of their own and across each other's, with the background thread, a
 * trimmer and sinks that come and go. Run under ThreadSanitizer by the suite. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <stowage/stowage.h>
#include <stowage/sys/device.h>

#include "harness.h"

#define MIB     (UINT64_C(1) << 20)
#define THREADS 4
#define SLOTS   64

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define ROUNDS 4000
#else
#define ROUNDS 40000
#endif

typedef struct shared {
  stow_heap *heap;
  stow_device *device;
  _Atomic uint64_t passed[THREADS][SLOTS]; /* handed from one thread to the next, which frees it */
  _Atomic int running;
  _Atomic uint64_t events;
} shared;

typedef struct worker {
  shared *all;
  int number;
  stow_stream stream;
  uint64_t refused;
} worker;

static void check_ok(stow_status status) {
  if (status != STOW_OK && status != STOW_ERR_OUT_OF_MEMORY)
    FAIL("%s: %s", stow_status_name(status), stow_status_message());
}

static void *work(void *user) {
  worker *w = user;
  uint64_t seed = (uint64_t)w->number + 1, mine[SLOTS] = {0};
  for (int i = 0; i < ROUNDS; i++) {
    uint64_t r = harness_random(&seed);
    int slot = (int)(r % SLOTS);
    uint64_t bytes = UINT64_C(1) << (9 + (r >> 8) % 14);
    if (mine[slot]) {
      if ((r >> 32) % 8 == 0) { /* the next thread frees it on its own stream */
        int next = (w->number + 1) % THREADS;
        mine[slot] = atomic_exchange(&w->all->passed[next][slot], mine[slot]);
        if (mine[slot]) check_ok(stow_heap_free(w->all->heap, mine[slot], w->stream));
      } else {
        check_ok(stow_heap_free(w->all->heap, mine[slot], w->stream));
      }
      mine[slot] = 0;
    } else {
      stow_status status = stow_heap_alloc(&mine[slot], w->all->heap, bytes, w->stream);
      check_ok(status);
      w->refused += status != STOW_OK;
    }
    uint64_t given = atomic_exchange(&w->all->passed[w->number][slot], 0);
    if (given) check_ok(stow_heap_free(w->all->heap, given, w->stream));
  }
  for (int i = 0; i < SLOTS; i++)
    if (mine[i]) check_ok(stow_heap_free(w->all->heap, mine[i], w->stream));
  atomic_fetch_sub(&w->all->running, 1);
  return NULL;
}

static uint64_t count(void *user, const stow_heap_event *event) {
  (void)event;
  atomic_fetch_add(&((shared *)user)->events, 1);
  return 0;
}

static void *disturb(void *user) {
  shared *all = user;
  while (atomic_load(&all->running) > 0) {
    CHECK_OK(stow_heap_add_sink(all->heap, count, all, STOW_EVENT_ALL));
    CHECK_OK(stow_heap_trim(all->heap, 8 * MIB, NULL));
    stow_heap_stats s;
    CHECK_OK(stow_heap_get_stats(all->heap, &s));
    CHECK_OK(stow_sim_advance(all->device, 100));
    CHECK_OK(stow_heap_remove_sink(all->heap, count, all));
    CHECK_OK(stow_heap_check(all->heap));
  }
  return NULL;
}

TEST(threads_share_a_heap_and_hand_memory_on)
{
  shared all = {.running = THREADS};
  stow_sim_options so = STOW_SIM_OPTIONS_INIT;
  so.vram_bytes = 256 * MIB;
  so.host_bytes = 64 * MIB;
  so.paper = true;
  CHECK_OK(stow_sim_open(&all.device, &so));
  stow_heap_options o = STOW_HEAP_OPTIONS_INIT;
  o.device = all.device;
  o.host_limit_bytes = 64 * MIB;
  o.reserve_bytes = 8 * MIB;
  CHECK_OK(stow_heap_open(&all.heap, &o));
  worker workers[THREADS];
  pthread_t threads[THREADS + 1];
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (worker){.all = &all, .number = i};
    CHECK_OK(all.device->ops->stream_create(all.device, &workers[i].stream));
    CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
  }
  CHECK(pthread_create(&threads[THREADS], NULL, disturb, &all) == 0);
  for (int i = 0; i <= THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  for (int i = 0; i < THREADS; i++)
    for (int k = 0; k < SLOTS; k++)
      if (all.passed[i][k]) CHECK_OK(stow_heap_free(all.heap, all.passed[i][k], NULL));
  CHECK_OK(stow_heap_check(all.heap));
  stow_heap_stats s;
  CHECK_OK(stow_heap_get_stats(all.heap, &s));
  CHECK_U64(s.live_count, 0);
  stow_sim_counts c;
  CHECK_OK(stow_sim_get_counts(all.device, &c));
  CHECK_U64(c.violations, 0);
  CHECK_OK(stow_heap_close(all.heap));
  for (int i = 0; i < THREADS; i++)
    CHECK_OK(all.device->ops->stream_destroy(all.device, workers[i].stream));
  CHECK_OK(stow_device_close(all.device));
  harness_note("%" PRIu64 " allocations, %" PRIu64 " events", s.alloc_total,
               atomic_load(&all.events));
}

TEST_MAIN
