/* Measure: measures what the driver holds for this process without individual requests: pools,
 * memory of graphs, contexts and code. Thread-safe; no lock is held during driver calls. */
#ifndef SHIM_MEASURE_H
#define SHIM_MEASURE_H

#include "shim/account.h"

/* The step by which a pool grows (seen on an H200, driver 580: docs/policies.md). */
#define POOL_STEP ((uint64_t)32 << 20)

/* Measures pools, graphs and the driver's own share of the device of the calling thread's context.
 */
void measure_device(unsigned device, cu_device ordinal);
/* Measures if the calling thread's context is on that device. Returns whether it is. */
bool measure_here(unsigned device);
/* Measures if enough bytes were allocated since the last time, on a device with a limit. */
void measure_look(unsigned device, uint64_t bytes);
/* Makes the next measure_look measure, because the driver's own share has changed. */
void measure_soon(void);
/* Counts `bytes` before the driver is called. Returns false if the limit is reached, even after
 * everything was measured again. */
bool measure_take(unsigned device, ledger_kind kind, uint64_t bytes);

/* Report that this process is about to create a context there, has created it or failed, or has
 * destroyed one. */
void measure_context_begins(unsigned device);
void measure_context_made(unsigned device, bool made);
void measure_context_ended(unsigned device);
/* Returns whether the device's primary context exists, whoever created it. */
bool measure_primary_active(cu_device ordinal);
/* Measures one pool's reserve after an allocation from it. */
void measure_pool(unsigned device, void *pool);
/* Counts what a pool is about to grow by. Returns false if the limit is reached. The announcement
 * ends when the pool is measured after it has grown. */
bool measure_pool_announce(unsigned device, uint64_t bytes);
void measure_pool_grown(unsigned device, void *pool, uint64_t announced_bytes);
/* Attributes of a pool (CUmemPool_attribute); 0 if the driver does not report them. */
enum { POOL_RESERVED = 5, POOL_USED = 7 };
uint64_t measure_pool_figure(void *pool, int which);
/* A destroyed pool exists until its last block is freed: records that it was destroyed, and how
 * much of it was in use before. */
void measure_pool_ended(void *pool, uint64_t used_bytes);
/* A block that is about to be freed, if it may belong to such a pool, and that it was freed. */
typedef struct pool_block {
  void *pool;
  uint64_t bytes;
} pool_block;
pool_block measure_block(cu_addr addr);
void measure_block_gone(const pool_block *block);
/* Notes a pool that the program created: on a device, or on the host, which belongs to no device
 * (LEDGER_DEVICES_MAX). A pool that can be exported must own its blocks, so it is never spilled. */
void measure_note_pool(unsigned device, void *pool, bool shared);
bool measure_pool_shared(void *pool);
/* Returns the device of a pool; `otherwise` if it was not noted. */
unsigned measure_pool_device(void *pool, unsigned otherwise);
/* Returns the bytes of this process that cannot be spilled: memory of graphs and such pools. */
uint64_t measure_fixed(unsigned device);
/* Returns the idle memory of this process's pools to the driver. */
void measure_trim_pools(unsigned device);

#endif
