/* Record of a heap: a sink that records a heap's events in a trace.
 *
 * Called on the allocating thread, with no lock of the heap held. Takes a lock only for a tag it
 * sees for the first time. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <stowage/events.h>
#include <stowage/tag.h>
#include <stowage/trace.h>

#include "base/lock.h"
#include "base/status.h"

/* Connects one heap to one trace. */
typedef struct feed {
  stow_trace *trace;
  stow_heap *heap;
  uint16_t device;
  struct feed *next;                             /* guarded by `feeds_lock` */
  _Atomic uint32_t tags[STOW_TAG_COUNT_MAX + 1]; /* the heap's tag number → the trace's; 0: not
                                                  * known yet */
} feed;

static lock feeds_lock = LOCK_INIT(LOCK_REGISTRY);
static feed *feeds;

/* All kinds except pressure, which is a question and not an action. */
#define FEED_KINDS (STOW_EVENT_ALL & ~STOW_EVENT_BIT(STOW_EVENT_PRESSURE))

static uint32_t feed_tag(feed *f, uint32_t tag) {
  if (tag == 0 || tag > STOW_TAG_COUNT_MAX) return 0;
  uint32_t known = atomic_load_explicit(&f->tags[tag], memory_order_relaxed);
  if (known != 0) return known;
  if (stow_trace_tag(f->trace, stow_tag_name(tag), &known) != STOW_OK) return 0;
  atomic_store_explicit(&f->tags[tag], known, memory_order_relaxed);
  return known;
}

static uint64_t feed_event(void *user, const stow_heap_event *event) {
  /* A free is recorded as completed: its stream can reuse the memory at once. */
  static const uint8_t kinds[STOW_EVENT_COUNT] = {
      [STOW_EVENT_ALLOC] = STOW_TRACE_ALLOC,     [STOW_EVENT_FREE] = STOW_TRACE_FREE,
      [STOW_EVENT_MAP] = STOW_TRACE_SEGMENT_MAP, [STOW_EVENT_UNMAP] = STOW_TRACE_SEGMENT_UNMAP,
      [STOW_EVENT_MIGRATE] = STOW_TRACE_MIGRATE, [STOW_EVENT_FAIL] = STOW_TRACE_FAIL,
  };
  feed *f = user;
  if ((unsigned)event->kind >= STOW_EVENT_COUNT || event->kind == STOW_EVENT_PRESSURE) return 0;
  stow_trace_record record = {.addr = event->ptr,
                              .bytes = event->bytes,
                              .stream = (uint64_t)(uintptr_t)event->stream,
                              .tag = feed_tag(f, event->tag),
                              .device = f->device,
                              .kind = kinds[event->kind],
                              .tier = (uint8_t)event->tier};
  if (event->kind == STOW_EVENT_FAIL) {
    stow_heap_failure failure = STOW_HEAP_FAILURE_INIT;
    bool known = stow_heap_last_failure(event->heap, &failure) == STOW_OK;
    record.addr = known ? failure.device_free_bytes : 0;
  }
  stow_trace_event(f->trace, &record);
  return 0;
}

static feed *feed_take(stow_trace *trace, stow_heap *heap) {
  feed *found = NULL;
  lock_acquire(&feeds_lock);
  for (feed **at = &feeds; *at != NULL && found == NULL; at = &(*at)->next) {
    if ((*at)->trace != trace || (*at)->heap != heap) continue;
    found = *at;
    *at = found->next;
    break;
  }
  lock_release(&feeds_lock);
  return found;
}

/* Records the device, for readers on other machines. */
static stow_status feed_record_device(feed *f) {
  stow_device_props props = STOW_DEVICE_PROPS_INIT;
  char text[24];
  STOW_TRY(stow_device_get_props(stow_heap_device(f->heap), &props));
  f->device = (uint16_t)props.index;
  STOW_TRY(stow_trace_fact(f->trace, "device_name", props.name));
  snprintf(text, sizeof text, "%" PRIu64, props.vram_bytes);
  return stow_trace_fact(f->trace, "device_bytes", text);
}

stow_status stow_trace_add_heap(stow_trace *trace, stow_heap *heap) {
  if (trace == NULL || heap == NULL)
    return stow_fail(STOW_ERR_INVALID, "recording a heap needs a trace and a heap");
  feed *f = calloc(1, sizeof *f);
  if (f == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to record a heap");
  f->trace = trace;
  f->heap = heap;
  stow_status status = feed_record_device(f);
  if (status == STOW_OK) status = stow_heap_add_sink(heap, feed_event, f, FEED_KINDS);
  if (status != STOW_OK) {
    free(f);
    return status;
  }
  lock_acquire(&feeds_lock);
  f->next = feeds;
  feeds = f;
  lock_release(&feeds_lock);
  return STOW_OK;
}

stow_status stow_trace_remove_heap(stow_trace *trace, stow_heap *heap) {
  feed *f = feed_take(trace, heap);
  if (f == NULL)
    return stow_fail(STOW_ERR_NOT_FOUND, "this trace does not record this heap; add it first");
  /* Waits until no thread is inside the sink. A heap that was closed first has no sinks left. */
  stow_status status = stow_heap_remove_sink(heap, feed_event, f);
  free(f);
  return status == STOW_ERR_STATE ? STOW_OK : status;
}
