/* Thin: a timeline with fewer lifetimes and the same totals, for a page that must stay small.
 *
 * The lifetimes that contribute least to the picture (bytes times events lived) are omitted and
 * represented by rest lifetimes, one after the other. Each is as high as the maximum of the omitted
 * ones while it lasts. So the sum is never below the true one at any tick, and never above the
 * maximum of the stretch. Rest lifetimes have no address, stack or tag. */
#ifndef REPLAY_THIN_H
#define REPLAY_THIN_H

#include "replay/timeline.h"

#define THIN_STRETCHES_MAX 4096

typedef struct thinned {
  timeline time;   /* free with timeline_free; has the source's device, ticks and extents */
  uint32_t *rests; /* numbers of the rest lifetimes, ascending; free() */
  uint32_t rest_count;
  uint64_t left_out;         /* lifetimes merged into rests */
  uint64_t left_out_extents; /* omitted: the smallest */
} thinned;

/* Keeps `lives_max` lifetimes and `extents_max` extents. `out` is always initialized. */
stow_status timeline_thin(thinned *out, const timeline *t, uint32_t lives_max,
                          uint32_t extents_max);
void thinned_free(thinned *t);

#endif
