/* Steps: a recording of one device reduced to what a policy is asked, once, before any replay.
 *
 * Addresses become small dense numbers (reused after a free, so that a replay's tables stay in
 * cache) and (stream, private pool) pairs become lanes; a replay then looks nothing up. What could
 * not be made sense of is counted, not refused: frees of unknown addresses, addresses given out
 * twice without a free between. */
#ifndef REPLAY_STEPS_H
#define REPLAY_STEPS_H

#include "recordings/recording.h"
#include "replay/policies/policy.h"

typedef enum step_kind {
  STEP_ALLOC = 0,
  STEP_FREE,
  STEP_PEND, /* given up, but another stream may still use it */
  STEP_TRIM, /* the program gave cached memory back (empty_cache) */
  STEP_FAIL, /* a request the recorded run was refused: it has to fit, and is freed at once */
} step_kind;

typedef struct step {
  uint64_t bytes; /* as requested, of frees too */
  uint32_t id;    /* of the block */
  uint32_t event; /* index in the recording */
  uint32_t lane;
  uint8_t kind;
  bool initial; /* was live before the recording began; nobody knows when it was asked for */
} step;

typedef struct steps {
  const recording *source; /* outlives this */
  uint16_t device;
  step *list;
  size_t count, capacity;
  policy_lane *lanes; /* by (pool, stream) */
  uint32_t lane_count;
  uint32_t id_count;
  uint64_t event_count; /* of this device, all kinds: what a replay's speed is counted in */
  uint64_t alloc_count;
  uint64_t peak_live_bytes; /* as requested; a refused request counts while it is asked for */
  uint64_t end_live_bytes;
  uint64_t unknown_frees, doubled_addresses, initial_blocks;
} steps;

/* The device with the most events; 0 in an empty recording. */
uint16_t steps_main_device(const recording *r);

/* Reads `device` of `r`. Undo with steps_free, also after a failure. */
stow_status steps_build(steps *out, const recording *r, uint16_t device);
void steps_free(steps *s);

/* The recording's own allocator settings, as far as they can be read, over the ordinary ones. */
void steps_settings(policy_settings *out, const recording *r);
/* True if the recording was made with expandable segments. */
bool steps_expandable(const recording *r);

#endif
