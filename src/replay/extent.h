/* Extents: the memory the allocator held from the driver, over time. Built for a timeline.
 *
 * Hostile recordings are expected: impossible sizes are counted, and the bytes reserved at any tick
 * never exceed EXTENT_BYTES_MAX. */
#ifndef REPLAY_EXTENT_H
#define REPLAY_EXTENT_H

#include "recordings/recording.h"

#define EXTENT_OPEN      UINT32_MAX          /* the recording does not show the end */
#define EXTENT_BYTES_MAX (UINT64_C(1) << 52) /* reserved at any tick */
#define EXTENTS_MAX      (1u << 16)          /* reserved at the same time; more are counted */

/* A segment, or a mapped piece of an expandable one. */
typedef struct extent {
  uint64_t addr, bytes, stream;
  uint32_t start, end; /* ticks (timeline.h) */
  bool mapped;         /* mapped into a reserved range */
  bool before;         /* began before the recording; start is 0 */
} extent;

typedef struct extent_table {
  extent *list; /* free it with free() */
  uint32_t count;
  size_t capacity;
  uint64_t bad; /* segment events skipped */
} extent_table;

/* Follows the events of a device. `events`: for each of `count` ticks, the index of its event in
 * the recording. `*t` is always initialized. */
stow_status extents_build(extent_table *t, const recording *source, uint16_t device,
                          const uint32_t *events, uint32_t count);

static inline bool extent_live(const extent *e, uint32_t tick) {
  return e->start <= tick && tick < e->end;
}

#endif
