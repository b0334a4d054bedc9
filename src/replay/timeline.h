/* Timeline: one device's part of a recording as lifetimes, from which every view of a report is
 * computed.
 *
 * A tick is the position of an event among the events of that device (marks belong to every
 * device). The state "at tick t" is the state after event t, so an allocation is live at t if start
 * <= t < end. A block that was live before the recording began is a lifetime with `before` set;
 * those come first in the table.
 *
 * Hostile recordings are expected: a free of an unknown block, an address allocated twice,
 * impossible sizes. Each is counted, and the sum of live bytes never exceeds TIMELINE_BYTES_MAX, so
 * every later sum is exact (in C, and in the doubles of the viewer). */
#ifndef REPLAY_TIMELINE_H
#define REPLAY_TIMELINE_H

#include "recordings/recording.h"
#include "replay/extent.h"

#define TIMELINE_OPEN      UINT32_MAX       /* the recording does not show the end */
#define TIMELINE_NONE      UINT32_MAX       /* no lifetime belongs to this tick */
#define TIMELINE_BYTES_MAX EXTENT_BYTES_MAX /* live at any tick; the same bound as for extents */

/* One allocation, from the event that made it to the event that ended it. */
typedef struct lifetime {
  uint64_t addr, bytes, stream;
  uint32_t start, end;
  uint32_t stack_id, tag_id;
  bool before; /* began before the recording; start is 0 */
} lifetime;

typedef struct timeline {
  const recording *source;
  uint16_t device;
  uint32_t tick_count;
  uint32_t *events;   /* tick → index into source->events */
  uint32_t *lifetime; /* tick → the lifetime it begins or ends, or TIMELINE_NONE */
  map superseded;     /* tick of an alloc → the lifetime it ended: its address was still live */
  lifetime *lifetimes;
  uint32_t lifetime_count, before_count;
  extent *extents;
  uint32_t extent_count;
  bool reserved_known; /* false: the recording has no segments, so there are no extents */
  /* Counts for the report. */
  uint64_t unknown_frees;  /* frees of unknown blocks whose size is unknown too */
  uint64_t doubled_allocs; /* an address allocated while it was live: the first lifetime ended
                            * there */
  uint64_t bad_sizes;      /* allocations skipped because their size is impossible */
  uint64_t bad_extents;    /* segment events skipped */
} timeline;

/* Builds a timeline. `*t` is always initialized; free it with timeline_free. The recording must
 * outlive it. */
stow_status timeline_build(timeline *t, const recording *r, uint16_t device);
void timeline_free(timeline *t);

/* Lists the devices in a recording, ascending, at most `max`; returns their number. A recording
 * without devices counts as device 0. */
size_t timeline_devices(const recording *r, uint16_t *devices, size_t max);

static inline const event *timeline_event(const timeline *t, uint32_t tick) {
  /* NOLINTNEXTLINE(clang-analyzer-*): filled up to tick_count */
  return &t->source->events[t->events[tick]];
}

/* Returns the event's origin. */
static inline const origin *timeline_origin(const timeline *t, const event *e) {
  return event_origin(t->source, e);
}

static inline bool lifetime_live(const lifetime *l, uint32_t tick) {
  return l->start <= tick && tick < l->end;
}

/* Returns the change of live bytes at a tick. */
int64_t timeline_change(const timeline *t, uint32_t tick);

/* Returns nanoseconds since the device's first event; never decreases. */
uint64_t timeline_time_ns(const timeline *t, uint32_t tick);

#endif
