/* Page fit: whether a request may use the pages that already back a place. A request uses no page
 * of more than PAGE_OVER times its own size, so a small block never pins a large page (backing.c
 * has the measurements). */
#include "memory/arena.h"

#include "base/assert.h"

uint8_t order_behind(const arena *a, uint32_t at, uint32_t units) {
  ASSERT(units > 0);
  uint8_t most = 0;
  for (uint32_t slot = arena_slot(a, at); slot <= arena_slot(a, at + units - 1);) {
    uint32_t p = a->slots[slot];
    if (p == 0) {
      slot++;
      continue;
    }
    const page *g = pool_page(a->pool, p - 1);
    if (g->order > most) most = g->order;
    slot = g->slot + (1u << g->order);
  }
  return most;
}

bool pages_fit(const arena *a, uint32_t at, uint32_t units) {
  ASSERT(units > 0);
  uint64_t most = PAGE_OVER * ((uint64_t)units << UNIT_SHIFT);
  if (most >= order_bytes(a, a->pool->order_max)) return true;
  uint8_t o = order_behind(a, at, units);
  return o == 0 || order_bytes(a, o) <= most;
}
