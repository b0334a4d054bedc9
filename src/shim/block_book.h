/* Block book: the live blocks in pages that can move: PyTorch's (torch_block.c) and large plain
 * ones (placed.c).
 *
 * Kept in runs with a spill. A follower (resident.c) gets all blocks that are live when it begins,
 * and every change after that, in order, when it asks for them. */
#ifndef SHIM_BLOCK_BOOK_H
#define SHIM_BLOCK_BOOK_H

#include <stdbool.h>
#include <stdint.h>

/* A block began to live, or (bytes 0) ended. PyTorch's are noted with its lock held: takes
 * only its own lock. */
void block_book_note(uint64_t addr, uint64_t bytes, unsigned device);

typedef struct block_change {
  uint64_t addr;
  uint64_t bytes; /* 0: it ended */
  unsigned device;
} block_change;

/* Begins to follow. False: there is no memory. */
bool block_book_follow(void);
/* Calls `change` for each change since the last call. False: changes were lost for want of memory;
 * the follower has to stop. */
bool block_book_changes(void (*change)(const block_change *c));
/* Returns whether there are changes. Cheap. */
bool block_book_changed(void);
/* Returns whether a block was ever noted. */
bool block_book_used(void);

#endif
