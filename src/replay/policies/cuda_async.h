/* cuda_async, inside: blocks of the driver's stream-ordered pool, and what its two files share.
 *
 * A lane's range of addresses is tiled by blocks, linked by address:
 *
 *   [ live | waiting | free | hole | free | live | hole … ]
 *
 * A hole has no pages behind it and lies on page bounds; the last one never ends. `waiting` is
 * freed and looked at first, but not yet merged with what was free before. */
#ifndef REPLAY_POLICIES_CUDA_ASYNC_H
#define REPLAY_POLICIES_CUDA_ASYNC_H

#include "replay/policies/order.h"
#include "replay/policies/policy.h"

#define ASYNC_ALIGN UINT64_C(512)
#define ASYNC_PAGE  (UINT64_C(32) << 20)

enum { ASYNC_LIVE = 0, ASYNC_WAITING, ASYNC_FREE, ASYNC_HOLE };

typedef struct async_block {
  uint64_t addr, bytes;
  uint64_t turn;       /* when it was freed or merged: equal sizes are taken by it */
  uint32_t prev, next; /* by address; 0: none */
  uint32_t lane;
  uint8_t state;
} async_block;

typedef struct async_lane {
  order waiting, free, holes;
  uint32_t first; /* its block of the lowest address */
} async_lane;

typedef struct async_pool {
  policy base;
  policy_options options;
  policy_stats stats;
  async_block *blocks; /* number 0 is none */
  size_t block_capacity;
  uint32_t block_count, spare;
  async_lane *lanes;
  uint32_t *block_of; /* by id */
  uint64_t turn, pages;
} async_pool;

/* ---- cuda_async_blocks.c ---- */
/* Into the order of its state, and out of it. Live blocks stand in none. */
bool async_put(async_pool *a, uint32_t block);
void async_take(async_pool *a, uint32_t block);
/* Swallows the neighbour if it has `state`; both are out of their orders after. */
void async_merge(async_pool *a, uint32_t into, uint32_t neighbour, uint8_t state);
/* Cuts [addr, …) off the end of a block that stands in no order, as a new one in `state`, put into
 * its order. 0: no host memory. */
uint32_t async_cut(async_pool *a, uint32_t block, uint64_t addr, uint8_t state);
/* Opens a lane's range: one endless hole. */
bool async_range_open(async_pool *a, uint32_t lane);
/* Nothing mapped fits: places `bytes` over holes, moving idle pages there and making the rest. */
policy_answer async_map(async_pool *a, uint32_t lane, uint64_t bytes, uint32_t *block);

#endif
