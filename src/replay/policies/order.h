/* Order: a set of free blocks kept by (bytes, address), for best fit.
 *
 * Chunks of sorted keys under a directory of each chunk's last key: a lookup is two binary searches
 * over a few cache lines, a change moves at most one chunk. A key is one 128-bit number, so that
 * comparing takes no branch:
 *
 *   [ bytes / 256 : 54 ][ address / 256 : 49 ][ id : 25 ]
 *
 * Policies call it; it guarantees the order of an in-order walk and O(log n + chunk) per call.
 * Sizes and addresses are multiples of 256, as every policy here has them, and addresses are below
 * 2^57; one that is not (a recording can hold anything) is merely ordered wrongly, since the id
 * keeps keys apart. */
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

/* Zero-initialise. */
typedef struct order {
  order_chunk **chunks;
  order_rank *lasts; /* lasts[i] == chunks[i]'s greatest key */
  uint32_t chunk_count, chunk_capacity;
  size_t count;
} order;

/* A place in the set; good until the next put or remove. */
typedef struct order_at {
  uint32_t chunk, slot;
} order_at;

void order_free(order *o);
stow_status order_put(order *o, order_key key);
/* False if it is not there. */
bool order_remove(order *o, order_key key);
/* The first key not less than (bytes, addr); false at the end, with *at at the end. */
bool order_seek(const order *o, order_at *at, uint64_t bytes, uint64_t addr);
/* The first key; false in an empty set. */
bool order_first(const order *o, order_at *at);
bool order_last(const order *o, order_at *at);
/* On to the neighbour; false where there is none, with *at at the end. */
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

/* Removes what is at `at`. */
void order_remove_at(order *o, order_at at);

#endif
