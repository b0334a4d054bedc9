/* Thin: a timeline with fewer lifetimes that still adds up, for a page that must stay small.
 *
 * The lifetimes that matter least to the picture (bytes times events lived) are left out one by one
 * and told together: rest lifetimes, one after the other, each as high as the left-out ones ever
 * were while it lasts. So the sum is never below the true one at any tick, and never above the
 * highest of the stretch. Rest lifetimes have no address, stack or tag. */
#ifndef REPLAY_THIN_H
#define REPLAY_THIN_H

#include "replay/timeline.h"

#define THIN_STRETCHES_MAX 4096

typedef struct thinned {
  timeline time;   /* free with timeline_free; has the source's device, ticks and extents */
  uint32_t *rests; /* numbers of the rest lifetimes, ascending; free() */
  uint32_t rest_count;
  uint64_t left_out;         /* lifetimes told together */
  uint64_t left_out_extents; /* simply left out: the smallest */
} thinned;

/* Keeps `lives_max` lifetimes and `extents_max` extents. Written in any case. */
stow_status timeline_thin(thinned *out, const timeline *t, uint32_t lives_max,
                          uint32_t extents_max);
void thinned_free(thinned *t);

#endif
