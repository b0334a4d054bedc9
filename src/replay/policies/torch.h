/* PyTorch's caching allocator, replayed: what torch_default and torch_expandable share.
 *
 * Blocks live in a table and are known by number (0: none). Free ones stand in the order of their
 * pool; neighbours by address are linked, so that a free block merges with both sides. A pool is
 * one lane's small or large side.
 *
 *   segment:  [ block 7 live | block 9 free | block 12 live ]     prev/next link them
 *   pool->free: (bytes, addr, 9), …          pool->unmapped: (0, addr, id), … by address alone
 *
 * torch.c holds rounding, fitting and splitting; torch_block.c blocks and counts; torch_segments.c
 * takes segments from the driver and gives them back, torch_ranges.c does the same for expandable
 * segments. */
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
  uint64_t birth; /* the search count when it last became free: its age counts from there */
  uint32_t owner; /* the id of the allocation in it, while not free */
  uint8_t state;
  bool mapped;
} torch_block;

typedef struct torch_pool {
  order free, unmapped;
  bool small, private;
} torch_pool;

/* A range of addresses that pages are mapped into, step by step. */
typedef struct torch_range {
  uint64_t addr, bytes, step;
  bool open;
} torch_range;

typedef struct torch {
  policy base;
  policy_options options;
  policy_stats stats;
  bool expandable, gc;
  uint64_t searches[2]; /* of all streams' large and small pools; counted while gc is on */
  torch_block *blocks;
  size_t block_capacity;
  uint32_t block_count, spare; /* spare: free numbers, linked by next */
  torch_pool *pools;           /* lane * 2 + small */
  uint32_t pool_count;
  torch_range *ranges;
  size_t range_capacity;
  uint32_t range_count;
  uint32_t *block_of; /* by id; 0: not allocated, or already freed on the retry road */
  uint32_t *pending;  /* blocks other streams may still use */
  size_t pending_capacity;
  uint32_t pending_count;
  uint64_t next_addr; /* addresses given out downwards, as the driver does */
} torch;

/* What one request is about. */
typedef struct torch_request {
  uint64_t bytes, segment_bytes; /* rounded; and what a new segment for it would take */
  uint32_t pool, block;          /* block: the one found */
} torch_request;

/* ---- torch.c ---- */
uint64_t torch_round(const policy_settings *settings, uint64_t bytes);
uint64_t torch_segment_bytes(uint64_t rounded);

/* ---- torch_block.c ---- */
uint32_t torch_block_new(torch *t); /* 0: no host memory */
void torch_block_drop(torch *t, uint32_t block);
/* Into the free (mapped) or unmapped order of its pool, and out of it. */
bool torch_block_put(torch *t, uint32_t block);
void torch_block_take(torch *t, uint32_t block);
/* Swallows a neighbour if it is free and mapped alike. */
void torch_block_merge(torch *t, uint32_t into, uint32_t neighbour);
/* Notes the largest free piece in the stats. */
void torch_note_hole(torch *t);
/* Counts a change of the reserve. */
void torch_reserved(torch *t, int64_t bytes);
void torch_charge(torch *t, driver_call call, uint64_t bytes);
/* Notes whether `total` bytes of reserve were let through, for same_down_to_bytes. */
bool torch_fits(torch *t, uint64_t more);

/* ---- torch.c ---- */
/* Everything cached that can go: whole free segments, fully free pages of ranges. */
policy_answer torch_release_cached(torch *t);

/* ---- torch_segments.c ---- */
policy_answer torch_segment_take(torch *t, torch_request *r);
/* Gives one whole free segment back. */
void torch_segment_give(torch *t, uint32_t block);
/* max_split_size: gives back just enough oversize blocks. */
bool torch_release_available(torch *t, const torch_request *r);
void torch_collect(torch *t);

/* ---- torch_ranges.c ---- */
policy_answer torch_range_take(torch *t, torch_request *r);
/* Unmaps the whole pages of free block `block`; drops the range when nothing is left in it. */
policy_answer torch_range_unmap(torch *t, uint32_t block);

#endif
