/* cuda_async internals: blocks of the driver's stream-ordered pool, shared by its two files.
 *
 * Blocks tile a lane's address range and are linked by address:
 *
 *   [ live | waiting | free | hole | free | live | hole … ]
 *
 * A hole has no pages and is page-aligned; the last one is endless. A `waiting` block is freed and
 * searched first, but not yet merged with free blocks. */
#ifndef REPLAY_POLICIES_CUDA_ASYNC_H
#define REPLAY_POLICIES_CUDA_ASYNC_H

#include "replay/policies/order.h"
#include "replay/policies/policy.h"

#define ASYNC_ALIGN UINT64_C(512)
#define ASYNC_PAGE  (UINT64_C(32) << 20)

enum { ASYNC_LIVE = 0, ASYNC_WAITING, ASYNC_FREE, ASYNC_HOLE };

typedef struct async_block {
  uint64_t addr, bytes;
  uint64_t turn;       /* when it was freed or merged; orders blocks of equal size */
  uint32_t prev, next; /* by address; 0: none */
  uint32_t lane;
  uint8_t state;
} async_block;

typedef struct async_lane {
  order waiting, free, holes;
  uint32_t first; /* the block with the lowest address */
} async_lane;

typedef struct async_pool {
  policy base;
  policy_options options;
  policy_stats stats;
  async_block *blocks; /* number 0 is unused */
  size_t block_capacity;
  uint32_t block_count, spare;
  async_lane *lanes;
  uint32_t *block_of; /* by id */
  uint64_t turn, pages;
} async_pool;

/* ---- cuda_async_blocks.c ---- */
/* Adds a block to the order of its state; removes it. Live blocks are in no order. */
bool async_put(async_pool *a, uint32_t block);
void async_take(async_pool *a, uint32_t block);
/* Merges the neighbour into the block if it has `state`; afterwards both are in no order. */
void async_merge(async_pool *a, uint32_t into, uint32_t neighbour, uint8_t state);
/* Splits [addr, …) off the end of a block that is in no order, as a new block in `state`, and adds
 * that to its order. Returns 0 without host memory. */
uint32_t async_cut(async_pool *a, uint32_t block, uint64_t addr, uint8_t state);
/* Opens a lane's range: one endless hole. */
bool async_range_open(async_pool *a, uint32_t lane);
/* Places `bytes` over holes when nothing mapped fits: moves idle pages there and creates the
 * rest. */
policy_answer async_map(async_pool *a, uint32_t lane, uint64_t bytes, uint32_t *block);

#endif
