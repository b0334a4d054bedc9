/* Threads that use their own and each other's streams, with the background thread, a trimmer and
 * changing sinks. Run under ThreadSanitizer by the suite. */
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

#define DISTURBED 20 /* rounds of the disturber that must overlap with the work */

typedef struct shared {
  stow_heap *heap;
  stow_device *device;
  _Atomic uint64_t passed[THREADS][SLOTS]; /* passed from one thread to the next, which frees it */
  _Atomic int running, disturbed;
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
  for (int i = 0; i < ROUNDS || atomic_load(&w->all->disturbed) < DISTURBED; i++) {
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
    stow_heap_stats s = STOW_HEAP_STATS_INIT;
    CHECK_OK(stow_heap_get_stats(all->heap, &s));
    CHECK_OK(stow_sim_advance(all->device, 100));
    CHECK_OK(stow_heap_remove_sink(all->heap, count, all));
    CHECK_OK(stow_heap_check(all->heap));
    atomic_fetch_add(&all->disturbed, 1);
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
  stow_heap_stats s = STOW_HEAP_STATS_INIT;
  CHECK_OK(stow_heap_get_stats(all.heap, &s));
  CHECK_U64(s.live_count, 0);
  stow_sim_counts c = STOW_SIM_COUNTS_INIT;
  CHECK_OK(stow_sim_get_counts(all.device, &c));
  CHECK_U64(c.violations, 0);
  CHECK_OK(stow_heap_close(all.heap));
  for (int i = 0; i < THREADS; i++)
    CHECK_OK(all.device->ops->stream_destroy(all.device, workers[i].stream));
  CHECK_OK(stow_device_close(all.device));
  harness_note("%" PRIu64 " allocations, %" PRIu64 " events", s.alloc_total,
               atomic_load(&all.events));
}

/* ---- what a sink sees ---- */

/* A sink that keeps the set of live addresses: an allocation of a live address, or a free of one
 * that is not live, was reported in the wrong order. */
typedef struct watcher {
  pthread_mutex_t lock;
  uint64_t live[THREADS * 8 + 1];
  int count;
  uint64_t allocs, frees, wrong;
} watcher;

static uint64_t watch(void *user, const stow_heap_event *e) {
  watcher *w = user;
  pthread_mutex_lock(&w->lock);
  int at = 0;
  while (at < w->count && w->live[at] != e->ptr) at++;
  bool known = at < w->count;
  if (e->kind == STOW_EVENT_ALLOC) {
    w->allocs++;
    if (known || w->count > THREADS * 8)
      w->wrong++;
    else
      w->live[w->count++] = e->ptr;
  } else {
    w->frees++;
    if (known)
      w->live[at] = w->live[--w->count];
    else
      w->wrong++;
  }
  pthread_mutex_unlock(&w->lock);
  return 0;
}

typedef struct pusher {
  stow_heap *heap;
  stow_stream stream;
  int number;
} pusher;

/* Uses only a few sizes, so that an address is reused as soon as possible. */
static void *push_and_pull(void *user) {
  pusher *u = user;
  uint64_t seed = (uint64_t)u->number + 1, mine[8] = {0};
  static const uint64_t sizes[] = {512, 4096, 40000, 300000, 3 * MIB};
  for (int i = 0; i < ROUNDS; i++) {
    uint64_t r = harness_random(&seed), *p = &mine[r % 8];
    if (*p) CHECK_OK(stow_heap_free(u->heap, *p, u->stream));
    *p = 0;
    if ((r >> 8) % 3) CHECK_OK(stow_heap_alloc(p, u->heap, sizes[(r >> 16) % 5], u->stream));
  }
  for (int i = 0; i < 8; i++)
    if (mine[i]) CHECK_OK(stow_heap_free(u->heap, mine[i], u->stream));
  return NULL;
}

TEST(a_sink_never_sees_an_address_given_out_that_it_takes_for_live)
{
  stow_sim_options so = STOW_SIM_OPTIONS_INIT;
  so.vram_bytes = 256 * MIB;
  so.paper = true;
  stow_heap_options o = STOW_HEAP_OPTIONS_INIT;
  CHECK_OK(stow_sim_open(&o.device, &so));
  o.background = false;
  stow_heap *h;
  CHECK_OK(stow_heap_open(&h, &o));
  watcher w = {.lock = PTHREAD_MUTEX_INITIALIZER};
  CHECK_OK(stow_heap_add_sink(h, watch, &w,
                              STOW_EVENT_BIT(STOW_EVENT_ALLOC) | STOW_EVENT_BIT(STOW_EVENT_FREE)));
  stow_stream other;
  CHECK_OK(o.device->ops->stream_create(o.device, &other));
  /* Three threads on one stream, which pass memory to each other directly, and one on another. */
  pusher pushers[THREADS];
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) {
    pushers[i] = (pusher){h, i == 3 ? other : NULL, i};
    CHECK(pthread_create(&threads[i], NULL, push_and_pull, &pushers[i]) == 0);
  }
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK_U64(w.wrong, 0);
  CHECK_U64(w.allocs, w.frees);
  CHECK(w.allocs > ROUNDS);
  harness_note("%" PRIu64 " allocations reported", w.allocs);
  CHECK_OK(stow_heap_check(h));
  CHECK_OK(stow_heap_close(h));
  CHECK_OK(o.device->ops->stream_destroy(o.device, other));
  CHECK_OK(stow_device_close(o.device));
}

