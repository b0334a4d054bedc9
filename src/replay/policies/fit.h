/* Fit: best fit with coalescing over regions, the machine inside bfc and cuda_async.
 *
 * Chunks (number 0: none) tile each region; free ones stand in an order, and a freed one merges
 * with its free neighbours at once. Who owns it decides how sizes round, when to split and how
 * regions grow. */
#ifndef REPLAY_POLICIES_FIT_H
#define REPLAY_POLICIES_FIT_H

#include "replay/policies/order.h"

typedef struct fit_chunk {
  uint64_t addr, bytes;
  uint32_t prev, next; /* neighbours by address in the same region */
  bool live;
} fit_chunk;

typedef struct fit {
  order free;
  fit_chunk *chunks;
  size_t capacity;
  uint32_t count, spare;
  uint32_t *chunk_of; /* by id; 0: none */
} fit;

stow_status fit_init(fit *f, uint32_t id_count);
void fit_free(fit *f);
/* A new free chunk at [addr, addr + bytes); it joins the region that ends with chunk `after`
 * (0: a region of its own) and merges with it if that is free. Its number, 0: no host memory. */
uint32_t fit_add(fit *f, uint64_t addr, uint64_t bytes, uint32_t after);
/* The smallest free chunk of at least `bytes`, lowest address first, taken out; 0: none. */
uint32_t fit_find(fit *f, uint64_t bytes);
/* Cuts a chunk that was found down to `bytes`; the rest is free. */
bool fit_split(fit *f, uint32_t chunk, uint64_t bytes);
/* Gives a found chunk to `id`, and takes it back. Releasing what nobody has is nothing. */
void fit_own(fit *f, uint32_t chunk, uint32_t id);
bool fit_release(fit *f, uint32_t id);
/* Bytes of the largest free chunk. */
uint64_t fit_largest(const fit *f);

#endif
