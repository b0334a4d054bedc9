/* PyTorch's caching allocator, replayed: shared by torch_default and torch_expandable.
 *
 * Blocks live in a table and have numbers (0: none). Free ones are in the order of their pool.
 * Neighbours by address are linked, so that a free block merges with both sides. A pool is the
 * small or large half of a lane.
 *
 *   segment:  [ block 7 live | block 9 free | block 12 live ]     prev/next link them
 *   pool->free: (bytes, addr, 9), …          pool->unmapped: (0, addr, id), … by address only
 *
 * torch.c does rounding, fitting and splitting; torch_block.c blocks and counters; torch_segments.c
 * allocates and frees segments; torch_ranges.c does the same for expandable segments. */
#ifndef REPLAY_POLICIES_TORCH_H
#define REPLAY_POLICIES_TORCH_H

#include "base/driver_cost.h"
#include "replay/policies/order.h"
#include "replay/policies/policy.h"

/* PyTorch's constants (c10/cuda/CUDACachingAllocator, c10/core/CachingDeviceAllocator). */
#define TORCH_BLOCK_MIN     UINT64_C(512)
#define TORCH_SMALL_MAX     (UINT64_C(1) << 20) /* larger requests use the large pool */
#define TORCH_SMALL_SEGMENT (UINT64_C(2) << 20)
#define TORCH_LARGE_SEGMENT (UINT64_C(20) << 20) /* for requests under TORCH_LARGE_MIN */
#define TORCH_LARGE_MIN     (UINT64_C(10) << 20)
#define TORCH_LARGE_ROUND   (UINT64_C(2) << 20)

enum { TORCH_FREE = 0, TORCH_LIVE, TORCH_PENDING };

typedef struct torch_block {
  uint64_t addr, bytes;
  uint32_t prev, next; /* neighbours by address in the same segment or range */
  uint32_t pool;
  uint32_t range; /* index + 1 of the range it is in; 0: an ordinary segment */
  uint64_t birth; /* the search count when it last became free; its age counts from there */
  uint32_t owner; /* the id of the allocation in it, while not free */
  uint8_t state;
  bool mapped;
} torch_block;

typedef struct torch_pool {
  order free, unmapped;
  bool small, private;
} torch_pool;

/* An address range into which pages are mapped step by step. */
typedef struct torch_range {
  uint64_t addr, bytes, step;
  bool open;
} torch_range;

typedef struct torch {
  policy base;
  policy_options options;
  policy_stats stats;
  bool expandable, gc;
  uint64_t searches[2]; /* searches in all streams' large and small pools; counted while gc is on */
  torch_block *blocks;
  size_t block_capacity;
  uint32_t block_count, spare; /* spare: free numbers, linked by next */
  torch_pool *pools;           /* lane * 2 + small */
  uint32_t pool_count;
  torch_range *ranges;
  size_t range_capacity;
  uint32_t range_count;
  uint32_t *block_of; /* by id; 0: not allocated, or already freed on the retry path */
  uint32_t *pending;  /* blocks other streams may still use */
  size_t pending_capacity;
  uint32_t pending_count;
  uint64_t next_addr; /* addresses are assigned downwards, as the driver does */
} torch;

/* One request. */
typedef struct torch_request {
  uint64_t bytes, segment_bytes; /* rounded; and the size of a new segment for it */
  uint32_t pool, block;          /* block: the one found */
} torch_request;

/* ---- torch.c ---- */
uint64_t torch_round(const policy_settings *settings, uint64_t bytes);
uint64_t torch_segment_bytes(uint64_t rounded);

/* ---- torch_block.c ---- */
uint32_t torch_block_new(torch *t); /* 0: no host memory */
void torch_block_drop(torch *t, uint32_t block);
/* Adds a block to the free (mapped) or unmapped order of its pool; removes it. */
bool torch_block_put(torch *t, uint32_t block);
void torch_block_take(torch *t, uint32_t block);
/* Merges a neighbour if it is free and equally mapped or unmapped. */
void torch_block_merge(torch *t, uint32_t into, uint32_t neighbour);
/* Updates the largest free piece in the stats. */
void torch_note_hole(torch *t);
/* Counts a change of the reserve. */
void torch_reserved(torch *t, int64_t bytes);
void torch_charge(torch *t, driver_call call, uint64_t bytes);
/* Returns whether `more` bytes of reserve fit the limit; updates same_down_to_bytes. */
bool torch_fits(torch *t, uint64_t more);

/* ---- torch.c ---- */
/* Frees everything cached: whole free segments, fully free pages of ranges. */
policy_answer torch_release_cached(torch *t);

/* ---- torch_segments.c ---- */
policy_answer torch_segment_take(torch *t, torch_request *r);
/* Frees one whole free segment. */
void torch_segment_give(torch *t, uint32_t block);
/* Frees just enough oversize blocks (max_split_size). */
bool torch_release_available(torch *t, const torch_request *r);
void torch_collect(torch *t);

/* ---- torch_ranges.c ---- */
policy_answer torch_range_take(torch *t, torch_request *r);
/* Unmaps the whole pages of free block `block`; drops the range when nothing is left in it. */
policy_answer torch_range_unmap(torch *t, uint32_t block);

#endif
