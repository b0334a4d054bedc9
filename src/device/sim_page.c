/* Pages of the simulated device: create, map, grant, unmap, release.
 *
 * A handle is an entry's index and generation, so a stale handle is detected. Every call costs the
 * number of slots it covers; nothing is searched. */
#include "base/assert.h"
#include "device/sim_state.h"

#include <stdlib.h>
#include <string.h>

#include <stowage/size.h>

/* ---- the table of pages ---- */

static stow_status page_grow(sim *s) {
  ASSERT(lock_held(&s->lock));
  uint32_t capacity = s->page_capacity == 0 ? 64 : s->page_capacity * 2;
  sim_page *pages = capacity > SIM_SLOT_PAGE ? NULL : realloc(s->pages, capacity * sizeof *pages);
  if (pages == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to track %u pages; use larger ones",
                     s->page_count + 1);
  memset(pages + s->page_capacity, 0, (capacity - s->page_capacity) * sizeof *pages);
  s->pages = pages;
  s->page_capacity = capacity;
  return STOW_OK;
}

stow_status sim_page_add(sim *s, uint32_t *index, uint64_t bytes, stow_tier tier) {
  ASSERT(lock_held(&s->lock));
  ASSERT(index != NULL);
  if (s->page_free == 0 && s->page_count == s->page_capacity) STOW_TRY(page_grow(s));
  STOW_TRY(sim_charge(s, tier, bytes));
  uint64_t offset;
  stow_status status = sim_memory_offset(s, &offset, bytes);
  if (status != STOW_OK) {
    sim_uncharge(s, tier, bytes);
    return status;
  }
  uint32_t at = s->page_free != 0 ? s->page_free - 1 : s->page_count++;
  sim_page *page = &s->pages[at];
  if (s->page_free != 0) s->page_free = page->next_free;
  *page = (sim_page){.bytes = bytes,
                     .offset = offset,
                     .tier = (uint8_t)tier,
                     .generation = page->generation + 1,
                     .live = true};
  s->pages_live++;
  *index = at;
  return STOW_OK;
}

stow_status sim_page_drop(sim *s, uint32_t index) {
  ASSERT(lock_held(&s->lock));
  ASSERT(index < s->page_count && s->pages[index].live);
  sim_page *page = &s->pages[index];
  if (page->touched) STOW_TRY(sim_memory_drop(s, page->offset, page->bytes));
  sim_work_forget(s, page);
  sim_uncharge(s, (stow_tier)page->tier, page->bytes);
  page->live = false;
  page->next_free = s->page_free;
  s->page_free = index + 1;
  s->pages_live--;
  return STOW_OK;
}

void sim_page_free_all(sim *s) {
  for (uint32_t i = 0; i < s->page_count; i++)
    if (s->pages[i].live) sim_work_forget(s, &s->pages[i]);
  free(s->pages);
  s->pages = NULL;
}

static stow_page page_handle(const sim *s, uint32_t index) {
  ASSERT(index < s->page_count);
  return (uint64_t)s->pages[index].generation << 32 | (index + 1);
}

static stow_status page_find(const sim *s, uint32_t *index, stow_page page, const char *what) {
  ASSERT(lock_held(&s->lock));
  uint64_t at = (page & UINT32_MAX) - 1;
  if (at >= s->page_count || !s->pages[at].live || s->pages[at].generation != page >> 32)
    return stow_fail(STOW_ERR_STATE, "%s page 0x%llx: unknown page handle; was it released before?",
                     what, (unsigned long long)page);
  *index = (uint32_t)at;
  return STOW_OK;
}

/* ---- create and release ---- */

static stow_status page_create(sim *s, stow_page *page, uint64_t bytes, stow_tier tier) {
  ASSERT(lock_held(&s->lock));
  STOW_TRY(sim_check_vmm(s, "creating a page"));
  STOW_TRY(sim_check_tier(s, tier));
  if (page == NULL || bytes == 0 || bytes % s->options.page_bytes != 0)
    return stow_fail(
        STOW_ERR_INVALID,
        "creating a page of %llu bytes; must be a multiple of %llu, with a result pointer",
        (unsigned long long)bytes, (unsigned long long)s->options.page_bytes);
  uint64_t cost = sim_cost_ns(s, DRIVER_CREATE, bytes, tier, 0);
  uint32_t index;
  STOW_TRY(sim_page_add(s, &index, bytes, tier));
  *page = page_handle(s, index);
  s->counts.page_create++;
  sim_cost_charge(s, DRIVER_CREATE, cost + sim_cost_busy_ns(s, DRIVER_CREATE));
  return STOW_OK;
}

