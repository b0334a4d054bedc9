/* Pool: pages by tier (pool.h states the guarantees).
 *
 * Costs measured on an H200 shaped it. Creating a page takes 11 us at any size up to 64 MiB,
 * releasing one 11 us (2 MiB) to 54 us (64 MiB): so a page is created once and kept. Creating a
 * page while a stream is busy takes 7.5 ms: so near the limit, a cached page is used first even if
 * it is smaller than requested. */
#include "memory/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/checked.h"

#define CHUNK_PAGES (1u << POOL_CHUNK_SHIFT)
#define CHUNKS_MAX  4096u

stow_status pool_open(pool *p, stow_device *device, const uint64_t limits[POOL_TIERS],
                      uint64_t page_bytes, uint64_t page_bytes_max) {
  ASSERT(device != NULL);
  ASSERT(page_bytes != 0 && (page_bytes & (page_bytes - 1)) == 0);
  memset(p, 0, sizeof *p);
  p->device = device;
  p->page_bytes = page_bytes;
  lock_init(&p->lock, LOCK_POOL);
  while (p->order_max + 1 < POOL_ORDERS && (page_bytes << (p->order_max + 1)) <= page_bytes_max)
    p->order_max++;
  for (int t = 0; t < POOL_TIERS; t++) {
    p->tier[t].limit = p->tier[t].soft = limits[t] / page_bytes * page_bytes;
    for (int o = 0; o < POOL_ORDERS; o++) p->tier[t].head[o] = PAGE_NONE;
  }
  p->spare = PAGE_NONE;
  p->chunks = calloc(CHUNKS_MAX, sizeof *p->chunks);
  if (!p->chunks) return stow_fail(STOW_ERR_HOST_MEMORY, "pool: no memory for its page table");
  return STOW_OK;
}

/* ---- indices; locked ---- */

static stow_status index_new(pool *p, uint32_t *index) {
  ASSERT(lock_held(&p->lock));
  if (p->spare != PAGE_NONE) {
    *index = p->spare;
    p->spare = pool_page(p, *index)->next;
    return STOW_OK;
  }
  if (p->page_count == p->chunk_count * CHUNK_PAGES) {
    if (p->chunk_count == CHUNKS_MAX)
      return stow_fail(STOW_ERR_OVERFLOW, "pool: more than %u pages", CHUNKS_MAX * CHUNK_PAGES);
    page *chunk = calloc(CHUNK_PAGES, sizeof *chunk);
    if (!chunk) return stow_fail(STOW_ERR_HOST_MEMORY, "pool: no memory for its page table");
    p->chunks[p->chunk_count++] = chunk;
  }
  *index = p->page_count++;
  return STOW_OK;
}

static void index_drop(pool *p, uint32_t index) {
  ASSERT(lock_held(&p->lock));
  ASSERT(index < p->page_count);
  page *g = pool_page(p, index);
  memset(g, 0, sizeof *g);
  g->next = p->spare;
  p->spare = index;
}

/* ---- cache lists; locked. Pages whose old addresses are in use go last, so the head can be
 * released. ---- */

static void cache_add(pool *p, uint32_t index) {
  ASSERT(lock_held(&p->lock));
  ASSERT(index < p->page_count);
  page *g = pool_page(p, index);
  pool_tier *t = &p->tier[g->tier];
  ASSERT_VALUES(!g->cached && g->handle != 0, "pool: put back twice", index, g->maps);
  g->cached = true;
  g->prev = PAGE_NONE;
  g->next = t->head[g->order];
  if (g->next != PAGE_NONE) pool_page(p, g->next)->prev = index;
  t->head[g->order] = index;
  t->cached += g->bytes;
}

static void cache_remove(pool *p, uint32_t index) {
  ASSERT(lock_held(&p->lock));
  ASSERT(index < p->page_count);
  page *g = pool_page(p, index);
  pool_tier *t = &p->tier[g->tier];
  ASSERT_VALUES(g->cached && t->cached >= g->bytes, "pool: taken, not cached", index, t->cached);
  if (g->prev != PAGE_NONE)
    pool_page(p, g->prev)->next = g->next;
  else
    t->head[g->order] = g->next;
  if (g->next != PAGE_NONE) pool_page(p, g->next)->prev = g->prev;
  g->cached = false;
  t->cached -= g->bytes;
}

/* Returns a cached page that is not mapped, of the largest order; PAGE_NONE if there is none. */
static uint32_t cache_idle(pool *p, stow_tier tier) {
  ASSERT(lock_held(&p->lock));
  ASSERT((unsigned)tier < POOL_TIERS);
  for (int o = p->order_max; o >= 0; o--)
    for (uint32_t i = p->tier[tier].head[o]; i != PAGE_NONE; i = pool_page(p, i)->next)
      if (pool_page(p, i)->maps == 0) return i;
  return PAGE_NONE;
}

/* ---- creating and releasing: unlocked during the driver call ---- */

