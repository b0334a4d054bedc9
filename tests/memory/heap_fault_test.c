/* Fails every device call once, with each error. The heap must report it and stay usable, or be
 * lost and report that; contents stay intact, and nothing is left on the device. */
#include <stdlib.h>

#include "memory/sim_device.h"
#include "sweep.h"

#define BYTES (4 * MIB + 512)

typedef struct job {
  stow_device *device;
  stow_heap *heap;
  stow_stream other;
  sweep_result result; /* set by the first failure */
  uint64_t ptr[8];
  const char *folder;
} job;

/* Keeps the first failure; returns true on success. */
static bool did(job *j, stow_status status) {
  if (status != STOW_OK && j->result.status == STOW_OK) j->result = sweep_result_of(status);
  return status == STOW_OK;
}

static void take(job *j, int i, uint64_t bytes, stow_stream s) {
  if (!did(j, stow_heap_alloc(&j->ptr[i], j->heap, bytes, s))) j->ptr[i] = 0;
}

static void drop(job *j, int i, stow_stream s) {
  if (j->ptr[i] && did(j, stow_heap_free(j->heap, j->ptr[i], s))) j->ptr[i] = 0;
}

static bool dead(const job *j) {
  return stow_heap_check(j->heap) == STOW_ERR_DEVICE_LOST;
}

/* Checks that the heap is valid after every step, even a failed one. */
static void sound(const job *j) {
  stow_status status = stow_heap_check(j->heap);
  if (status != STOW_OK && status != STOW_ERR_DEVICE_LOST)
    FAIL("after a fault: %s", stow_status_message());
}

/* Waits twice, because the wait may be the call that fails and the test's copies must not outlive
 * their buffers. */
static stow_status sync_twice(stow_device *d) {
  stow_status status = d->ops->stream_sync(d, NULL);
  if (status != STOW_OK) CHECK_OK(d->ops->stream_sync(d, NULL));
  return status;
}

static uint8_t pattern[BYTES], seen[BYTES];

static bool write_bytes(job *j, uint64_t ptr) {
  for (uint64_t i = 0; pattern[1] == 0 && i < BYTES; i++) pattern[i] = (uint8_t)(i * 7 + i / 4093);
  return did(j, j->device->ops->copy(j->device, ptr, (stow_addr)(uintptr_t)pattern, BYTES, NULL)) &&
         did(j, sync_twice(j->device));
}

static void bytes_still_there(job *j, uint64_t ptr) {
  seen[0] = (uint8_t)~pattern[0];
  stow_status status =
      j->device->ops->copy(j->device, (stow_addr)(uintptr_t)seen, ptr, BYTES, NULL);
  if (status == STOW_OK) status = sync_twice(j->device);
  if (status == STOW_OK && memcmp(seen, pattern, BYTES) != 0) FAIL("the contents changed");
  did(j, status);
}

static void moves(job *j) {
  take(j, 0, BYTES, NULL);
  if (!j->ptr[0] || !write_bytes(j, j->ptr[0])) return;
  stow_tier path[] = {STOW_TIER_HOST, STOW_TIER_DISK, STOW_TIER_VRAM};
  bool on_disk = false;
  for (int i = 0; i < 3; i++) {
    bool went = did(j, stow_heap_migrate(j->heap, j->ptr[0], path[i]));
    if (dead(j)) return;
    on_disk = went ? path[i] == STOW_TIER_DISK : on_disk;
    sound(j);
    if (!on_disk) bytes_still_there(j, j->ptr[0]);
  }
  if (on_disk) /* the way back failed: it is still on disk and can be retried */
    CHECK_OK(stow_heap_migrate(j->heap, j->ptr[0], STOW_TIER_VRAM));
  bytes_still_there(j, j->ptr[0]);
}

static void churn(job *j) {
  for (int i = 1; i < 5; i++) take(j, i, 4 * MIB, NULL);
  sound(j);
  drop(j, 1, NULL);
  drop(j, 3, NULL);
  take(j, 5, 8 * MIB + 1024, NULL); /* assembled from two holes and new pages */
  sound(j);
  take(j, 6, 3000, j->other);
  if (j->ptr[6]) did(j, stow_heap_record_stream(j->heap, j->ptr[6], NULL));
  drop(j, 6, j->other);
  drop(j, 5, NULL);
  take(j, 7, 15 * MIB, j->other); /* pages move to another stream, or spill */
  sound(j);
  did(j, stow_heap_trim(j->heap, 0, NULL));
  sound(j);
}

