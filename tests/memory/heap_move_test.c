/* Memory that moves while a program runs: the background mover with a gate, during work on other
 * streams, and the space of the disk tier's file. Run under ThreadSanitizer too. */
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "memory/sim_device.h"

/* ---- a program with a gate ---- */

typedef struct program {
  stow_device *device;
  stow_heap *heap;
  pthread_rwlock_t gate; /* submitting holds it shared, moving exclusively */
  atomic_bool closed, stop;
  _Atomic uint64_t closes, submitted;
  stow_stream stream; /* the other stream */
  uint64_t own;       /* memory of that stream */
} program;

static void gate_close(void *user) {
  program *p = user;
  pthread_rwlock_wrlock(&p->gate);
  atomic_store(&p->closed, true);
  atomic_fetch_add(&p->closes, 1);
}

static void gate_open(void *user) {
  program *p = user;
  atomic_store(&p->closed, false);
  pthread_rwlock_unlock(&p->gate);
}

/* Keeps the other stream busy and allocates on it until stopped. */
static void *keep_running(void *user) {
  program *p = user;
  uint64_t seed = 7;
  while (!atomic_load(&p->stop)) {
    pthread_rwlock_rdlock(&p->gate);
    CHECK(!atomic_load(&p->closed));
    CHECK_OK(
        p->device->ops->fill(p->device, p->own, (uint8_t)harness_random(&seed), 4096, p->stream));
    pthread_rwlock_unlock(&p->gate);
    CHECK_OK(stow_heap_free(p->heap, need(p->heap, 512 + harness_random(&seed) % 65536, p->stream),
                            p->stream));
    atomic_fetch_add(&p->submitted, 1);
    sched_yield();
  }
  return NULL;
}

typedef struct where {
  uint64_t ptr;
  stow_tier tier;
} where;

static bool look_for(void *user, const stow_heap_entry *e) {
  where *w = user;
  if (e->ptr != w->ptr) return true;
  w->tier = e->tier;
  return false;
}

static stow_tier tier_of(stow_heap *h, uint64_t ptr) {
  where w = {ptr, STOW_TIER_COUNT};
  CHECK_OK(stow_heap_each(h, look_for, &w));
  return w.tier;
}

static void program_open(program *p, uint64_t vram, uint64_t host) {
  memset(p, 0, sizeof *p);
  p->device = sim_device(vram, host);
  CHECK(pthread_rwlock_init(&p->gate, NULL) == 0);
  CHECK_OK(p->device->ops->stream_create(p->device, &p->stream));
  stow_heap_options o = STOW_HEAP_OPTIONS_INIT;
  o.device = p->device;
  o.host_limit_bytes = host;
  o.gate = (stow_heap_gate){gate_close, gate_open, p};
  CHECK_OK(stow_heap_open(&p->heap, &o));
}

static void program_close(program *p) {
  stow_sim_counts c = STOW_SIM_COUNTS_INIT;
  CHECK_OK(stow_sim_get_counts(p->device, &c));
  CHECK_U64(c.violations, 0);
  CHECK_OK(stow_heap_check(p->heap));
  CHECK_OK(stow_heap_close(p->heap));
  CHECK_OK(p->device->ops->stream_destroy(p->device, p->stream));
  pthread_rwlock_destroy(&p->gate);
  CHECK_OK(stow_device_close(p->device));
}

