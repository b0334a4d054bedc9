/* Order: a set of free blocks sorted by (bytes, address), for best fit.
 *
 * Chunks of sorted keys under a directory of each chunk's last key: a lookup is two binary searches
 * over a few cache lines, a change moves at most one chunk. A key is one 128-bit number, so
 * comparing needs no branch:
 *
 *   [ bytes / 256 : 54 ][ address / 256 : 49 ][ id : 25 ]
 *
 * Policies call it. Guarantees sorted iteration and O(log n + chunk) per call. Sizes and addresses
 * must be multiples of 256, as in every policy here, and addresses below 2^57. Others (a recording
 * can contain anything) are merely sorted wrongly: the id keeps keys distinct. */
#ifndef REPLAY_POLICIES_ORDER_H
#define REPLAY_POLICIES_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define ORDER_CHUNK  64
#define ORDER_ID_MAX ((UINT32_C(1) << 25) - 1)

typedef unsigned __int128 order_rank;

typedef struct order_key {
  uint64_t bytes, addr;
  uint32_t id; /* at most ORDER_ID_MAX */
} order_key;

typedef struct order_chunk {
  order_rank keys[ORDER_CHUNK];
  uint32_t count; /* never 0 */
} order_chunk;

/* Initialize with zeros. */
typedef struct order {
  order_chunk **chunks;
  order_rank *lasts; /* lasts[i] == chunks[i]'s greatest key */
  uint32_t chunk_count, chunk_capacity;
  size_t count;
} order;

/* A position in the set; valid until the next put or remove. */
typedef struct order_at {
  uint32_t chunk, slot;
} order_at;

void order_free(order *o);
stow_status order_put(order *o, order_key key);
/* Removes a key. Returns false if it is not in the set. */
bool order_remove(order *o, order_key key);
/* Finds the first key not less than (bytes, addr); false at the end, with *at at the end. */
bool order_seek(const order *o, order_at *at, uint64_t bytes, uint64_t addr);
/* Finds the first key; false if the set is empty. */
bool order_first(const order *o, order_at *at);
bool order_last(const order *o, order_at *at);
/* Advances to the neighbour; false if there is none, with *at at the end. */
bool order_next(const order *o, order_at *at);

static inline order_rank order_pack(uint64_t bytes, uint64_t addr, uint32_t id) {
  return (order_rank)(bytes >> 8) << 74 |
         (order_rank)(addr >> 8 & ((UINT64_C(1) << 49) - 1)) << 25 | id;
}

static inline order_key order_get(const order *o, order_at at) {
  order_rank key = o->chunks[at.chunk]->keys[at.slot];
  return (order_key){.bytes = (uint64_t)(key >> 74) << 8,
                     .addr = (uint64_t)(key >> 25 & ((UINT64_C(1) << 49) - 1)) << 8,
                     .id = (uint32_t)key & ORDER_ID_MAX};
}

/* Removes the key at `at`. */
void order_remove_at(order *o, order_at at);

#endif
