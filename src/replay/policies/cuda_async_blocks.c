/* Blocks and pages of the driver's pool: splits, merges, and moves idle pages under a request. */
#include "base/checked.h"
#include "base/driver_cost.h"
#include "base/list.h"
#include "replay/policies/cuda_async.h"

#include <stdlib.h>

/* Addresses never run out: each lane has 2^45 bytes of them. */
#define RANGE_BYTES (UINT64_C(1) << 45)

/* Returns 0 without host memory. */
static uint32_t block_new(async_pool *a) {
  uint32_t block = a->spare;
  if (block != 0) {
    a->spare = a->blocks[block].next;
    return block;
  }
  if (LIST_ROOM(a->blocks, a->block_count, a->block_capacity, 256, "blocks") != STOW_OK) return 0;
  return a->block_count++;
}

/* Returns the order that holds a block, and its key. Waiting blocks of equal size are used in the
 * order of their frees, free ones last merged first; holes are ordered by address. The turn
 * replaces the address in the key. */
static order *order_of(async_pool *a, uint32_t block, order_key *key) {
  const async_block *b = &a->blocks[block];
  async_lane *lane = &a->lanes[b->lane];
  switch (b->state) {
  case ASYNC_WAITING: *key = (order_key){b->bytes, b->turn << 8, block}; return &lane->waiting;
  case ASYNC_FREE: *key = (order_key){b->bytes, ~b->turn << 8, block}; return &lane->free;
  case ASYNC_HOLE: *key = (order_key){0, b->addr, block}; return &lane->holes;
  default: return NULL;
  }
}

bool async_put(async_pool *a, uint32_t block) {
  order_key key;
  order *o = order_of(a, block, &key);
  return o == NULL || order_put(o, key) == STOW_OK;
}

void async_take(async_pool *a, uint32_t block) {
  order_key key;
  order *o = order_of(a, block, &key);
  if (o != NULL) order_remove(o, key);
}

void async_merge(async_pool *a, uint32_t into, uint32_t neighbour, uint8_t state) {
  if (neighbour == 0 || a->blocks[neighbour].state != state) return;
  async_take(a, neighbour);
  async_block *b = &a->blocks[into], *n = &a->blocks[neighbour];
  if (b->prev == neighbour) {
    b->addr = n->addr;
    b->prev = n->prev;
    if (b->prev != 0) a->blocks[b->prev].next = into;
    if (b->prev == 0) a->lanes[b->lane].first = into;
  } else {
    b->next = n->next;
    if (b->next != 0) a->blocks[b->next].prev = into;
  }
  b->bytes += n->bytes;
  n->next = a->spare;
  a->spare = neighbour;
}

uint32_t async_cut(async_pool *a, uint32_t block, uint64_t addr, uint8_t state) {
  uint32_t rest = block_new(a);
  if (rest == 0) return 0;
  async_block *b = &a->blocks[block];
  a->blocks[rest] = (async_block){.addr = addr,
                                  .bytes = b->addr + b->bytes - addr,
                                  .turn = b->turn,
                                  .prev = block,
                                  .next = b->next,
                                  .lane = b->lane,
                                  .state = state};
  if (b->next != 0) a->blocks[b->next].prev = rest;
  b->next = rest;
  b->bytes = addr - b->addr;
  return async_put(a, rest) ? rest : 0;
}

bool async_range_open(async_pool *a, uint32_t lane) {
  uint32_t hole = block_new(a);
  if (hole == 0) return false;
  a->blocks[hole] = (async_block){
      .addr = (lane + 1) * RANGE_BYTES, .bytes = RANGE_BYTES, .lane = lane, .state = ASYNC_HOLE};
  a->lanes[lane].first = hole;
  return async_put(a, hole);
}

/* ---- pages ---- */

/* Returns the whole pages inside a block as a range; empty if there are none. */
static uint64_t whole_pages(const async_block *b, uint64_t *addr) {
  *addr = round_up(b->addr, ASYNC_PAGE);
  uint64_t end = round_down(b->addr + b->bytes, ASYNC_PAGE);
  return end > *addr ? end - *addr : 0;
}

/* Returns the bytes of pages outside [low, high) that no live or waiting block touches. */
static uint64_t idle_bytes(const async_pool *a, uint64_t low, uint64_t high) {
  uint64_t idle = 0, addr;
  for (uint32_t lane = 0; lane < a->options.lane_count; lane++)
    for (uint32_t i = a->lanes[lane].first; i != 0; i = a->blocks[i].next)
      if (a->blocks[i].state == ASYNC_FREE &&
          (a->blocks[i].addr < low || a->blocks[i].addr >= high))
        idle += whole_pages(&a->blocks[i], &addr);
  return idle;
}

static void charge(async_pool *a, driver_call call, uint64_t bytes) {
  a->stats.page_calls += bytes / ASYNC_PAGE;
  a->stats.page_time_ns += bytes / ASYNC_PAGE * driver_cost_ns(call, ASYNC_PAGE);
}

/* Turns the first `bytes` of whole pages of a free block into a hole. */
static bool unmap_pages(async_pool *a, uint32_t block, uint64_t addr, uint64_t bytes) {
  async_take(a, block);
  const async_block *b = &a->blocks[block];
  uint32_t hole = block;
  if (b->addr + b->bytes > addr + bytes && async_cut(a, block, addr + bytes, ASYNC_FREE) == 0)
    return false;
  if (a->blocks[block].addr < addr) {
    hole = async_cut(a, block, addr, ASYNC_HOLE);
    if (hole == 0 || !async_put(a, block)) return false;
    async_take(a, hole);
  }
  a->blocks[hole].state = ASYNC_HOLE;
  async_merge(a, hole, a->blocks[hole].prev, ASYNC_HOLE);
  async_merge(a, hole, a->blocks[hole].next, ASYNC_HOLE);
  charge(a, DRIVER_UNMAP, bytes);
  return async_put(a, hole);
}