TEST(the_mover_brings_spilled_memory_back_behind_the_gate_while_another_stream_runs)
{
  harness_deadline(120);
  program p;
  program_open(&p, 64 * MIB, 128 * MIB);
  p.own = need(p.heap, 2 * MIB, p.stream);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, keep_running, &p) == 0);
  uint8_t *mine = malloc(20 * MIB), *back = malloc(20 * MIB);
  uint64_t seed = 3, rounds = 0, moved_before = 0;
  for (; rounds < 3; rounds++) {
    uint64_t full = need(p.heap, 56 * MIB, NULL), spilled = need(p.heap, 20 * MIB, NULL);
    CHECK(tier_of(p.heap, spilled) == STOW_TIER_HOST);
    for (uint64_t i = 0; i < 20 * MIB; i += 8) {
      uint64_t r = harness_random(&seed);
      memcpy(mine + i, &r, 8);
    }
    pthread_rwlock_rdlock(&p.gate);
    CHECK_OK(p.device->ops->copy(p.device, spilled, (stow_addr)(uintptr_t)mine, 20 * MIB, NULL));
    pthread_rwlock_unlock(&p.gate);
    CHECK_OK(p.device->ops->stream_sync(p.device, NULL));
    CHECK_OK(stow_heap_free(p.heap, full, NULL));
    CHECK_OK(stow_heap_set_heat(p.heap, spilled, STOW_HEAT_HOT)); /* wakes the mover */
    while (tier_of(p.heap, spilled) != STOW_TIER_VRAM) sched_yield();
    memset(back, 0, 20 * MIB);
    pthread_rwlock_rdlock(&p.gate);
    CHECK_OK(p.device->ops->copy(p.device, (stow_addr)(uintptr_t)back, spilled, 20 * MIB, NULL));
    pthread_rwlock_unlock(&p.gate);
    CHECK_OK(p.device->ops->stream_sync(p.device, NULL));
    CHECK(memcmp(mine, back, 20 * MIB) == 0);
    stow_heap_stats s = STOW_HEAP_STATS_INIT;
    CHECK_OK(stow_heap_get_stats(p.heap, &s));
    CHECK(s.migrated_bytes >= moved_before + 20 * MIB);
    moved_before = s.migrated_bytes;
    CHECK_OK(stow_heap_free(p.heap, spilled, NULL));
  }
  uint64_t seen = atomic_load(&p.submitted);
  while (atomic_load(&p.submitted) == seen) sched_yield(); /* until it has submitted more work */
  atomic_store(&p.stop, true);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(atomic_load(&p.closes) >= rounds);
  CHECK(!atomic_load(&p.closed));
  CHECK_OK(p.device->ops->stream_sync(p.device, p.stream));
  CHECK_OK(stow_heap_free(p.heap, p.own, p.stream));
  harness_note("%" PRIu64 " closes of the gate, %" PRIu64 " pieces of work on the other stream",
               atomic_load(&p.closes), atomic_load(&p.submitted));
  program_close(&p);
  free(mine);
  free(back);
}

TEST(a_move_behind_the_gate_waits_for_its_own_streams_only)
{
  harness_deadline(60);
  program p;
  program_open(&p, 64 * MIB, 64 * MIB);
  p.own = need(p.heap, 8 * MIB, p.stream);
  uint64_t a = need(p.heap, 3 * MIB, NULL), b = need(p.heap, 3 * MIB, NULL);
  const uint64_t hour_us = UINT64_C(3600) * 1000000;
  CHECK_OK(stow_sim_submit(p.device, p.stream, p.own, 8 * MIB, STOW_SIM_WRITE, hour_us));
  CHECK_OK(stow_sim_submit(p.device, NULL, b, 3 * MIB, STOW_SIM_WRITE, 1000));
  CHECK_OK(stow_heap_migrate(p.heap, a, STOW_TIER_HOST)); /* shares a page with b, so b's work must
                                                           * be waited for */
  stow_sim_counts c = STOW_SIM_COUNTS_INIT;
  CHECK_OK(stow_sim_get_counts(p.device, &c));
  CHECK(c.wait_ns >= 1000 * 1000);  /* waited for b */
  CHECK(c.now_ns < hour_us * 1000); /* did not wait for the other stream */
  CHECK(tier_of(p.heap, a) == STOW_TIER_HOST);
  CHECK_OK(stow_heap_check(p.heap));
  CHECK_OK(stow_heap_free(p.heap, a, NULL));
  CHECK_OK(stow_heap_free(p.heap, b, NULL));
  CHECK_OK(stow_heap_free(p.heap, p.own, p.stream));
  program_close(&p);
}

TEST(without_a_gate_nothing_moves_by_itself)
{
  harness_deadline(60);
  stow_device *d = sim_device(64 * MIB, 256 * MIB);
  stow_heap *h;
  stow_heap_options o = STOW_HEAP_OPTIONS_INIT;
  o.device = d;
  o.host_limit_bytes = 256 * MIB;
  o.host_reserve_bytes = 64 * MIB;
  CHECK_OK(stow_heap_open(&h, &o));
  uint64_t full = need(h, 60 * MIB, NULL), spilled = need(h, 20 * MIB, NULL);
  CHECK_OK(stow_heap_free(h, full, NULL));
  CHECK_OK(stow_heap_set_heat(h, spilled, STOW_HEAT_HOT));
  stow_heap_stats s = STOW_HEAP_STATS_INIT;
  for (int looks = 0; looks < 3; looks++) { /* the reserve is refilled three times, so the thread
                                             * has run */
    CHECK_OK(stow_heap_trim(h, 0, NULL));
    do CHECK_OK(stow_heap_get_stats(h, &s));
    while (s.tier[STOW_TIER_HOST].cached_bytes < 64 * MIB);
  }
  CHECK(tier_of(h, spilled) == STOW_TIER_HOST);
  CHECK_U64(s.migrated_bytes, 0);
  CHECK_OK(stow_heap_free(h, spilled, NULL));
  CHECK_OK(stow_heap_close(h));
  CHECK_OK(stow_device_close(d));
}