/* The same without randomness: the sink itself allocates during an event. */
typedef struct requester {
  stow_heap *heap;
  stow_stream stream;
  uint64_t freed, got;
} requester;

static uint64_t ask_back(void *user, const stow_heap_event *e) {
  requester *a = user;
  if (a->freed != e->ptr) return 0;
  a->freed = 0;
  CHECK_OK(stow_heap_alloc(&a->got, a->heap, e->bytes, a->stream));
  CHECK(a->got != e->ptr);
  CHECK_STATUS(stow_heap_free(a->heap, e->ptr, a->stream), STOW_ERR_STATE); /* it is freed */
  return 0;
}

TEST(memory_is_nobodys_while_sinks_are_informed_that_it_is_freed)
{
  stow_heap_options o = STOW_HEAP_OPTIONS_INIT;
  stow_sim_options so = STOW_SIM_OPTIONS_INIT;
  so.vram_bytes = 64 * MIB;
  so.host_bytes = 64 * MIB;
  CHECK_OK(stow_sim_open(&o.device, &so));
  o.background = false;
  o.host_limit_bytes = 64 * MIB;
  o.disk_folder = harness_folder();
  requester a = {0};
  CHECK_OK(stow_heap_open(&a.heap, &o));
  CHECK_OK(stow_heap_add_sink(a.heap, ask_back, &a, STOW_EVENT_BIT(STOW_EVENT_FREE)));
  stow_stream other;
  CHECK_OK(o.device->ops->stream_create(o.device, &other));
  static const uint64_t sizes[] = {512, 40000, 3 * MIB, 8 * MIB};
  for (int way = 0; way < 5; way++) /* plain, recorded, from another stream, moved, on disk */
    for (int k = 0; k < 4; k++) {
      if (way > 2 && k < 3) continue;
      uint64_t p;
      CHECK_OK(stow_heap_alloc(&p, a.heap, sizes[k], NULL));
      if (way == 1) CHECK_OK(stow_heap_record_stream(a.heap, p, other));
      if (way > 2)
        CHECK_OK(stow_heap_migrate(a.heap, p, way == 3 ? STOW_TIER_HOST : STOW_TIER_DISK));
      a.freed = p;
      CHECK_OK(stow_heap_free(a.heap, p, way == 2 ? other : NULL));
      CHECK_U64(a.freed, 0);
      CHECK_OK(stow_heap_check(a.heap));
      CHECK_STATUS(stow_heap_free(a.heap, p, NULL), STOW_ERR_STATE);
      CHECK_OK(stow_heap_free(a.heap, a.got, NULL));
    }
  CHECK_OK(stow_heap_trim(a.heap, 0, NULL));
  stow_heap_stats s = STOW_HEAP_STATS_INIT;
  CHECK_OK(stow_heap_get_stats(a.heap, &s));
  CHECK_U64(s.live_count, 0);
  CHECK_OK(stow_heap_close(a.heap));
  CHECK_OK(o.device->ops->stream_destroy(o.device, other));
  CHECK_OK(stow_device_close(o.device));
}

TEST_MAIN
