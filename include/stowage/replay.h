/* Replay: run the requests of a recording through another allocator, under another limit, or on a
 * smaller device that spills.
 *
 *   stow_replay *replay;
 *   stow_replay_options options = STOW_REPLAY_OPTIONS_INIT;
 *   options.limit_bytes = UINT64_C(16) << 30;
 *   stow_replay_open(&replay, recording, &options);
 *   stow_replay_result result = STOW_REPLAY_RESULT_INIT;
 *   stow_replay_run(replay, "torch_expandable", STOW_REPLAY_MIN_LIMIT, &result);
 *   stow_replay_close(replay);
 *
 * The program is not run, and no device is needed. The same recording and options always give the
 * same result.
 *
 * Threads: any number may run one replay at a time. Fork: a child may use its copy.
 * Link with -lstowage-analysis. */
#ifndef STOWAGE_REPLAY_H
#define STOWAGE_REPLAY_H

#include <stdint.h>

#include <stowage/recording.h>
#include <stowage/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stow_replay stow_replay;

typedef struct stow_replay_options {
  uint32_t struct_bytes; /* sizeof(stow_replay_options) */
  uint32_t reserved;     /* 0 */
  uint64_t device_bytes; /* replay on a device of this size minus the CUDA context; 0: no device
                          * size */
  uint64_t limit_bytes;  /* limit on what the allocator may reserve; 0: none. Not together with
                          * device_bytes */
  const char *settings;  /* as in PYTORCH_ALLOC_CONF; override those in the recording; NULL: none */
} stow_replay_options;
#define STOW_REPLAY_OPTIONS_INIT                                                                   \
  { sizeof(stow_replay_options), 0, 0, 0, NULL }

/* Prepares a recording for replays; NULL options are the defaults. The recording must stay open
 * until the replay is closed. STOW_ERR_INVALID: the options contradict each other, or the recording
 * has no allocation. `*replay` is NULL on failure. */
STOW_API stow_status stow_replay_open(stow_replay **replay, const stow_recording *recording,
                                      const stow_replay_options *options);
/* Closes a replay; NULL is allowed. */
STOW_API void stow_replay_close(stow_replay *replay);

/* Returns the name of allocator `index`; NULL past the last. "torch_default", "torch_expandable",
 * "bfc", "cuda_async", "stowage". stow_replay_run also accepts "planned": a layout computed in
 * advance from the recorded lifetimes. */
STOW_API const char *stow_replay_policy(uint32_t index);

/* Flags of stow_replay_run. */
/* Find the smallest limit that finishes; takes many replays. */
#define STOW_REPLAY_MIN_LIMIT UINT32_C(1)
#define STOW_REPLAY_CHECK     UINT32_C(2) /* compare with the segments PyTorch recorded */

#define STOW_REPLAY_NO_EVENT UINT64_MAX

typedef struct stow_replay_result {
  uint32_t struct_bytes;        /* sizeof(stow_replay_result), set by the caller */
  uint32_t finishes;            /* 1: every request was served */
  const char *policy;           /* constant text */
  uint64_t failed_at_event;     /* index in the recording; STOW_REPLAY_NO_EVENT: it finishes */
  uint64_t failed_bytes;        /* size of the request that failed */
  uint64_t peak_live_bytes;     /* requested and not freed */
  uint64_t peak_reserved_bytes; /* memory reserved from the driver */
  uint64_t largest_hole_bytes;  /* the largest free block inside the reserve, at its peak */
  uint64_t page_calls;          /* driver calls for pages */
  uint64_t page_time_us;        /* time of these calls, as measured on an H200 */
  uint64_t retries;             /* times the allocator dropped its cache and tried again */
  uint64_t min_limit_bytes;     /* set with STOW_REPLAY_MIN_LIMIT; 0: not searched, or not found */
  uint32_t min_limit_proved;    /* 1: every 2 MiB step above it was shown to finish */
  uint32_t checked;             /* 1: STOW_REPLAY_CHECK compared with the recording */
  uint64_t segment_mismatches;  /* out of segments_checked */
  uint64_t segments_checked;
  uint64_t address_mismatches; /* out of addresses_checked */
  uint64_t addresses_checked;
  uint64_t lower_bound_bytes; /* for "planned": no layout can need less; 0 for allocators */
} stow_replay_result;
#define STOW_REPLAY_RESULT_INIT                                                                    \
  { sizeof(stow_replay_result), 0, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Replays with one policy. A request that does not fit is a result, not an error: `finishes` is 0.
 * STOW_ERR_NOT_FOUND: no policy has that name. */
STOW_API stow_status stow_replay_run(const stow_replay *replay, const char *policy, uint32_t flags,
                                     stow_replay_result *result);

/* ---- spilling ---- */

typedef struct stow_replay_spill_result {
  uint32_t struct_bytes;    /* sizeof(stow_replay_spill_result), set by the caller */
  uint32_t fits;            /* 1: everything fits in the device's memory, and nothing is spilled */
  uint64_t capacity_bytes;  /* device memory that is left for pages */
  uint64_t peak_live_bytes; /* the most that is live at once in a step */
  uint64_t excess_bytes;    /* what does not fit */
  uint64_t bare_ns;         /* time of a step on a device that holds everything */
  uint64_t step_ns;         /* time of a step with spilling, once it is steady */
  uint64_t floor_ns;        /* bare_ns and the time to copy excess_bytes, with nothing overlapped */
  uint64_t in_bytes;        /* moved to the device per step */
  uint64_t out_bytes;       /* moved to host memory per step */
} stow_replay_spill_result;
#define STOW_REPLAY_SPILL_RESULT_INIT                                                              \
  { sizeof(stow_replay_spill_result), 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Simulates the last step of a recorded program on a device with `device_bytes` of memory that
 * spills to host memory. STOW_ERR_NOT_FOUND: the recording has no launches with touches, so what a
 * kernel uses is not known (record with stowage run --record FILE --touches). STOW_ERR_INVALID: the
 * device has no room for pages. */
STOW_API stow_status stow_replay_spill(const stow_recording *recording, uint64_t device_bytes,
                                       stow_replay_spill_result *result);

#ifdef __cplusplus
}
#endif
#endif
