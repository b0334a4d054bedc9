/* Cost: what driver calls take, by size, so that policies can be compared in time as well as bytes.
 *
 * Measured on an H200 (driver 580, CUDA 13.0, x86-64), medians of an idle card; between the sizes
 * measured the time is interpolated, past the largest it grows in proportion. What a call waits for
 * (a busy stream, another process) is not in it. */
#ifndef REPLAY_POLICIES_COST_H
#define REPLAY_POLICIES_COST_H

#include <stdint.h>

typedef enum cost_call {
  COST_ALLOC = 0, /* cuMemAlloc, cudaMalloc */
  COST_FREE,
  COST_CREATE, /* cuMemCreate */
  COST_MAP,
  COST_ACCESS, /* cuMemSetAccess of one handle */
  COST_UNMAP,
  COST_RELEASE,
  COST_ASYNC_ALLOC, /* cuMemAllocAsync that finds room in its pool */
  COST_ASYNC_FREE,
  COST_CALLS
} cost_call;

/* Nanoseconds of one call over `bytes`. */
uint64_t cost_ns(cost_call call, uint64_t bytes);

#endif
