/* Fit: best fit with coalescing over regions, used by bfc.
 *
 * Chunks (number 0: none) tile each region. Free ones are kept in an order, and a freed chunk
 * merges with its free neighbours at once. The owner decides how sizes round, when to split and how
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
/* Adds a free chunk at [addr, addr + bytes). It joins the region that ends with chunk `after` (0:
 * starts a new region) and merges with that chunk if free. Returns its number; 0 without host
 * memory. */
uint32_t fit_add(fit *f, uint64_t addr, uint64_t bytes, uint32_t after);
/* Takes the smallest free chunk of at least `bytes`, lowest address first; 0 if none. */
uint32_t fit_find(fit *f, uint64_t bytes);
/* Shrinks a found chunk to `bytes`; the rest becomes free. */
bool fit_split(fit *f, uint32_t chunk, uint64_t bytes);
/* Assign a found chunk to `id`, and free it. Releasing an unassigned ID does nothing. */
void fit_own(fit *f, uint32_t chunk, uint32_t id);
bool fit_release(fit *f, uint32_t id);
/* Returns the size of the largest free chunk. */
uint64_t fit_largest(const fit *f);

#endif