stow_status sim_page_create(stow_device *device, stow_page *page, uint64_t bytes, stow_tier tier) {
  sim *s = sim_lock(device);
  return sim_unlock(s, page_create(s, page, bytes, tier));
}

static stow_status page_release(sim *s, stow_page page) {
  ASSERT(lock_held(&s->lock));
  STOW_TRY(sim_check_vmm(s, "releasing a page"));
  uint32_t index = 0;
  STOW_TRY(page_find(s, &index, page, "releasing"));
  if (s->pages[index].maps != 0)
    return stow_fail(STOW_ERR_STATE,
                     "releasing page 0x%llx, which is still mapped at %u addresses; unmap it first",
                     (unsigned long long)page, s->pages[index].maps);
  uint64_t bytes = s->pages[index].bytes;
  stow_tier tier = (stow_tier)s->pages[index].tier;
  STOW_TRY(sim_page_drop(s, index));
  s->counts.page_release++;
  sim_cost_charge(s, DRIVER_RELEASE, sim_cost_ns(s, DRIVER_RELEASE, bytes, tier, 0));
  return STOW_OK;
}

stow_status sim_page_release(stow_device *device, stow_page page) {
  sim *s = sim_lock(device);
  return sim_unlock(s, page_release(s, page));
}

/* ---- addresses ---- */

/* Returns the reserved range that contains all of [addr, addr+bytes), both multiples of
 * page_bytes. */
static stow_status find_reserved(const sim *s, sim_range **out, stow_addr addr, uint64_t bytes,
                                 const char *what) {
  ASSERT(lock_held(&s->lock));
  if (addr % s->options.page_bytes != 0 || bytes == 0 || bytes % s->options.page_bytes != 0)
    return stow_fail(STOW_ERR_INVALID,
                     "%s %llu bytes at 0x%llx; both must be multiples of the page size, %llu", what,
                     (unsigned long long)bytes, (unsigned long long)addr,
                     (unsigned long long)s->options.page_bytes);
  sim_range *range = sim_range_at(s, addr);
  if (range == NULL || range->plain != 0 || bytes > range->bytes - (addr - range->addr))
    return stow_fail(STOW_ERR_INVALID,
                     "%s %llu bytes at 0x%llx: they are not inside one reserved range; reserve "
                     "addresses first",
                     what, (unsigned long long)bytes, (unsigned long long)addr);
  *out = range;
  return STOW_OK;
}

/* Finds the range and checks that [addr, addr+bytes) is one or more whole mapped pages without a
 * gap: slots [*first, *end). */
static stow_status find_mapped(const sim *s, sim_range **out, uint64_t *first, uint64_t *end,
                               stow_addr addr, uint64_t bytes, const char *what) {
  STOW_TRY(find_reserved(s, out, addr, bytes, what));
  const sim_range *range = *out;
  uint64_t from = (addr - range->addr) / s->options.page_bytes;
  uint64_t to = from + bytes / s->options.page_bytes;
  for (uint64_t i = from; i < to; i++)
    if (range->slots[i] == 0)
      return stow_fail(STOW_ERR_STATE, "%s %llu bytes at 0x%llx: nothing is mapped at 0x%llx", what,
                       (unsigned long long)bytes, (unsigned long long)addr,
                       (unsigned long long)(range->addr + i * s->options.page_bytes));
  bool cut_front = (range->slots[from] & SIM_SLOT_HEAD) == 0;
  bool cut_back = to * s->options.page_bytes < range->bytes && range->slots[to] != 0 &&
                  (range->slots[to] & SIM_SLOT_HEAD) == 0;
  if (cut_front || cut_back)
    return stow_fail(
        STOW_ERR_INVALID,
        "%s %llu bytes at 0x%llx cuts through the page at its %s; pages are mapped and "
        "unmapped whole",
        what, (unsigned long long)bytes, (unsigned long long)addr, cut_front ? "beginning" : "end");
  *first = from;
  *end = to;
  return STOW_OK;
}

/* ---- map, unmap, access ---- */

