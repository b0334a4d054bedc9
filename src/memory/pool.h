/* Pool: all pages of a device, by tier; the only thing that creates or releases physical memory.
 *
 * Arenas take pages from it and put them back; the background thread fills its reserve, and
 * releases what is cached beyond it once no page was asked for in a while. It guarantees that the
 * bytes of pages that exist never pass the tier's limit.
 *
 * A page put back may still be mapped at an old address (maps > 0, a ticket says when that address
 * is out of use): it can be mapped elsewhere at once, but not released before. */
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
  uint32_t next, prev;   /* in a cache list; guarded by the pool's lock */
  uint32_t slot;         /* where it is at home: first slot in its arena */
  uint32_t ticket;       /* 0, or the point after which its old addresses are out of use */
  uint16_t arena;        /* its arena's id; meaningless while cached */
  _Atomic uint32_t maps; /* addresses it is mapped at, home included */
  uint8_t order, tier;
  bool cached;
} page;

typedef struct pool_tier {
  uint64_t limit, held, cached; /* bytes */
  uint64_t soft;                /* the driver refused past this; <= limit */
  uint64_t peak_held;
  char why[160];              /* the driver's words when it last refused */
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
  _Atomic uint64_t takes; /* pages taken, from the device or the cache: stands still while idle */
} pool;

stow_status pool_open(pool *p, stow_device *device, const uint64_t limits[POOL_TIERS],
                      uint64_t page_bytes, uint64_t page_bytes_max);
/* Releases everything cached. Pages still out are the arenas' to give back before. */
void pool_close(pool *p);

#define POOL_CHUNK_SHIFT 10
static inline page *pool_page(const pool *p, uint32_t index) {
  return &p->chunks[index >> POOL_CHUNK_SHIFT][index & ((1u << POOL_CHUNK_SHIFT) - 1)];
}

/* Bytes that pool_take could still give without anybody giving pages back. */
uint64_t pool_room(pool *p, stow_tier tier);

/* A page of `order` or, where that cannot be had without releasing others, a smaller cached one.
 * STOW_ERR_OUT_OF_MEMORY: no room. STOW_ERR_NOT_READY: there would be room, but only in cached
 * pages too large to use whose old addresses are still in use. */
stow_status pool_take(pool *p, uint32_t *index, stow_tier tier, uint8_t order);
void pool_put(pool *p, uint32_t index);

/* Creates pages ahead until `bytes` are cached, within the limit. `*made` (may be NULL) in bytes.
 */
stow_status pool_fill(pool *p, stow_tier tier, uint64_t bytes, uint8_t order, uint64_t *made);
/* Releases cached pages until at most `keep` bytes are cached. */
stow_status pool_trim(pool *p, stow_tier tier, uint64_t keep, uint64_t *released);

/* STOW_ERR_STATE if more is held than `bytes` even with nothing cached. */
stow_status pool_set_limit(pool *p, stow_tier tier, uint64_t bytes);
/* Forgets that the driver refused: the next take asks it again. */
void pool_ask_again(pool *p);

stow_status pool_check(pool *p);
uint64_t pool_book_bytes(pool *p);

#endif
