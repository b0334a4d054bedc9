/* Live blocks: the allocated blocks in pages that can move. They are PyTorch's (torch_block.c) and
 * large plain ones (placed.c).
 *
 * Kept in runs with spilling. A follower (resident.c) gets all blocks that are live when it starts,
 * and after that every change, in order, when it asks for them. */
#ifndef SHIM_LIVE_BLOCKS_H
#define SHIM_LIVE_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

/* Notes that a block was allocated, or (bytes 0) freed. PyTorch's blocks are noted with its lock
 * held, so this takes only its own lock. */
void live_blocks_note(uint64_t addr, uint64_t bytes, unsigned device);

typedef struct block_change {
  uint64_t addr;
  uint64_t bytes; /* 0: freed */
  unsigned device;
} block_change;

/* Starts to follow. Returns false without memory. */
bool live_blocks_follow(void);
/* Calls `change` for each change since the last call. Returns false if changes were lost for lack
 * of memory; the follower must then stop. */
bool live_blocks_changes(void (*change)(const block_change *c));
/* Returns whether there are changes. Cheap. */
bool live_blocks_changed(void);

#endif
