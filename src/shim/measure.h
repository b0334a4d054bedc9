/* Measure: what the driver holds for this process without a request for each piece: pools, graphs'
 * memory, contexts and code. Any thread may call anything; no lock is held while the driver is
 * called. */
#ifndef SHIM_MEASURE_H
#define SHIM_MEASURE_H

#include "shim/account.h"

/* A pool grows by so much at a time (seen on an H200, driver 580: docs/policies.md). */
#define POOL_STEP ((uint64_t)32 << 20)

/* Measures pools, graphs and the driver's own share of the device of the calling thread's context.
 */
void measure_device(unsigned device, cu_device ordinal);
/* The same, if the calling thread's context is on that device. Returns whether it is. */
bool measure_here(unsigned device);
/* Measures if enough bytes were taken since the last time, on a device with a limit. */
void measure_look(unsigned device, uint64_t bytes);
/* Makes the next measure_look measure: the driver's own share has changed. */
void measure_soon(void);
/* Counts `bytes` before the driver is asked for them. False: the limit has no room, also after
 * everything was measured again. */
bool measure_take(unsigned device, ledger_kind kind, uint64_t bytes);

/* This process is about to make a context there, has or could not, or has ended one. */
void measure_context_begins(unsigned device);
void measure_context_made(unsigned device, bool made);
void measure_context_ended(unsigned device);
/* Is the device's primary context there, whoever made it? */
bool measure_primary_active(cu_device ordinal);
/* One pool's reserve, after something was taken from it. */
void measure_pool(unsigned device, void *pool);
/* Counts what a pool is about to grow by. False: the limit has no room. What was announced is no
 * longer, once the pool is measured after it has grown. */
bool measure_pool_announce(unsigned device, uint64_t bytes);
void measure_pool_grown(unsigned device, void *pool, uint64_t announced_bytes);
/* What the driver says of a pool (CUmemPool_attribute); 0 where it does not. */
enum { POOL_RESERVED = 5, POOL_USED = 7 };
uint64_t measure_pool_figure(void *pool, int which);
/* A pool that was destroyed lives on until its last block is freed: how much of it was used, asked
 * before, and that it ended. */
void measure_pool_ended(void *pool, uint64_t used_bytes);
/* What is about to be freed, if it may be of such a pool (else nothing), and that it was. */
typedef struct pool_block {
  void *pool;
  uint64_t bytes;
} pool_block;
pool_block measure_block(cu_addr addr);
void measure_block_gone(const pool_block *block);
/* A pool that the program made: of a device, or of the host, which is no device's
 * (LEDGER_DEVICES_MAX). Of one that can be exported the blocks must be its own, so it is never
 * spilled. */
void measure_note_pool(unsigned device, void *pool, bool shared);
bool measure_pool_shared(void *pool);
/* Whose it is; `otherwise` where that was not noted. */
unsigned measure_pool_device(void *pool, unsigned otherwise);
/* Bytes this process holds that cannot be spilled: graphs' memory and such pools. */
uint64_t measure_fixed(unsigned device);
/* Gives what this process's pools hold idle back to the driver. */
void measure_trim_pools(unsigned device);

#endif