/* Takes `bytes` of idle pages outside [low, high), lowest address first. */
static bool gather_idle(async_pool *a, uint64_t bytes, uint64_t low, uint64_t high) {
  for (uint32_t lane = 0; lane < a->options.lane_count && bytes > 0; lane++)
    for (uint32_t i = a->lanes[lane].first, next; i != 0 && bytes > 0; i = next) {
      const async_block *b = &a->blocks[i];
      next = b->next;
      uint64_t addr, whole = whole_pages(b, &addr);
      if (b->state != ASYNC_FREE || whole == 0 || (b->addr >= low && b->addr < high)) continue;
      uint64_t taken = whole < bytes ? whole : bytes;
      bytes -= taken;
      /* The hole may have merged with what follows it: continue after the merged block. */
      if (!unmap_pages(a, i, addr, taken)) return false;
      if (bytes > 0) next = a->lanes[lane].first;
    }
  return true;
}

/* ---- placing ---- */

/* Returns the first block and the length of the run of free blocks and holes around a hole. */
static uint32_t run_around(const async_pool *a, uint32_t hole, uint64_t *bytes) {
  uint32_t first = hole;
  for (uint32_t p = a->blocks[first].prev; p != 0 && a->blocks[p].state >= ASYNC_FREE;
       p = a->blocks[p].prev)
    first = p;
  *bytes = 0;
  for (uint32_t i = first; i != 0 && a->blocks[i].state >= ASYNC_FREE; i = a->blocks[i].next)
    *bytes += a->blocks[i].bytes;
  return first;
}

/* Returns the shortest run that holds `bytes`; the endless one if no other does. */
static uint32_t find_run(const async_pool *a, uint32_t lane, uint64_t bytes) {
  const order *holes = &a->lanes[lane].holes;
  uint32_t best = 0;
  uint64_t best_bytes = UINT64_MAX;
  order_at at;
  for (bool more = order_first(holes, &at); more; more = order_next(holes, &at)) {
    uint64_t run;
    uint32_t first = run_around(a, order_get(holes, at).id, &run);
    if (run >= bytes && run < best_bytes) {
      best = first;
      best_bytes = run;
    }
  }
  return best;
}

/* Returns the bytes of pages missing under the first `bytes` of the run that begins with
 * `first`. */
static uint64_t missing_bytes(const async_pool *a, uint32_t first, uint64_t bytes) {
  uint64_t end = a->blocks[first].addr + bytes, missing = 0;
  for (uint32_t i = first; i != 0 && a->blocks[i].addr < end; i = a->blocks[i].next) {
    const async_block *b = &a->blocks[i];
    if (b->state != ASYNC_HOLE) continue;
    uint64_t upto = b->addr + b->bytes < end ? b->addr + b->bytes : end;
    missing += round_up(upto, ASYNC_PAGE) - b->addr;
  }
  return missing;
}

/* Makes the first `bytes` of a run one block, fully backed by pages. */
static bool cover(async_pool *a, uint32_t first, uint64_t bytes) {
  uint64_t end = a->blocks[first].addr + bytes;
  async_take(a, first);
  for (;;) {
    async_block *b = &a->blocks[first];
    uint64_t mapped = round_up(end, ASYNC_PAGE);
    if (b->state == ASYNC_HOLE && b->addr + b->bytes > mapped) /* the rest stays a hole */
      if (async_cut(a, first, mapped, ASYNC_HOLE) == 0) return false;
    b = &a->blocks[first];
    b->state = ASYNC_LIVE;
    if (b->addr + b->bytes >= end) break;
    uint32_t next = b->next;
    uint8_t state = a->blocks[next].state;
    if (state == ASYNC_HOLE && a->blocks[next].addr + a->blocks[next].bytes > mapped) {
      async_take(a, next);
      if (async_cut(a, next, mapped, ASYNC_HOLE) == 0 || !async_put(a, next)) return false;
    }
    async_merge(a, first, next, state);
  }
  if (a->blocks[first].addr + a->blocks[first].bytes == end) return true;
  uint32_t rest = async_cut(a, first, end, ASYNC_FREE);
  if (rest == 0) return false;
  async_take(a, rest);
  a->blocks[rest].turn = ++a->turn;
  async_merge(a, rest, a->blocks[rest].next, ASYNC_FREE);
  return async_put(a, rest);
}

policy_answer async_map(async_pool *a, uint32_t lane, uint64_t bytes, uint32_t *block) {
  uint32_t first = find_run(a, lane, bytes);
  if (first == 0) return POLICY_FULL;
  uint64_t low = a->blocks[first].addr, high = low + bytes;
  uint64_t missing = missing_bytes(a, first, bytes), idle = idle_bytes(a, low, high);
  uint64_t moved = idle < missing ? idle : missing, made = missing - moved;
  uint64_t total = a->stats.reserved_bytes + made;
  if (total > a->options.limit_bytes) return POLICY_FULL;
  if (total > a->stats.same_down_to_bytes) a->stats.same_down_to_bytes = total;
  uint32_t before = a->blocks[first].prev; /* in use, so it stays while holes merge */
  if (!gather_idle(a, moved, low, high)) return POLICY_BROKEN;
  first = before != 0 ? a->blocks[before].next : a->lanes[lane].first;
  if (!cover(a, first, bytes)) return POLICY_BROKEN;
  charge(a, DRIVER_CREATE, made);
  charge(a, DRIVER_MAP, missing);
  charge(a, DRIVER_ACCESS, missing);
  a->stats.reserved_bytes = total;
  *block = first;
  return POLICY_DONE;
}
