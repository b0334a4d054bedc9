/* Plan: a layout for recorded lifetimes that is chosen with the whole recording known.
 *
 * Every block gets one offset for its whole life, and blocks that live at the same time do not
 * overlap. This shows how much of an allocator's reserve comes from not knowing the future. The
 * policy "planned" reports it (replay.c). Finding the smallest layout is NP-hard: `height_bytes`
 * is the best of several greedy layouts, `bound_bytes` is a limit that no layout can go below. The
 * same steps always give the same plan. */
#ifndef REPLAY_PLAN_H
#define REPLAY_PLAN_H

#include "replay/steps.h"

/* Offsets are multiples of this, as in PyTorch. */
#define PLAN_ALIGN_BYTES UINT64_C(512)

typedef struct plan_block {
  uint64_t bytes, offset; /* bytes is rounded up to PLAN_ALIGN_BYTES */
  uint32_t step;          /* the STEP_ALLOC or STEP_FAIL that allocates it */
  uint32_t until;         /* the step that frees it; the step count if none does */
} plan_block;

typedef struct plan {
  plan_block *blocks; /* in step order, without requests above POLICY_REQUEST_MAX */
  uint32_t count;
  uint64_t height_bytes; /* what the layout needs */
  uint64_t bound_bytes;  /* the largest sum of blocks that are live at the same time */
  size_t step_count;     /* steps that were planned; fewer than all if no device holds the rest */
  const char *found_by;  /* the order of the best layout, for people */
} plan;

/* Builds a plan. `work` bounds the effort of the search in units of a few nanoseconds; 0: the
 * default, about a second. Free with plan_free, also after a failure. */
stow_status plan_build(plan *out, const steps *s, uint64_t work);
void plan_free(plan *p);

/* Returns the largest gap between live blocks below the plan's height, at the first moment when the
 * most bytes live. UINT64_MAX: no host memory. */
uint64_t plan_largest_hole(const plan *p);

#endif