static stow_status create(pool *p, uint32_t *index, stow_tier tier, uint8_t order) {
  ASSERT(lock_held(&p->lock));
  ASSERT((unsigned)tier < POOL_TIERS);
  ASSERT(order <= p->order_max);
  uint64_t bytes = p->page_bytes << order;
  pool_tier *t = &p->tier[tier];
  uint32_t i = PAGE_NONE;
  STOW_TRY(index_new(p, &i));
  t->held += bytes;
  lock_release(&p->lock);
  stow_page handle = 0;
  stow_status status = device_page_create(p->device, &handle, bytes, tier);
  lock_acquire(&p->lock);
  if (status != STOW_OK) {
    t->held -= bytes;
    index_drop(p, i);
    if (status == STOW_ERR_OUT_OF_MEMORY) {
      if (t->soft > t->held) t->soft = t->held;
      snprintf(t->why, sizeof t->why, "%s", stow_status_message());
    }
    return status;
  }
  atomic_fetch_add_explicit(&p->creates, 1, memory_order_relaxed);
  ASSERT_VALUES(t->held <= t->limit && t->cached <= t->held, "pool: past its limit", t->held,
                t->limit);
  if (t->held > t->peak_held) t->peak_held = t->held;
  page *g = pool_page(p, i);
  memset(g, 0, sizeof *g);
  g->handle = handle;
  g->bytes = bytes;
  g->next = g->prev = PAGE_NONE;
  g->order = order;
  g->tier = (uint8_t)tier;
  *index = i;
  return STOW_OK;
}

static stow_status release(pool *p, uint32_t index) {
  ASSERT(lock_held(&p->lock));
  ASSERT(pool_page(p, index)->maps == 0);
  page *g = pool_page(p, index);
  pool_tier *t = &p->tier[g->tier];
  cache_remove(p, index);
  lock_release(&p->lock);
  stow_status status = device_page_release(p->device, g->handle);
  lock_acquire(&p->lock);
  if (status != STOW_OK) {
    cache_add(p, index);
    return status;
  }
  atomic_fetch_add_explicit(&p->releases, 1, memory_order_relaxed);
  t->held -= g->bytes;
  if (t->soft < t->limit) t->soft += g->bytes;
  index_drop(p, index);
  return STOW_OK;
}

static uint64_t room(const pool_tier *t) {
  uint64_t cap = t->soft < t->limit ? t->soft : t->limit;
  return (cap > t->held ? cap - t->held : 0) + t->cached;
}

uint64_t pool_room(pool *p, stow_tier tier) {
  ASSERT((unsigned)tier < POOL_TIERS);
  lock_acquire(&p->lock);
  uint64_t bytes = room(&p->tier[tier]);
  lock_release(&p->lock);
  return bytes;
}

static bool can_create(const pool *p, stow_tier tier, uint8_t order) {
  ASSERT(lock_held(&p->lock));
  const pool_tier *t = &p->tier[tier];
  uint64_t cap = t->soft < t->limit ? t->soft : t->limit;
  return t->held + (p->page_bytes << order) <= cap;
}

static stow_status take_locked(pool *p, uint32_t *index, stow_tier tier, uint8_t order) {
  ASSERT(lock_held(&p->lock));
  ASSERT(order <= p->order_max);
  pool_tier *t = &p->tier[tier];
  for (;;) {
    if (t->head[order] != PAGE_NONE) {
      *index = t->head[order];
      cache_remove(p, *index);
      return STOW_OK;
    }
    if (can_create(p, tier, order)) {
      stow_status status = create(p, index, tier, order);
      if (status != STOW_ERR_OUT_OF_MEMORY) return status;
      continue; /* the driver is full below the limit: soft is lower now */
    }
    for (int o = order - 1; o >= 0; o--) {
      if (t->head[o] == PAGE_NONE) continue;
      *index = t->head[o];
      cache_remove(p, *index);
      return STOW_OK;
    }
    for (int o = order - 1; o >= 0; o--)
      if (can_create(p, tier, (uint8_t)o)) {
        order = (uint8_t)o;
        break;
      }
    if (can_create(p, tier, order)) continue;
    /* Only larger pages are cached: release one of them. */
    uint32_t idle = cache_idle(p, tier);
    if (idle == PAGE_NONE) {
      if (t->cached > 0) return STOW_ERR_NOT_READY;
      if (t->soft < t->limit) return stow_fail(STOW_ERR_OUT_OF_MEMORY, "%s", t->why);
      return stow_fail(STOW_ERR_OUT_OF_MEMORY, "pool: the %s limit of %llu bytes is reached",
                       stow_tier_name(tier), (unsigned long long)t->limit);
    }
    STOW_TRY(release(p, idle));
  }
}

