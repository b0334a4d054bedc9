/* A heap's events in a trace: the trace shows what the heap did. */
#include <stowage/heap.h>
#include <stowage/tag.h>
#include <stowage/trace.h>

#include <pthread.h>

#include "harness.h"
#include "recordings/recording.h"
#include "recordings/ring_read.h"

static const char *ring_path(void) {
  static char path[512];
  snprintf(path, sizeof path, "%s/ring", harness_folder());
  return path;
}

static void open_both(stow_trace **trace, stow_heap **heap, uint64_t vram_limit) {
  stow_trace_options options = STOW_TRACE_OPTIONS_INIT;
  options.ring_path = ring_path();
  CHECK_OK(stow_trace_open(trace, &options));
  stow_heap_options heap_options = STOW_HEAP_OPTIONS_INIT;
  heap_options.device_name = "sim:1G";
  heap_options.vram_limit_bytes = vram_limit;
  CHECK_OK(stow_heap_open(heap, &heap_options));
  CHECK_OK(stow_trace_add_heap(*trace, *heap));
}

static void close_both(stow_trace *trace, stow_heap *heap, recording *r) {
  CHECK_OK(stow_trace_remove_heap(trace, heap));
  CHECK_OK(stow_heap_close(heap));
  CHECK_OK(stow_trace_close(trace));
  recording_init(r, 256 << 20);
  CHECK_OK(ring_read(r, ring_path()));
}

TEST(allocations_frees_and_failures_of_a_heap_are_recorded)
{
  stow_trace *trace;
  stow_heap *heap;
  open_both(&trace, &heap, 64 << 20);
  uint64_t small, large, none;
  CHECK_OK(stow_tag_push("weights"));
  CHECK_OK(stow_heap_alloc(&large, heap, 8 << 20, NULL));
  CHECK_OK(stow_tag_pop());
  CHECK_OK(stow_heap_alloc(&small, heap, 512, NULL));
  CHECK_STATUS(stow_heap_alloc(&none, heap, 1 << 30, NULL), STOW_ERR_OUT_OF_MEMORY);
  CHECK_OK(stow_heap_free(heap, large, NULL));
  CHECK_OK(stow_heap_free(heap, small, NULL));
  recording r;
  close_both(trace, heap, &r);
  uint64_t seen[EVENT_KIND_COUNT] = {0};
  for (size_t i = 0; i < r.event_count; i++) {
    const event *e = &r.events[i];
    seen[e->kind]++;
    if (e->kind == EVENT_ALLOC && e->addr == large) {
      CHECK_U64(e->bytes, 8 << 20);
      CHECK_TEXT(recording_text(&r, event_origin(&r, e)->tag_id), "weights");
    }
    if (e->kind == EVENT_ALLOC && e->addr == small) CHECK_U64(event_origin(&r, e)->tag_id, 0);
    if (e->kind == EVENT_FAIL) CHECK_U64(e->bytes, 1 << 30);
  }
  CHECK_U64(seen[EVENT_ALLOC], 2);
  CHECK_U64(seen[EVENT_FREE], 2);
  CHECK_U64(seen[EVENT_FAIL], 1);
  CHECK(seen[EVENT_SEGMENT_MAP] >= 1);
  CHECK(r.device_name_id != 0);
  CHECK_U64(r.device_bytes, 1 << 30);
  recording_free(&r);
}

static stow_heap *churned;
static void *churn(void *argument) {
  uint64_t who = (uint64_t)(uintptr_t)argument, live[16] = {0};
  for (uint64_t i = 0; i < 4000; i++) {
    uint64_t *at = &live[hash_u64(i, who) % 16];
    if (*at != 0) stow_heap_free(churned, *at, NULL);
    if (stow_heap_alloc(at, churned, 512 + hash_u64(i, who + 9) % 65536, NULL) != STOW_OK) *at = 0;
  }
  for (int i = 0; i < 16; i++)
    if (live[i] != 0) stow_heap_free(churned, live[i], NULL);
  return NULL;
}

TEST(every_allocation_of_several_threads_is_recorded_once)
{
  stow_trace *trace;
  open_both(&trace, &churned, 0);
  pthread_t threads[3];
  for (uint64_t i = 0; i < 3; i++)
    CHECK(pthread_create(&threads[i], NULL, churn, (void *)(uintptr_t)i) == 0);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  stow_heap_stats stats = STOW_HEAP_STATS_INIT;
  CHECK_OK(stow_heap_get_stats(churned, &stats));
  recording r;
  close_both(trace, churned, &r);
  uint64_t allocs = 0, frees = 0;
  for (size_t i = 0; i < r.event_count; i++) {
    allocs += r.events[i].kind == EVENT_ALLOC;
    frees += r.events[i].kind == EVENT_FREE;
  }
  CHECK_U64(allocs, stats.alloc_total);
  CHECK_U64(frees, stats.free_total);
  CHECK_U64(allocs, frees);
  recording_free(&r);
}

TEST(a_heap_that_is_not_recorded_is_reported_as_such)
{
  stow_trace *trace;
  stow_heap *heap;
  open_both(&trace, &heap, 0);
  recording r;
  CHECK_OK(stow_trace_remove_heap(trace, heap));
  CHECK_STATUS(stow_trace_remove_heap(trace, heap), STOW_ERR_NOT_FOUND);
  CHECK_STATUS(stow_trace_add_heap(NULL, heap), STOW_ERR_INVALID);
  CHECK_OK(stow_trace_add_heap(trace, heap));
  close_both(trace, heap, &r);
  recording_free(&r);
}

TEST_MAIN