static stow_status map_page(sim *s, stow_addr addr, uint64_t bytes, stow_page page) {
  ASSERT(lock_held(&s->lock));
  STOW_TRY(sim_check_vmm(s, "mapping a page"));
  sim_range *range;
  STOW_TRY(find_reserved(s, &range, addr, bytes, "mapping"));
  uint32_t index = 0;
  STOW_TRY(page_find(s, &index, page, "mapping"));
  if (bytes != s->pages[index].bytes)
    return stow_fail(STOW_ERR_INVALID,
                     "mapping %llu bytes of page 0x%llx, which has %llu; a page is mapped whole",
                     (unsigned long long)bytes, (unsigned long long)page,
                     (unsigned long long)s->pages[index].bytes);
  uint64_t first = (addr - range->addr) / s->options.page_bytes;
  uint64_t count = bytes / s->options.page_bytes;
  for (uint64_t i = first; i < first + count; i++)
    if (range->slots[i] != 0)
      return stow_fail(
          STOW_ERR_STATE,
          "mapping page 0x%llx at 0x%llx: a page is already mapped at 0x%llx; unmap it first",
          (unsigned long long)page, (unsigned long long)addr,
          (unsigned long long)(range->addr + i * s->options.page_bytes));
  STOW_TRY(sim_memory_map(s, addr, bytes, s->pages[index].offset));
  for (uint64_t i = first; i < first + count; i++) range->slots[i] = index + 1;
  range->slots[first] |= SIM_SLOT_HEAD;
  range->mapped += count;
  s->pages[index].maps++;
  s->mappings_live++;
  s->counts.map++;
  sim_cost_charge(s, DRIVER_MAP,
                  sim_cost_ns(s, DRIVER_MAP, bytes, (stow_tier)s->pages[index].tier, 0));
  return STOW_OK;
}

stow_status sim_map(stow_device *device, stow_addr addr, uint64_t bytes, stow_page page) {
  sim *s = sim_lock(device);
  return sim_unlock(s, map_page(s, addr, bytes, page));
}

static sim_page *slot_page(const sim *s, uint32_t slot) {
  ASSERT((slot & SIM_SLOT_PAGE) != 0);
  ASSERT((slot & SIM_SLOT_PAGE) <= s->page_count);
  return &s->pages[(slot & SIM_SLOT_PAGE) - 1];
}

static stow_status unmap(sim *s, stow_addr addr, uint64_t bytes) {
  ASSERT(lock_held(&s->lock));
  STOW_TRY(sim_check_vmm(s, "unmapping"));
  sim_range *range;
  uint64_t first, end, cost = sim_cost_busy_ns(s, DRIVER_UNMAP), nth = 0;
  STOW_TRY(find_mapped(s, &range, &first, &end, addr, bytes, "unmapping"));
  for (uint64_t i = first; i < end; i++)
    if (range->slots[i] & SIM_SLOT_HEAD)
      STOW_TRY(sim_work_check_unmap(s, slot_page(s, range->slots[i]), addr, bytes));
  STOW_TRY(sim_memory_unmap(s, addr, bytes));
  for (uint64_t i = first; i < end; i++) {
    if (range->slots[i] & SIM_SLOT_HEAD) {
      sim_page *page = slot_page(s, range->slots[i]);
      cost += sim_cost_ns(s, DRIVER_UNMAP, page->bytes, (stow_tier)page->tier, nth++);
      page->maps--;
      s->mappings_live--;
    }
    range->slots[i] = 0;
  }
  range->mapped -= end - first;
  s->counts.unmap++;
  sim_cost_charge(s, DRIVER_UNMAP, cost);
  return STOW_OK;
}

stow_status sim_unmap(stow_device *device, stow_addr addr, uint64_t bytes) {
  sim *s = sim_lock(device);
  return sim_unlock(s, unmap(s, addr, bytes));
}

static stow_status grant(sim *s, stow_addr addr, uint64_t bytes) {
  ASSERT(lock_held(&s->lock));
  STOW_TRY(sim_check_vmm(s, "granting access"));
  sim_range *range;
  uint64_t first, end, cost = sim_cost_busy_ns(s, DRIVER_ACCESS), nth = 0;
  STOW_TRY(find_mapped(s, &range, &first, &end, addr, bytes, "granting access to"));
  STOW_TRY(sim_memory_access(s, addr, bytes));
  for (uint64_t i = first; i < end; i++) {
    if (range->slots[i] & SIM_SLOT_HEAD) {
      sim_page *page = slot_page(s, range->slots[i]);
      cost += sim_cost_ns(s, DRIVER_ACCESS, page->bytes, (stow_tier)page->tier, nth++);
      page->touched = true;
    }
    range->slots[i] |= SIM_SLOT_ACCESS;
  }
  s->counts.access++;
  sim_cost_charge(s, DRIVER_ACCESS, cost);
  return STOW_OK;
}

stow_status sim_access(stow_device *device, stow_addr addr, uint64_t bytes) {
  sim *s = sim_lock(device);
  return sim_unlock(s, grant(s, addr, bytes));
}
