/* Census: one scan over the lifetimes, one over the addresses. */
#include "replay/census.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/list.h"

/* A smaller free piece is rounding of a block, not a hole (PyTorch rounds to 512 B). */
#define HOLE_MIN 512

group_by census_default_group(const timeline *t) {
  bool tags = false;
  for (uint32_t i = 0; i < t->lifetime_count; i++) {
    const lifetime *l = &t->lifetimes[i];
    if (l->stack_id != 0 && t->source->stacks[l->stack_id - 1].count > 0) return GROUP_SITE;
    tags = tags || l->tag_id != 0;
  }
  return tags ? GROUP_TAG : GROUP_SIZE;
}

static uint32_t key_of(const lifetime *l, const site_table *sites, group_by by) {
  switch (by) {
  case GROUP_SITE: return sites->of_stack[l->stack_id];
  case GROUP_TAG: return l->tag_id;
  case GROUP_SIZE: return group_size_class(l->bytes);
  }
  return 0;
}

static int by_bytes(const void *a, const void *b) {
  const holder *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  return x->key < y->key ? -1 : x->key > y->key;
}

static stow_status count_holders(census *c, const timeline *t, const site_table *sites) {
  map index = {0};
  stow_status status = STOW_OK;
  size_t capacity = 0;
  for (uint32_t i = 0; i < t->lifetime_count && status == STOW_OK; i++) {
    const lifetime *l = &t->lifetimes[i];
    if (!lifetime_live(l, c->tick)) continue;
    uint32_t key = key_of(l, sites, c->by);
    uint64_t *have = map_get(&index, key);
    uint32_t at = have != NULL ? (uint32_t)*have : c->holder_count;
    if (have == NULL) {
      status = LIST_ROOM(c->holders, c->holder_count, capacity, 64, "holders");
      if (status != STOW_OK) break;
      c->holders[c->holder_count++] = (holder){.key = key};
      status = map_put(&index, key, at);
    }
    c->holders[at].bytes += l->bytes;
    c->holders[at].count++;
    c->live_bytes += l->bytes;
    c->live_count++;
  }
  map_free(&index);
  if (status == STOW_OK && c->holder_count > 1)
    qsort(c->holders, c->holder_count, sizeof *c->holders, by_bytes);
  return status;
}

typedef struct range {
  uint64_t addr, end;
} range;

static int by_addr(const void *a, const void *b) {
  const range *x = a, *y = b;
  return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static void hole(census *c, uint64_t from, uint64_t to) {
  if (to <= from || to - from < HOLE_MIN) return;
  c->hole_bytes += to - from;
  c->hole_count++;
  if (to - from > c->largest_hole_bytes) c->largest_hole_bytes = to - from;
}

/* Walks the extents reserved at the tick, merging adjacent ones of a range, and the live ranges in
 * them. A segment never merges with the next, even if they touch; mapped pages do. */
static void find_holes(census *c, const range *live, size_t live_count, const extent **held,
                       size_t held_count) {
  size_t l = 0;
  uint64_t at = 0, end = 0;
  for (size_t i = 0; i < held_count; i++) {
    const extent *e = held[i];
    bool joins = i > 0 && e->mapped && held[i - 1]->mapped && e->addr == end;
    if (!joins) {
      hole(c, at, end);
      at = e->addr;
    }
    end = e->addr + e->bytes;
    c->reserved_bytes += e->bytes;
    for (; l < live_count && live[l].addr < end; l++) {
      hole(c, at, live[l].addr);
      if (live[l].end > at) at = live[l].end;
    }
  }
  hole(c, at, end);
}

static int by_extent_addr(const void *a, const void *b) {
  const extent *x = *(const extent *const *)a, *y = *(const extent *const *)b;
  return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static stow_status measure_holes(census *c, const timeline *t) {
  range *live = malloc((c->live_count + 1) * sizeof *live);
  const extent **held = malloc((t->extent_count + 1u) * sizeof(*held));
  stow_status status = STOW_OK;
  if (live == NULL || held == NULL) {
    status = stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to sort %llu allocations",
                       (unsigned long long)c->live_count);
    goto done;
  }
  size_t live_count = 0, held_count = 0;
  for (uint32_t i = 0; i < t->lifetime_count; i++) {
    const lifetime *l = &t->lifetimes[i];
    if (!lifetime_live(l, c->tick)) continue;
    uint64_t end = l->addr > UINT64_MAX - l->bytes ? UINT64_MAX : l->addr + l->bytes;
    live[live_count++] = (range){l->addr, end};
  }
  for (uint32_t i = 0; i < t->extent_count; i++)
    if (extent_live(&t->extents[i], c->tick)) held[held_count++] = &t->extents[i];
  qsort(live, live_count, sizeof *live, by_addr);
  qsort(held, held_count, sizeof *held, by_extent_addr);
  find_holes(c, live, live_count, held, held_count);
done:
  free(live);
  free(held);
  return status;
}

stow_status census_take(census *c, const timeline *t, const site_table *sites, group_by by,
                        uint32_t tick) {
  *c = (census){.tick = tick, .by = by};
  STOW_TRY(count_holders(c, t, sites));
  return t->reserved_known ? measure_holes(c, t) : STOW_OK;
}

void census_free(census *c) {
  free(c->holders);
  *c = (census){0};
}

const char *census_label(char *text, size_t size, const timeline *t, const site_table *sites,
                         group_by by, uint32_t key) {
  switch (by) {
  case GROUP_SITE:
    return site_text(text, size, t->source, key < sites->count ? sites->frames[key] : 0);
  case GROUP_TAG:
    snprintf(text, size, "%s", key != 0 ? recording_text(t->source, key) : "no tag");
    return text;
  case GROUP_SIZE: snprintf(text, size, "%s", group_size_name(key)); return text;
  }
  return "";
}
