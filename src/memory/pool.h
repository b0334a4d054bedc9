/* Pool: all pages of a device, by tier. Only the pool creates or releases physical memory.
 *
 * Arenas take pages and put them back. The background thread fills the reserve, and releases cached
 * pages beyond it when no page was requested for a while. The pool guarantees that the bytes of all
 * pages never exceed the tier's limit.
 *
 * A page that was put back may still be mapped at an old address (maps > 0; a ticket shows when
 * that address is no longer in use). It can be mapped elsewhere at once, but released only after
 * that. */
#ifndef MEMORY_POOL_H
#define MEMORY_POOL_H

#include "base/lock.h"
#include "device/device.h"

#define POOL_TIERS  2 /* vram, host: the disk tier has no pages */
#define POOL_ORDERS 8 /* page_bytes << order */
#define PAGE_NONE   UINT32_MAX

typedef struct page {
  stow_page handle;
  uint64_t bytes;
  uint32_t next, prev;   /* links of a cache list; guarded by the pool's lock */
  uint32_t slot;         /* its first slot in its arena */
  uint32_t ticket;       /* 0, or the point after which its old addresses are unused */
  uint16_t arena;        /* ID of its arena; undefined while cached */
  _Atomic uint32_t maps; /* number of addresses it is mapped at */
  uint8_t order, tier;
  bool cached;
} page;

typedef struct pool_tier {
  uint64_t limit, held, cached; /* bytes */
  uint64_t soft;                /* the driver refused to go beyond this; <= limit */
  uint64_t peak_held;
  char why[160];              /* the driver's message for its last refusal */
  uint32_t head[POOL_ORDERS]; /* cached pages by order */
} pool_tier;

typedef struct pool {
  stow_device *device;
  uint64_t page_bytes;
  uint8_t order_max;
  lock lock;
  pool_tier tier[POOL_TIERS];              /* guarded by lock */
  page **chunks;                           /* pages by index; chunks never move */
  uint32_t page_count, chunk_count, spare; /* guarded by lock */
  _Atomic uint64_t creates, releases, maps, unmaps, accesses;
  _Atomic uint64_t takes; /* pages taken, from the device or the cache */
} pool;

stow_status pool_open(pool *p, stow_device *device, const uint64_t limits[POOL_TIERS],
                      uint64_t page_bytes, uint64_t page_bytes_max);
/* Releases everything cached. The arenas must put back their pages first. */
void pool_close(pool *p);

#define POOL_CHUNK_SHIFT 10
static inline page *pool_page(const pool *p, uint32_t index) {
  return &p->chunks[index >> POOL_CHUNK_SHIFT][index & ((1u << POOL_CHUNK_SHIFT) - 1)];
}

/* Returns the bytes that pool_get can still provide if no pages are put back. */
uint64_t pool_room(pool *p, stow_tier tier);

/* Takes a page of `order`. Near the limit, takes a smaller cached page rather than release others.
 * STOW_ERR_OUT_OF_MEMORY: the limit is reached. STOW_ERR_NOT_READY: there is capacity, but only in
 * larger cached pages whose old addresses are still in use. */
stow_status pool_get(pool *p, uint32_t *index, stow_tier tier, uint8_t order);
void pool_put(pool *p, uint32_t index);

/* Creates pages until `bytes` are cached, within the limit. Stores the created bytes in `*made`
 * (may be NULL).
 */
stow_status pool_fill(pool *p, stow_tier tier, uint64_t bytes, uint8_t order, uint64_t *made);
/* Releases cached pages until at most `keep` bytes are cached. */
stow_status pool_trim(pool *p, stow_tier tier, uint64_t keep, uint64_t *released);

/* Sets the limit. STOW_ERR_STATE if more than `bytes` is held even with an empty cache. */
stow_status pool_set_limit(pool *p, stow_tier tier, uint64_t bytes);
/* Forgets that the driver refused, so that the next pool_get calls it again. */
void pool_retry_driver(pool *p);

stow_status pool_check(pool *p);
uint64_t pool_metadata_bytes(pool *p);

#endif
