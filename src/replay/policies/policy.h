/* Policy: an allocator that can be replayed. Each is one table of functions; replay.c drives it
 * with the steps of a recording and reads what it counted.
 *
 * A policy decides where a block goes and when memory is taken from the driver or given back.
 * Blocks are known by small dense numbers (`id` < id_count, reused after a free), streams by lanes,
 * so that the loop looks nothing up. Sizes are what the program asked for; each policy rounds its
 * own way.
 *
 * Nothing here touches memory of a card: `take` and `map` are answered by arithmetic, or by a
 * policy_driver (check.c answers from a recording). Not safe from several threads; two policies
 * share nothing. */
#ifndef REPLAY_POLICIES_POLICY_H
#define REPLAY_POLICIES_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* No limit. Sizes and sums past it count as "does not fit", which keeps all arithmetic in range. */
#define POLICY_NO_LIMIT (UINT64_C(1) << 62)

/* The largest request that a policy is asked to serve: more than any device holds, and as much as
 * Stowage's own heap takes. replay.c answers larger ones itself, with POLICY_FULL. A size in a file
 * may be any number, and no work may be in proportion to it. */
#define POLICY_REQUEST_MAX (UINT64_C(1) << 40)

/* PyTorch's size classes for roundup_power2_divisions: 1 MiB, 2 MiB, … 32 GiB and above. */
#define POLICY_DIVISIONS 16

/* What an allocator is told, in PyTorch's words. */
typedef struct policy_settings {
  uint64_t max_split_bytes;    /* POLICY_NO_LIMIT: blocks of any size are split */
  uint64_t max_rounding_bytes; /* how much larger than asked an unsplittable block may be */
  uint32_t divisions[POLICY_DIVISIONS];
  double gc_threshold; /* of the limit; 0: no garbage collection */
  bool preallocate;    /* bfc: the whole limit at the start, as JAX does unless told otherwise */
} policy_settings;

#define POLICY_SETTINGS_INIT                                                                       \
  ((policy_settings){.max_split_bytes = POLICY_NO_LIMIT, .max_rounding_bytes = UINT64_C(20) << 20})

/* Reads PYTORCH_ALLOC_CONF's form ("max_split_size_mb:128,roundup_power2_divisions:4") over what
 * `s` holds. Words that only choose another allocator (expandable_segments, backend) and ones that
 * do not change where blocks go are accepted and passed over. */
stow_status policy_settings_parse(policy_settings *s, const char *text);

/* A lane: one (stream, private pool) of the recording. Blocks are never shared between lanes by
 * policies that order by stream. */
typedef struct policy_lane {
  uint64_t stream;
  int64_t pool[2]; /* 0,0: the ordinary pool */
} policy_lane;

/* The driver's answers, where they come from somewhere else than arithmetic. */
typedef struct policy_driver {
  void *user;
  /* A segment of `bytes`: true and its address, or false: the driver refused. */
  bool (*take)(void *user, uint64_t bytes, uint64_t *addr);
  void (*give)(void *user, uint64_t addr, uint64_t bytes);
  /* False: whatever is asked for next will be refused. Looked at before a range is opened for it.
   */
  bool (*allows)(void *user);
  /* A range of addresses with nothing behind it. */
  uint64_t (*reserve)(void *user, uint64_t bytes);
  bool (*map)(void *user, uint64_t addr, uint64_t bytes);
  void (*unmap)(void *user, uint64_t addr, uint64_t bytes);
} policy_driver;

typedef struct policy_options {
  uint64_t limit_bytes; /* POLICY_NO_LIMIT: none */
  /* The limit is one the framework was told (PyTorch's memory fraction), not the card's end: then
   * PyTorch looks before it maps, and its garbage collection is on. */
  bool limit_is_told;
  policy_settings settings;
  const policy_lane *lanes; /* ordered by (pool, stream) */
  uint32_t lane_count;
  uint32_t id_count;
  const policy_driver *driver; /* NULL: arithmetic */
} policy_options;

typedef struct policy_stats {
  uint64_t reserved_bytes, peak_reserved_bytes;
  /* The largest free piece inside the reserve when it was last at its peak; after a refusal, then.
   */
  uint64_t largest_hole_bytes;
  uint64_t page_calls;   /* driver calls that take, give, map or unmap memory */
  uint64_t page_time_ns; /* what they cost, base/driver_cost.h */
  uint64_t retries;      /* times it dropped its cache and asked again */
  /* At every limit from this one up to the one it ran under, all decisions are the same. */
  uint64_t same_down_to_bytes;
} policy_stats;

typedef enum policy_answer {
  POLICY_DONE = 0,
  POLICY_FULL,   /* out of memory: the limit, after everything the policy does about it */
  POLICY_BROKEN, /* no host memory, or a fault of its own; the thread's message says which */
} policy_answer;

typedef struct policy policy;

typedef struct policy_ops {
  const char *name;
  const char *about; /* one line for help and tables */
  stow_status (*open)(policy **out, const policy_options *options);
  policy_answer (*alloc)(policy *p, uint32_t id, uint64_t bytes, uint32_t lane);
  policy_answer (*release)(policy *p, uint32_t id);
  /* The program gave `id` up while another stream may still use it. NULL: waits for release. */
  policy_answer (*pend)(policy *p, uint32_t id);
  /* The program asked for cached memory to be given back. NULL: nothing to do. */
  policy_answer (*trim)(policy *p);
  /* The program reached this moment, in ns. NULL: time means nothing to it. */
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

/* Policy number i in the order tables show them; NULL past the last. */
const policy_ops *policy_at(size_t i);
/* NULL if there is none of that name. */
const policy_ops *policy_find(const char *name);

#endif
