/* Steps: one device's part of a recording reduced to a policy's inputs, once, before any replay.
 *
 * Addresses become small dense numbers (reused after a free, so that a replay's tables stay in
 * cache) and (stream, private pool) pairs become lanes; a replay then needs no lookups.
 * Inconsistent events are counted, not rejected: frees of unknown addresses, addresses allocated
 * twice without a free. */
#ifndef REPLAY_STEPS_H
#define REPLAY_STEPS_H

#include "recordings/recording.h"
#include "replay/policies/policy.h"

typedef enum step_kind {
  STEP_ALLOC = 0,
  STEP_FREE,
  STEP_PEND, /* freed, but another stream may still use it */
  STEP_TRIM, /* the program freed cached memory (empty_cache) */
  STEP_FAIL, /* a request that failed in the recorded run: it must fit, and is freed immediately */
} step_kind;

typedef struct step {
  uint64_t bytes; /* as requested, also for frees */
  uint32_t id;    /* ID of the block */
  uint32_t event; /* index in the recording */
  uint32_t lane;
  uint8_t kind;
  bool initial; /* live before the recording began; the time of its allocation is unknown */
} step;

typedef struct steps {
  const recording *source; /* outlives the steps */
  uint16_t device;
  step *list;
  size_t count, capacity;
  policy_lane *lanes; /* by (pool, stream) */
  uint32_t lane_count;
  uint32_t id_count;
  uint64_t event_count; /* events of this device of all kinds: the unit of a replay's speed */
  uint64_t alloc_count;
  uint64_t peak_live_bytes; /* as requested; a failed request counts while it is made */
  uint64_t end_live_bytes;
  uint64_t unknown_frees, doubled_addresses, initial_blocks;
} steps;

/* Returns the device with the most events; 0 for an empty recording. */
uint16_t steps_main_device(const recording *r);

/* Builds the steps of `device`. Free with steps_free, also after a failure. */
stow_status steps_build(steps *out, const recording *r, uint16_t device);
void steps_free(steps *s);

/* Reads the recorded allocator settings, as far as they can be parsed, on top of the defaults. */
void steps_settings(policy_settings *out, const recording *r);
/* Returns whether the recording was made with expandable segments. */
bool steps_expandable(const recording *r);

#endif
