/* Driver cost: what a call of the CUDA driver takes, by size. The simulated device charges it to
 * its clock, and replay compares policies with it.
 *
 * Measured on an H200 (driver 580.159, CUDA 13.0, x86-64): medians of single calls on an idle
 * device. docs/MEASUREMENTS.md has the same table. A call that waits (a busy stream, another
 * process) takes longer. */
#ifndef BASE_DRIVER_COST_H
#define BASE_DRIVER_COST_H

#include <stdint.h>

typedef enum driver_call {
  DRIVER_RESERVE = 0, /* cuMemAddressReserve */
  DRIVER_CREATE,      /* cuMemCreate */
  DRIVER_MAP,         /* cuMemMap */
  DRIVER_ACCESS,      /* cuMemSetAccess of one handle */
  DRIVER_UNMAP,
  DRIVER_RELEASE,
  DRIVER_ALLOC, /* cuMemAlloc, cudaMalloc */
  DRIVER_FREE,
  DRIVER_CALLS
} driver_call;

/* Returns the nanoseconds of one call over `bytes`: interpolated between the sizes measured, in
 * proportion to the size beyond 1 GiB. */
uint64_t driver_cost_ns(driver_call call, uint64_t bytes);

#endif
