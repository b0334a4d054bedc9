/* What if: the recorded requests up to the failure, changed, and replayed.
 *
 * The causes use it to find out whether expandable segments would have been enough, the fixes to
 * find out what a change saves. An allocation can be kept, left out, or made smaller, together with
 * its free. Requests after the failure are unknown and not counted. */
#ifndef ADVISE_WHATIF_H
#define ADVISE_WHATIF_H

#include "advise/evidence.h"
#include "replay/replay.h"

typedef struct whatif {
  const evidence *e;
  steps base;               /* up to and including the failed request */
  steps changed;            /* shares everything with base except the list */
  double *factor;           /* by event index: factor of the bytes; 1 kept, 0 left out */
  uint64_t max_split_bytes; /* 0: as it was recorded */
  bool device_is_full;      /* the limit is the device's own size, not one that PyTorch knows */
} whatif;

typedef struct whatif_result {
  bool finishes; /* under the limit given */
  uint64_t peak_reserved_bytes, peak_live_bytes;
  uint64_t reserved_bytes, largest_hole_bytes; /* at the end, or when a request was refused */
  uint64_t failed_at_event, failed_bytes;      /* if it does not finish */
  uint64_t failure_bytes;                      /* live at the failure, and requested there */
} whatif_result;

/* A recording without a failure is replayed completely. Undo with whatif_close, also after a
 * failure. */
stow_status whatif_open(whatif *w, const evidence *e);
void whatif_close(whatif *w);

/* Everything as it was. */
void whatif_reset(whatif *w);
/* Scales one lifetime of the timeline (its allocation and its end). */
void whatif_scale(whatif *w, uint32_t lifetime_number, double factor);
/* Scales the request that failed. */
void whatif_scale_failed(whatif *w, double factor);

/* Sets *out to the steps that the factors leave. They are valid until the next change. */
stow_status whatif_steps(whatif *w, const steps **out);

/* Replays what the factors leave. `limit_bytes` 0: none. `expandable`: with expandable segments,
 * otherwise as it was recorded. */
stow_status whatif_run(whatif *w, whatif_result *out, bool expandable, uint64_t limit_bytes);

#endif
