/* Events: a heap reports what it does to registered sinks.
 *
 * A sink runs on the thread that caused the event, with no lock held, and may call the heap.
 * Without a sink an event costs one load. Threads and fork: as the heap (stowage/heap.h). */
#ifndef STOWAGE_EVENTS_H
#define STOWAGE_EVENTS_H

#include <stdint.h>

#include <stowage/heap.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum stow_heap_event_kind {
  STOW_EVENT_ALLOC = 0, /* ptr, bytes, stream, tag, tier */
  STOW_EVENT_FREE,      /* the same; the free was requested, not completed */
  STOW_EVENT_MAP,       /* ptr, bytes: pages were mapped at these addresses */
  STOW_EVENT_UNMAP,     /* ptr, bytes: pages were unmapped */
  STOW_EVENT_MIGRATE,   /* ptr, bytes, tier: pages moved to `tier` */
  STOW_EVENT_PRESSURE,  /* bytes: a request is about to fail; return the bytes you freed */
  STOW_EVENT_FAIL,      /* bytes: the request failed; stow_heap_last_failure has the numbers */
  STOW_EVENT_COUNT
} stow_heap_event_kind;

/* An event. The library fills it; a sink built with an older header sees the members it knows. */
typedef struct stow_heap_event {
  uint32_t struct_bytes; /* the size in the library that filled it */
  stow_heap_event_kind kind;
  stow_heap *heap;
  uint64_t ptr, bytes;
  stow_stream stream;
  stow_tier tier;
  uint32_t tag;
} stow_heap_event;

/* Called for each event. The result is used only for STOW_EVENT_PRESSURE: the bytes freed. */
typedef uint64_t (*stow_heap_sink)(void *user, const stow_heap_event *event);

#define STOW_EVENT_BIT(kind) (1u << (kind))
#define STOW_EVENT_ALL       ((1u << STOW_EVENT_COUNT) - 1)
#define STOW_SINKS_MAX       8

/* Sends the kinds in `mask` to `sink`. STOW_ERR_OVERFLOW: 8 sinks are already registered. */
STOW_API stow_status stow_heap_add_sink(stow_heap *heap, stow_heap_sink sink, void *user,
                                        uint32_t mask);
/* Removes a sink and waits until no thread is inside it, so do not call it from the sink.
 * STOW_ERR_NOT_FOUND: the sink is not registered.
 */
STOW_API stow_status stow_heap_remove_sink(stow_heap *heap, stow_heap_sink sink, void *user);

#ifdef __cplusplus
}
#endif
#endif
