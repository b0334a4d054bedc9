/* Torch block: the blocks of PyTorch's allocator, which reports them to its profiler. */
#ifndef SHIM_TORCH_BLOCK_H
#define SHIM_TORCH_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

/* Returns whether a block of any device has been reported. */
bool torch_block_seen(void);
/* Stores what PyTorch has allocated on a device, by PyTorch's number. Returns false if no block of
 * that device has been reported. */
bool torch_block_live(int device, uint64_t *bytes);
/* The same, and the most that it had allocated since the last call. */
bool torch_block_highest(int device, uint64_t *bytes, uint64_t *highest);

#endif
