/* Fit: chunks in a table, linked to their neighbours. */
#include "replay/policies/fit.h"

#include <stdlib.h>

#include "base/list.h"

stow_status fit_init(fit *f, uint32_t id_count) {
  *f = (fit){.count = 1, .capacity = 256};
  f->chunks = calloc(f->capacity, sizeof *f->chunks);
  f->chunk_of = calloc((size_t)id_count + 1, sizeof *f->chunk_of);
  if (f->chunks != NULL && f->chunk_of != NULL) return STOW_OK;
  fit_free(f);
  return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to replay %u blocks at once", id_count);
}

void fit_free(fit *f) {
  order_free(&f->free);
  free(f->chunks);
  free(f->chunk_of);
  *f = (fit){0};
}

static uint32_t chunk_new(fit *f) {
  uint32_t chunk = f->spare;
  if (chunk != 0) {
    f->spare = f->chunks[chunk].next;
    return chunk;
  }
  if (LIST_ROOM(f->chunks, f->count, f->capacity, 256, "chunks") != STOW_OK) return 0;
  return f->count++;
}

static bool put(fit *f, uint32_t chunk) {
  const fit_chunk *c = &f->chunks[chunk];
  return order_put(&f->free, (order_key){c->bytes, c->addr, chunk}) == STOW_OK;
}

static void take(fit *f, uint32_t chunk) {
  const fit_chunk *c = &f->chunks[chunk];
  order_remove(&f->free, (order_key){c->bytes, c->addr, chunk});
}

/* Merges the upper of two neighbours into the lower; neither is in the order. */
static void merge(fit *f, uint32_t low, uint32_t high) {
  fit_chunk *l = &f->chunks[low], *h = &f->chunks[high];
  l->bytes += h->bytes;
  l->next = h->next;
  if (l->next != 0) f->chunks[l->next].prev = low;
  h->next = f->spare;
  f->spare = high;
}

/* Adds a free chunk to the order, merged with its free neighbours. Returns its number; 0 without
 * host memory. */
static uint32_t settle(fit *f, uint32_t chunk) {
  uint32_t next = f->chunks[chunk].next, prev = f->chunks[chunk].prev;
  if (next != 0 && !f->chunks[next].live) {
    take(f, next);
    merge(f, chunk, next);
  }
  if (prev != 0 && !f->chunks[prev].live) {
    take(f, prev);
    merge(f, prev, chunk);
    chunk = prev;
  }
  return put(f, chunk) ? chunk : 0;
}

uint32_t fit_add(fit *f, uint64_t addr, uint64_t bytes, uint32_t after) {
  uint32_t chunk = chunk_new(f);
  if (chunk == 0) return 0;
  f->chunks[chunk] = (fit_chunk){.addr = addr, .bytes = bytes, .prev = after};
  if (after != 0) f->chunks[after].next = chunk;
  return settle(f, chunk);
}

uint32_t fit_find(fit *f, uint64_t bytes) {
  order_at at;
  if (!order_seek(&f->free, &at, bytes, 0)) return 0;
  uint32_t chunk = order_get(&f->free, at).id;
  order_remove_at(&f->free, at);
  return chunk;
}

bool fit_split(fit *f, uint32_t chunk, uint64_t bytes) {
  uint32_t rest = chunk_new(f);
  if (rest == 0) return false;
  fit_chunk *c = &f->chunks[chunk];
  f->chunks[rest] = (fit_chunk){
      .addr = c->addr + bytes, .bytes = c->bytes - bytes, .prev = chunk, .next = c->next};
  if (c->next != 0) f->chunks[c->next].prev = rest;
  c->next = rest;
  c->bytes = bytes;
  return put(f, rest);
}

void fit_own(fit *f, uint32_t chunk, uint32_t id) {
  f->chunks[chunk].live = true;
  f->chunk_of[id] = chunk;
}

bool fit_release(fit *f, uint32_t id) {
  uint32_t chunk = f->chunk_of[id];
  if (chunk == 0) return true;
  f->chunk_of[id] = 0;
  f->chunks[chunk].live = false;
  return settle(f, chunk) != 0;
}

uint64_t fit_largest(const fit *f) {
  order_at at;
  return order_last(&f->free, &at) ? order_get(&f->free, at).bytes : 0;
}