/* ---- the disk tier's file ---- */

static uint64_t count_moves(void *user, const stow_heap_event *e) {
  uint64_t *moves = user;
  if (e->kind == STOW_EVENT_MIGRATE) moves[e->tier]++;
  return 0;
}

static int files_in(const char *folder) {
  DIR *d = opendir(folder);
  CHECK(d != NULL);
  int count = 0;
  for (const struct dirent *e; (e = readdir(d));) count += e->d_name[0] != '.';
  closedir(d);
  return count;
}

TEST(the_disk_tier_uses_its_file_again)
{
  stow_device *d = sim_device(256 * MIB, 0);
  stow_heap *h;
  stow_heap_options o = STOW_HEAP_OPTIONS_INIT;
  o.device = d;
  o.background = false;
  o.disk_folder = harness_folder();
  CHECK_OK(stow_heap_open(&h, &o));
  uint64_t moves[STOW_TIER_COUNT] = {0};
  CHECK_OK(stow_heap_add_sink(h, count_moves, moves, STOW_EVENT_ALL));
  stow_heap_stats s = STOW_HEAP_STATS_INIT;
  uint64_t p[4], seed = 9;
  for (int i = 0; i < 4; i++) p[i] = need(h, 16 * MIB, NULL);
  const int rounds = (int)harness_rounds(40, 8);
  for (int round = 0; round < rounds; round++) {
    int i = (int)(harness_random(&seed) % 4);
    CHECK_OK(d->ops->fill(d, p[i], (uint8_t)(round + 1), 16 * MIB, NULL));
    CHECK_OK(stow_heap_migrate(h, p[i], STOW_TIER_DISK));
    CHECK_U64(files_in(o.disk_folder), 0); /* the file has no name, so a crash leaves nothing
                                            * behind */
    CHECK_OK(stow_heap_get_stats(h, &s));
    CHECK_U64(s.tier[STOW_TIER_DISK].live_bytes, 16 * MIB);
    if (round % 2) { /* freed while on disk, or brought back */
      CHECK_OK(stow_heap_free(h, p[i], NULL));
      p[i] = need(h, (8 + harness_random(&seed) % 8) * MIB + 8 * MIB, NULL);
      CHECK_OK(stow_heap_free(h, p[i], NULL));
      p[i] = need(h, 16 * MIB, NULL);
    } else {
      CHECK_OK(stow_heap_migrate(h, p[i], STOW_TIER_VRAM));
      uint8_t byte = 0;
      CHECK_OK(d->ops->copy(d, (stow_addr)(uintptr_t)&byte, p[i] + 5 * MIB, 1, NULL));
      CHECK_OK(d->ops->stream_sync(d, NULL));
      CHECK_U64(byte, round + 1);
    }
    CHECK_OK(stow_heap_check(h));
    CHECK_OK(stow_heap_get_stats(h, &s));
    CHECK_U64(s.tier[STOW_TIER_DISK].live_bytes, 0);
    CHECK_U64(s.tier[STOW_TIER_DISK].held_bytes, 0); /* the file is empty again */
  }
  /* Two are on disk and the first is brought back: the third must take its place. */
  for (int i = 0; i < 2; i++) CHECK_OK(stow_heap_migrate(h, p[i], STOW_TIER_DISK));
  CHECK_OK(stow_heap_migrate(h, p[0], STOW_TIER_VRAM));
  CHECK_OK(stow_heap_migrate(h, p[2], STOW_TIER_DISK));
  CHECK_OK(stow_heap_get_stats(h, &s));
  CHECK_U64(s.tier[STOW_TIER_DISK].held_bytes, 32 * MIB);
  CHECK_OK(stow_heap_free(h, p[1], NULL));
  CHECK_OK(stow_heap_free(h, p[2], NULL));
  CHECK_OK(stow_heap_get_stats(h, &s));
  CHECK_U64(s.tier[STOW_TIER_DISK].held_bytes, 0);
  CHECK_OK(stow_heap_free(h, p[0], NULL));
  CHECK_OK(stow_heap_free(h, p[3], NULL));
  CHECK_U64(moves[STOW_TIER_DISK], (unsigned)rounds + 3); /* and every other one back */
  CHECK_U64(moves[STOW_TIER_VRAM], (unsigned)rounds / 2 + 1);
  CHECK_OK(stow_heap_close(h));
  CHECK_OK(stow_device_close(d));
}

TEST_MAIN
