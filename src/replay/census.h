/* Census: who holds what at one tick, and how the free memory is fragmented.
 *
 * Counts by the requested group, largest holders first. Called for the peak, for each failure and
 * for the end of an iteration. */
#ifndef REPLAY_CENSUS_H
#define REPLAY_CENSUS_H

#include "replay/site.h"
#include "replay/timeline.h"

typedef struct holder {
  uint32_t key; /* site, tag id or size class, depending on the group */
  uint32_t count;
  uint64_t bytes;
} holder;

typedef struct census {
  uint32_t tick;
  group_by by;
  uint64_t live_bytes, live_count;
  /* Memory reserved at that tick; all 0 if the recording has no segments. */
  uint64_t reserved_bytes, hole_bytes, largest_hole_bytes;
  uint32_t hole_count;
  holder *holders;
  uint32_t holder_count;
} census;

/* Returns the finest group the recording supports: sites, else tags, else sizes. */
group_by census_default_group(const timeline *t);
stow_status census_take(census *c, const timeline *t, const site_table *sites, group_by by,
                        uint32_t tick);
void census_free(census *c);

/* Writes "forward  train.py:15", "optimizer" or "1 MiB to 10 MiB". Returns `text`. */
const char *census_label(char *text, size_t size, const timeline *t, const site_table *sites,
                         group_by by, uint32_t key);

#endif
