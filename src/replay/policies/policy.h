/* Policy: an allocator that can be replayed. Each is a table of functions; replay.c drives it with
 * the steps of a recording and reads its counters.
 *
 * A policy decides where a block goes and when to allocate memory from the driver or free it.
 * Blocks have small dense numbers (`id` < id_count, reused after a free) and streams are lanes, so
 * the loop needs no lookups. Sizes are what the program requested; each policy rounds in its own
 * way.
 *
 * Nothing here touches device memory: `take` and `map` are answered by arithmetic, or by a
 * policy_driver (check.c answers from a recording). Not thread-safe; two policies share nothing. */
#ifndef REPLAY_POLICIES_POLICY_H
#define REPLAY_POLICIES_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* No limit. Sizes and sums above it do not fit, which keeps all arithmetic in range. */
#define POLICY_NO_LIMIT (UINT64_C(1) << 62)

/* The largest request passed to a policy: more than any device holds, and as much as Stowage's own
 * heap accepts. replay.c answers larger ones itself with POLICY_FULL. A file may contain any size,
 * so no work may be proportional to it. */
#define POLICY_REQUEST_MAX (UINT64_C(1) << 40)

/* PyTorch's size classes for roundup_power2_divisions: 1 MiB, 2 MiB, … 32 GiB and above. */
#define POLICY_DIVISIONS 16

/* Settings of an allocator, named as in PyTorch. */
typedef struct policy_settings {
  uint64_t max_split_bytes;    /* POLICY_NO_LIMIT: blocks of any size are split */
  uint64_t max_rounding_bytes; /* how much larger than the request an unsplittable block may be */
  uint32_t divisions[POLICY_DIVISIONS];
  double gc_threshold; /* fraction of the limit; 0: no garbage collection */
  bool preallocate;    /* bfc: allocate the whole limit at the start, the default in JAX */
} policy_settings;

#define POLICY_SETTINGS_INIT                                                                       \
  ((policy_settings){.max_split_bytes = POLICY_NO_LIMIT, .max_rounding_bytes = UINT64_C(20) << 20})

/* Parses settings in the form of PYTORCH_ALLOC_CONF
 * ("max_split_size_mb:128,roundup_power2_divisions:4") on top of `s`. Accepts and ignores settings
 * that only choose another allocator (expandable_segments, backend) and those that do not affect
 * where blocks go. */
stow_status policy_settings_parse(policy_settings *s, const char *text);

/* A lane: one (stream, private pool) of the recording. Policies that order by stream never share
 * blocks between lanes. */
typedef struct policy_lane {
  uint64_t stream;
  int64_t pool[2]; /* 0,0: the ordinary pool */
} policy_lane;

/* The driver's answers, if they do not come from arithmetic. */
typedef struct policy_driver {
  void *user;
  /* Allocates a segment of `bytes`: true with its address, or false if the driver refuses. */
  bool (*take)(void *user, uint64_t bytes, uint64_t *addr);
  void (*give)(void *user, uint64_t addr, uint64_t bytes);
  /* Returns false if the next request will be refused. Called before a range is opened for it. */
  bool (*allows)(void *user);
  /* Reserves a range of addresses without memory. */
  uint64_t (*reserve)(void *user, uint64_t bytes);
  bool (*map)(void *user, uint64_t addr, uint64_t bytes);
  void (*unmap)(void *user, uint64_t addr, uint64_t bytes);
} policy_driver;

typedef struct policy_options {
  uint64_t limit_bytes; /* POLICY_NO_LIMIT: none */
  /* The framework enforces the limit (PyTorch's memory fraction), as opposed to the end of the
   * device's memory. Then PyTorch checks before it maps, and its garbage collection is on. */
  bool limit_in_framework;
  policy_settings settings;
  const policy_lane *lanes; /* ordered by (pool, stream) */
  uint32_t lane_count;
  uint32_t id_count;
  const policy_driver *driver; /* NULL: arithmetic */
} policy_options;

typedef struct policy_stats {
  uint64_t reserved_bytes, peak_reserved_bytes;
  /* The largest free piece inside the reserve at its last peak; after a refusal, at that moment. */
  uint64_t largest_hole_bytes;
  uint64_t page_calls;   /* driver calls that allocate, free, map or unmap memory */
  uint64_t page_time_ns; /* their cost, base/driver_cost.h */
  uint64_t retries;      /* times it freed its cache and tried again */
  /* All decisions are the same at every limit from this one up to the one it ran under. */
  uint64_t same_down_to_bytes;
} policy_stats;

typedef enum policy_answer {
  POLICY_DONE = 0,
  POLICY_FULL,   /* out of memory, after everything the policy does about it */
  POLICY_BROKEN, /* no host memory, or an internal error; the thread's message says which */
} policy_answer;

typedef struct policy policy;

typedef struct policy_ops {
  const char *name;
  const char *about; /* one line for help and tables */
  stow_status (*open)(policy **out, const policy_options *options);
  policy_answer (*alloc)(policy *p, uint32_t id, uint64_t bytes, uint32_t lane);
  policy_answer (*release)(policy *p, uint32_t id);
  /* The program freed `id` while another stream may still use it. NULL: waits for release. */
  policy_answer (*pend)(policy *p, uint32_t id);
  /* Called when the program asks to free cached memory. NULL: nothing to do. */
  policy_answer (*trim)(policy *p);
  /* Called when the program reaches this time, in ns. NULL: the policy ignores time. */
  void (*advance)(policy *p, uint64_t time_ns);
  uint64_t (*address)(const policy *p, uint32_t id);
  void (*stats)(const policy *p, policy_stats *out);
  void (*close)(policy *p);
} policy_ops;

/* The first member of every policy. */
struct policy {
  const policy_ops *ops;
};

extern const policy_ops policy_torch_default, policy_torch_expandable, policy_bfc,
    policy_cuda_async, policy_stowage;

/* Not an allocator but a layout made with the whole recording known: only replay_run can run it.
 * Its functions are NULL. */
extern const policy_ops policy_planned;

/* Returns allocator i in the order that tables show; NULL past the last. */
const policy_ops *policy_at(size_t i);
/* Finds an allocator or "planned". Returns NULL if there is no such policy. */
const policy_ops *policy_find(const char *name);

#endif
