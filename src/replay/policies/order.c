/* Order: chunks of sorted keys. */
#include "replay/policies/order.h"

#include <stdlib.h>
#include <string.h>

void order_free(order *o) {
  for (uint32_t i = 0; i < o->chunk_count; i++) free(o->chunks[i]);
  free(o->chunks);
  free(o->lasts);
  *o = (order){0};
}

/* Returns how many of the `count` sorted keys are less than `key`. */
static inline uint32_t count_less(const order_rank *keys, uint32_t count, order_rank key) {
  const order_rank *base = keys;
  while (count > 1) {
    uint32_t half = count / 2;
    base += half & (0 - (uint32_t)(base[half - 1] < key)); /* branch-free */
    count -= half;
  }
  return (uint32_t)(base - keys) + (count == 1 && *base < key);
}

/* Makes room for one more chunk at position `at` of the directory. */
static stow_status directory_open(order *o, uint32_t at) {
  if (o->chunk_count == o->chunk_capacity) {
    uint32_t capacity = o->chunk_capacity == 0 ? 8 : o->chunk_capacity * 2;
    order_chunk **chunks = realloc(o->chunks, capacity * sizeof *chunks);
    if (chunks != NULL) o->chunks = chunks;
    order_rank *lasts = realloc(o->lasts, capacity * sizeof *lasts);
    if (lasts != NULL) o->lasts = lasts;
    if (chunks == NULL || lasts == NULL)
      return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %u chunks of free blocks",
                       capacity);
    o->chunk_capacity = capacity;
  }
  order_chunk *chunk = malloc(sizeof *chunk);
  if (chunk == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a chunk of free blocks");
  chunk->count = 0;
  uint32_t after = o->chunk_count - at;
  memmove(&o->chunks[at + 1], &o->chunks[at], after * sizeof *o->chunks);
  memmove(&o->lasts[at + 1], &o->lasts[at], after * sizeof *o->lasts);
  o->chunks[at] = chunk;
  o->lasts[at] = 0;
  o->chunk_count++;
  return STOW_OK;
}

/* Splits a full chunk in half. */
static stow_status chunk_split(order *o, uint32_t at) {
  STOW_TRY(directory_open(o, at + 1));
  order_chunk *low = o->chunks[at], *high = o->chunks[at + 1];
  high->count = ORDER_CHUNK / 2;
  low->count = ORDER_CHUNK - high->count;
  memcpy(high->keys, &low->keys[low->count], high->count * sizeof *high->keys);
  o->lasts[at + 1] = o->lasts[at];
  o->lasts[at] = low->keys[low->count - 1];
  return STOW_OK;
}

stow_status order_put(order *o, order_key put) {
  if (put.id > ORDER_ID_MAX)
    return stow_fail(STOW_ERR_UNSUPPORTED, "more than %u blocks at once", ORDER_ID_MAX);
  order_rank key = order_pack(put.bytes, put.addr, put.id);
  if (o->chunk_count == 0) STOW_TRY(directory_open(o, 0));
  uint32_t at = count_less(o->lasts, o->chunk_count, key);
  if (at == o->chunk_count) at--; /* greater than all: append to the last chunk */
  if (o->chunks[at]->count == ORDER_CHUNK) {
    STOW_TRY(chunk_split(o, at));
    if (o->lasts[at] < key) at++;
  }
  order_chunk *chunk = o->chunks[at];
  uint32_t slot = count_less(chunk->keys, chunk->count, key), after = chunk->count - slot;
  memmove(&chunk->keys[slot + 1], &chunk->keys[slot], after * sizeof *chunk->keys);
  chunk->keys[slot] = key;
  chunk->count++;
  if (after == 0) o->lasts[at] = key;
  o->count++;
  return STOW_OK;
}

static void directory_close(order *o, uint32_t at) {
  free(o->chunks[at]);
  uint32_t after = --o->chunk_count - at;
  memmove(&o->chunks[at], &o->chunks[at + 1], after * sizeof *o->chunks);
  memmove(&o->lasts[at], &o->lasts[at + 1], after * sizeof *o->lasts);
}

/* Moves the next chunk's keys into a chunk that has become small, so that the directory stays
 * proportional to the set. */
static void chunk_join(order *o, uint32_t at) {
  order_chunk *low = o->chunks[at], *high = o->chunks[at + 1];
  memcpy(&low->keys[low->count], high->keys, high->count * sizeof *high->keys);
  low->count += high->count;
  o->lasts[at] = o->lasts[at + 1];
  directory_close(o, at + 1);
}

void order_remove_at(order *o, order_at at) {
  order_chunk *chunk = o->chunks[at.chunk];
  uint32_t after = --chunk->count - at.slot;
  o->count--;
  memmove(&chunk->keys[at.slot], &chunk->keys[at.slot + 1], after * sizeof *chunk->keys);
  if (chunk->count == 0) {
    directory_close(o, at.chunk);
    return;
  }
  if (after == 0) o->lasts[at.chunk] = chunk->keys[chunk->count - 1];
  if (chunk->count <= ORDER_CHUNK / 4 && at.chunk + 1 < o->chunk_count &&
      chunk->count + o->chunks[at.chunk + 1]->count <= ORDER_CHUNK * 3 / 4)
    chunk_join(o, at.chunk);
}

static bool seek_rank(const order *o, order_at *at, order_rank key) {
  uint32_t chunk = count_less(o->lasts, o->chunk_count, key);
  *at = (order_at){chunk, 0};
  if (chunk == o->chunk_count) return false;
  at->slot = count_less(o->chunks[chunk]->keys, o->chunks[chunk]->count, key);
  return true;
}

bool order_remove(order *o, order_key key) {
  order_at at;
  order_rank wanted = order_pack(key.bytes, key.addr, key.id);
  if (!seek_rank(o, &at, wanted) || o->chunks[at.chunk]->keys[at.slot] != wanted) return false;
  order_remove_at(o, at);
  return true;
}

bool order_seek(const order *o, order_at *at, uint64_t bytes, uint64_t addr) {
  return seek_rank(o, at, order_pack(bytes, addr, 0));
}

bool order_first(const order *o, order_at *at) {
  *at = (order_at){0, 0};
  return o->chunk_count > 0;
}

bool order_last(const order *o, order_at *at) {
  if (o->chunk_count == 0) return false;
  *at = (order_at){o->chunk_count - 1, o->chunks[o->chunk_count - 1]->count - 1};
  return true;
}

bool order_next(const order *o, order_at *at) {
  if (at->chunk >= o->chunk_count) return false;
  if (++at->slot < o->chunks[at->chunk]->count) return true;
  *at = (order_at){at->chunk + 1, 0};
  return at->chunk < o->chunk_count;
}