stow_status pool_get(pool *p, uint32_t *index, stow_tier tier, uint8_t order) {
  ASSERT(index != NULL);
  ASSERT((unsigned)tier < POOL_TIERS);
  lock_acquire(&p->lock);
  stow_status status = take_locked(p, index, tier, order > p->order_max ? p->order_max : order);
  atomic_fetch_add_explicit(&p->takes, 1, memory_order_relaxed);
  lock_release(&p->lock);
  return status;
}

void pool_put(pool *p, uint32_t index) {
  lock_acquire(&p->lock);
  cache_add(p, index);
  lock_release(&p->lock);
}

stow_status pool_fill(pool *p, stow_tier tier, uint64_t bytes, uint8_t order, uint64_t *made) {
  ASSERT((unsigned)tier < POOL_TIERS);
  stow_status status = STOW_OK;
  uint64_t total = 0;
  if (order > p->order_max) order = p->order_max;
  lock_acquire(&p->lock);
  while (p->tier[tier].cached + (p->page_bytes << order) <= bytes && can_create(p, tier, order)) {
    uint32_t index;
    status = create(p, &index, tier, order);
    if (status != STOW_OK) break;
    cache_add(p, index);
    total += p->page_bytes << order;
  }
  lock_release(&p->lock);
  if (made) *made = total;
  return status;
}

stow_status pool_trim(pool *p, stow_tier tier, uint64_t keep, uint64_t *released) {
  ASSERT((unsigned)tier < POOL_TIERS);
  stow_status status = STOW_OK;
  uint64_t total = 0;
  lock_acquire(&p->lock);
  while (p->tier[tier].cached > keep) {
    uint32_t index = cache_idle(p, tier);
    if (index == PAGE_NONE) break;
    uint64_t bytes = pool_page(p, index)->bytes;
    status = release(p, index);
    if (status != STOW_OK) break;
    total += bytes;
  }
  lock_release(&p->lock);
  if (released) *released += total;
  return status;
}

stow_status pool_set_limit(pool *p, stow_tier tier, uint64_t bytes) {
  ASSERT((unsigned)tier < POOL_TIERS);
  bytes = bytes / p->page_bytes * p->page_bytes;
  stow_status status = STOW_OK;
  lock_acquire(&p->lock);
  pool_tier *t = &p->tier[tier];
  while (t->held > bytes) {
    uint32_t index = cache_idle(p, tier);
    if (index == PAGE_NONE) {
      status = stow_fail(STOW_ERR_STATE,
                         "limit of %llu bytes for %s: live allocations hold %llu; free some first",
                         (unsigned long long)bytes, stow_tier_name(tier),
                         (unsigned long long)(t->held - t->cached));
      break;
    }
    status = release(p, index);
    if (status != STOW_OK) break;
  }
  if (status == STOW_OK) t->limit = t->soft = bytes;
  lock_release(&p->lock);
  return status;
}

void pool_retry_driver(pool *p) {
  lock_acquire(&p->lock);
  for (int t = 0; t < POOL_TIERS; t++) p->tier[t].soft = p->tier[t].limit;
  lock_release(&p->lock);
}

void pool_close(pool *p) {
  for (int t = 0; t < POOL_TIERS; t++)
    if (pool_trim(p, (stow_tier)t, 0, NULL) != STOW_OK) pool_trim(p, (stow_tier)t, 0, NULL);
  for (uint32_t i = 0; i < p->chunk_count; i++) free(p->chunks[i]);
  free(p->chunks);
  p->chunks = NULL;
}

stow_status pool_check(pool *p) {
  stow_status status = STOW_OK;
  lock_acquire(&p->lock);
  for (int t = 0; t < POOL_TIERS && status == STOW_OK; t++) {
    uint64_t cached = 0;
    for (int o = 0; o < POOL_ORDERS; o++)
      for (uint32_t i = p->tier[t].head[o]; i != PAGE_NONE; i = pool_page(p, i)->next) {
        const page *g = pool_page(p, i);
        if (!g->cached || g->order != o || g->tier != t || g->bytes != p->page_bytes << o)
          status = stow_fail(STOW_ERR_STATE, "pool: page %u is in the wrong list", i);
        cached += g->bytes;
      }
    if (status == STOW_OK && cached != p->tier[t].cached)
      status = stow_fail(STOW_ERR_STATE, "pool: %llu bytes cached, counted %llu",
                         (unsigned long long)cached, (unsigned long long)p->tier[t].cached);
    if (status == STOW_OK && p->tier[t].held > p->tier[t].limit)
      status = stow_fail(STOW_ERR_STATE, "pool: %llu bytes of %s held, limit %llu",
                         (unsigned long long)p->tier[t].held, stow_tier_name((stow_tier)t),
                         (unsigned long long)p->tier[t].limit);
  }
  lock_release(&p->lock);
  return status;
}

uint64_t pool_metadata_bytes(pool *p) {
  lock_acquire(&p->lock);
  uint64_t bytes = (uint64_t)p->page_count * sizeof(page) + p->chunk_count * sizeof(page *);
  lock_release(&p->lock);
  return bytes;
}