static void clean(job *j) {
  if (dead(j)) {
    uint64_t p;
    CHECK_STATUS(stow_heap_alloc(&p, j->heap, 512, NULL), STOW_ERR_DEVICE_LOST);
  } else {
    for (int i = 0; i < 8; i++) { /* a failed free left it live, so it can be freed again */
      stow_stream s = i == 7 ? j->other : NULL;
      if (!j->ptr[i] || did(j, stow_heap_free(j->heap, j->ptr[i], s)) || dead(j)) continue;
      CHECK_OK(stow_heap_free(j->heap, j->ptr[i], s));
    }
    if (dead(j)) return;
    sound(j);
    CHECK_U64(stats_of(j->heap).live_count, 0);
  }
}

static const char *folder;

static sweep_result scenario(stow_device *d, void (*part)(job *)) {
  job j = {.device = d, .folder = folder};
  stow_heap_options o = STOW_HEAP_OPTIONS_INIT;
  o.device = d;
  o.host_limit_bytes = 32 * MIB;
  o.background = false;
  o.disk_folder = folder;
  if (!did(&j, stow_heap_open(&j.heap, &o))) return j.result;
  if (did(&j, d->ops->stream_create(d, &j.other))) {
    part(&j);
    clean(&j);
  }
  bool was_dead = dead(&j);
  stow_status closed = stow_heap_close(j.heap);
  if (closed != STOW_OK && !(was_dead && closed == STOW_ERR_STATE)) did(&j, closed);
  if (j.other && !did(&j, d->ops->stream_destroy(d, j.other)))
    CHECK_OK(d->ops->stream_destroy(d, j.other));
  return j.result;
}

static sweep_result scenario_moves(stow_device *d) {
  return scenario(d, moves);
}
static sweep_result scenario_churn(stow_device *d) {
  return scenario(d, churn);
}

TEST(each_call_of_a_migration_fails_once_and_nothing_is_lost)
{
  harness_deadline(120);
  folder = harness_folder();
  harness_note("%" PRIu64 " faults", sweep_run(&(sweep){.device = "sim:16M,host=16M",
                                                        .scenario = scenario_moves,
                                                        .may_do_without = true}));
}

TEST(each_call_fails_once_and_the_heap_continues)
{
  harness_deadline(120);
  harness_note("%" PRIu64 " faults", sweep_run(&(sweep){.device = "sim:24M,host=32M,paper",
                                                        .scenario = scenario_churn,
                                                        .may_do_without = true}));
}

static bool any_end(stow_status armed, const sweep_result *got) {
  return got->status == armed || got->status == STOW_OK || got->status == STOW_ERR_OUT_OF_MEMORY ||
         got->status == STOW_ERR_DEVICE_LOST;
}

static sweep_result scenario_hard(stow_device *d) {
  stow_heap *h;
  stow_heap_options o = STOW_HEAP_OPTIONS_INIT;
  o.device = d;
  o.host_limit_bytes = 64 * MIB;
  o.background = false;
  stow_status status = stow_heap_open(&h, &o);
  if (status != STOW_OK) return sweep_result_of(status);
  uint64_t p[4] = {0};
  sweep_result first = {0};
  for (int i = 0; i < 4; i++) {
    stow_status s = stow_heap_alloc(&p[i], h, 9 * MIB, NULL);
    if (s == STOW_OK && i == 2) s = stow_heap_migrate(h, p[i], STOW_TIER_HOST);
    if (s == STOW_OK && i == 1) s = stow_heap_free(h, p[0], NULL);
    if (s != STOW_OK && first.status == STOW_OK) first = sweep_result_of(s);
  }
  stow_heap_close(h); /* with every call failing, it cannot release everything */
  return first;
}

TEST(calls_that_fail_for_ever_never_crash_the_heap)
{
  for (int kind = STOW_FAULT_ANY; kind <= STOW_FAULT_EVENT; kind++) {
    if (kind == STOW_FAULT_PLAIN || kind == STOW_FAULT_UNRESERVE)
      continue; /* not used, or used only for closing */
    sweep_run(&(sweep){.device = "sim:32M,host=64M,paper",
                       .scenario = scenario_hard,
                       .kind = (stow_fault_kind)kind,
                       .every = true,
                       .may_do_without = true,
                       .passes = any_end});
  }
}

TEST_MAIN
