/* Cuda table: the bookkeeping of one device. */
#include "device/cuda_table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/size.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/list.h"

#define GOES_ON ((uintptr_t)1)

void table_init(cuda_table *t, uint64_t granule) {
  ASSERT(granule != 0 && (granule & (granule - 1)) == 0);
  *t = (cuda_table){.granule = granule};
}

static void free_values(map *m) {
  uint64_t key, value;
  for (size_t at = 0; map_next(m, &at, &key, &value);) free((void *)(uintptr_t)value);
  map_free(m);
}

void table_free(cuda_table *t) {
  for (size_t i = 0; i < t->range_count; i++) free(t->ranges[i].slots);
  free(t->ranges);
  free_values(&t->pages);
  free_values(&t->plains);
  map_free(&t->streams);
  map_free(&t->events);
  *t = (cuda_table){0};
}

/* ---- ranges ---- */

/* Returns how many ranges begin at or before `addr`: the last of them may contain it. */
static size_t ranges_up_to(const cuda_table *t, stow_addr addr) {
  size_t low = 0, high = t->range_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (t->ranges[middle].addr <= addr)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Returns the range that contains all of [addr, addr+bytes), or NULL. */
static table_range *range_of(const cuda_table *t, stow_addr addr, uint64_t bytes) {
  size_t count = ranges_up_to(t, addr);
  if (count == 0) return NULL;
  table_range *range = &t->ranges[count - 1];
  uint64_t offset = addr - range->addr;
  return offset <= range->bytes && bytes <= range->bytes - offset ? range : NULL;
}

static void range_insert(cuda_table *t, const table_range *range) {
  ASSERT(t->range_count < t->range_capacity);
  ASSERT(range->slots != NULL);
  size_t at = ranges_up_to(t, range->addr);
  memmove(&t->ranges[at + 1], &t->ranges[at], (t->range_count - at) * sizeof *t->ranges);
  t->ranges[at] = *range;
  t->range_count++;
}

stow_status table_range_add(cuda_table *t, const table_range *range) {
  ASSERT(range->bytes % t->granule == 0 && range->bytes > 0);
  STOW_TRY(LIST_ROOM(t->ranges, t->range_count, t->range_capacity, 16, "ranges"));
  table_range added = *range;
  added.mapped_bytes = 0;
  added.slots = calloc(range->bytes / t->granule, sizeof *added.slots);
  if (added.slots == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY,
                     "no host memory to track a range of %" PRIu64 " pages; reserve less at a time",
                     range->bytes / t->granule);
  range_insert(t, &added);
  return STOW_OK;
}

stow_status table_range_take(cuda_table *t, stow_addr addr, uint64_t bytes, table_range *range) {
  ASSERT(range != NULL);
  size_t count = ranges_up_to(t, addr);
  table_range *found = count == 0 ? NULL : &t->ranges[count - 1];
  char size[STOW_SIZE_TEXT_MAX], other[STOW_SIZE_TEXT_MAX];
  if (found == NULL || found->addr != addr)
    return stow_fail(STOW_ERR_STATE,
                     "unreserving %s at 0x%" PRIx64
                     ": no range is reserved there; was it freed before?",
                     stow_size_format(size, bytes), addr);
  if (found->bytes != bytes)
    return stow_fail(STOW_ERR_STATE,
                     "unreserving %s at 0x%" PRIx64
                     ": the range there has %s; free the whole range",
                     stow_size_format(size, bytes), addr, stow_size_format(other, found->bytes));
  if (found->mapped_bytes != 0)
    return stow_fail(
        STOW_ERR_STATE, "unreserving %s at 0x%" PRIx64 ": %s of it is still mapped; unmap first",
        stow_size_format(size, bytes), addr, stow_size_format(other, found->mapped_bytes));
  *range = *found;
  t->range_count--;
  memmove(found, found + 1, (t->range_count - (count - 1)) * sizeof *found);
  return STOW_OK;
}

void table_range_back(cuda_table *t, const table_range *range) {
  /* Without memory to re-insert it, the range stays reserved in the driver and is no longer
   * tracked. */
  if (LIST_ROOM(t->ranges, t->range_count, t->range_capacity, 16, "ranges") == STOW_OK)
    range_insert(t, range);
  else
    free(range->slots);
}

void table_range_free(table_range *range) {
  free(range->slots);
  range->slots = NULL;
}

/* ---- pages ---- */

static table_page *page_of(const cuda_table *t, stow_page handle) {
  uint64_t *value = map_get(&t->pages, handle);
  return value == NULL ? NULL : (table_page *)(uintptr_t)*value;
}

stow_status table_page_add(cuda_table *t, stow_page handle, uint64_t bytes, stow_tier tier) {
  ASSERT(handle != 0 && bytes % t->granule == 0);
  ASSERT((unsigned)tier < STOW_TIER_COUNT);
  table_page *page = malloc(sizeof *page);
  if (page == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to track a page");
  *page = (table_page){.handle = handle, .bytes = bytes, .tier = tier};
  stow_status status = map_put(&t->pages, handle, (uintptr_t)page);
  if (status != STOW_OK) {
    free(page);
    return status;
  }
  t->page_bytes[tier] += bytes;
  return STOW_OK;
}

stow_status table_page_take(cuda_table *t, stow_page handle, table_page *page) {
  ASSERT(page != NULL);
  table_page *found = page_of(t, handle);
  if (found == NULL)
    return stow_fail(STOW_ERR_STATE,
                     "releasing page 0x%" PRIx64 ": unknown page handle; was it released before?",
                     handle);
  if (found->mapped != 0)
    return stow_fail(STOW_ERR_STATE,
                     "releasing page 0x%" PRIx64
                     ": it is still mapped at %u address%s; unmap first",
                     handle, found->mapped, found->mapped == 1 ? "" : "es");
  *page = *found;
  map_remove(&t->pages, handle, NULL);
  t->page_bytes[found->tier] -= found->bytes;
  free(found);
  return STOW_OK;
}

/* ---- mappings ---- */

stow_status table_map(cuda_table *t, stow_addr addr, uint64_t bytes, stow_page handle) {
  ASSERT(addr % t->granule == 0 && bytes % t->granule == 0);
  char size[STOW_SIZE_TEXT_MAX], other[STOW_SIZE_TEXT_MAX];
  table_page *page = page_of(t, handle);
  if (page == NULL)
    return stow_fail(STOW_ERR_STATE, "mapping page 0x%" PRIx64 ": unknown page handle", handle);
  if (page->bytes != bytes)
    return stow_fail(STOW_ERR_INVALID,
                     "mapping %s of page 0x%" PRIx64 ": the page has %s and must be mapped whole",
                     stow_size_format(size, bytes), handle, stow_size_format(other, page->bytes));
  table_range *range = range_of(t, addr, bytes);
  if (range == NULL)
    return stow_fail(STOW_ERR_INVALID, "mapping %s at 0x%" PRIx64 ": not inside one reserved range",
                     stow_size_format(size, bytes), addr);
  uintptr_t *slots = range->slots + (addr - range->addr) / t->granule;
  size_t count = bytes / t->granule;
  for (size_t i = 0; i < count; i++)
    if (slots[i] != 0)
      return stow_fail(STOW_ERR_STATE,
                       "mapping %s at 0x%" PRIx64 ": a page is mapped at 0x%" PRIx64
                       " already; unmap it first",
                       stow_size_format(size, bytes), addr, addr + i * t->granule);
  for (size_t i = 0; i < count; i++) slots[i] = (uintptr_t)page | (i == 0 ? 0 : GOES_ON);
  range->mapped_bytes += bytes;
  page->mapped++;
  return STOW_OK;
}

stow_status table_check_mapped(const cuda_table *t, stow_addr addr, uint64_t bytes,
                               const char *what) {
  ASSERT(addr % t->granule == 0 && bytes % t->granule == 0);
  ASSERT(what != NULL);
  char size[STOW_SIZE_TEXT_MAX];
  const table_range *range = range_of(t, addr, bytes);
  if (range == NULL)
    return stow_fail(STOW_ERR_INVALID, "%s %s at 0x%" PRIx64 ": not inside one reserved range",
                     what, stow_size_format(size, bytes), addr);
  size_t first = (addr - range->addr) / t->granule, count = bytes / t->granule;
  size_t total = range->bytes / t->granule;
  for (size_t i = 0; i < count; i++) {
    uintptr_t slot = range->slots[first + i];
    if (slot == 0)
      return stow_fail(STOW_ERR_STATE, "%s %s at 0x%" PRIx64 ": nothing is mapped at 0x%" PRIx64,
                       what, stow_size_format(size, bytes), addr, addr + i * t->granule);
    if (i == 0 && (slot & GOES_ON))
      return stow_fail(STOW_ERR_INVALID, "%s %s at 0x%" PRIx64 ": begins inside a page", what,
                       stow_size_format(size, bytes), addr);
  }
  if (first + count < total && (range->slots[first + count] & GOES_ON))
    return stow_fail(STOW_ERR_INVALID, "%s %s at 0x%" PRIx64 ": ends inside a page", what,
                     stow_size_format(size, bytes), addr);
  return STOW_OK;
}

void table_unmap(cuda_table *t, stow_addr addr, uint64_t bytes) {
  table_range *range = range_of(t, addr, bytes);
  if (range == NULL) return;
  uintptr_t *slots = range->slots + (addr - range->addr) / t->granule;
  for (size_t i = 0; i < bytes / t->granule; i++) {
    if (slots[i] == 0) continue; /* another thread unmapped the same, violating the contract */
    if (!(slots[i] & GOES_ON)) ((table_page *)slots[i])->mapped--;
    slots[i] = 0;
    range->mapped_bytes -= t->granule;
  }
}

bool table_next_mapping(const cuda_table *t, const table_range *range, size_t *at, stow_addr *addr,
                        uint64_t *bytes) {
  ASSERT(range->slots != NULL);
  size_t total = range->bytes / t->granule;
  while (*at < total && range->slots[*at] == 0) (*at)++;
  if (*at == total) return false;
  *addr = range->addr + *at * t->granule;
  *bytes = ((const table_page *)(range->slots[*at] & ~GOES_ON))->bytes;
  *at += *bytes / t->granule;
  return true;
}

/* ---- plain allocations ---- */

stow_status table_plain_add(cuda_table *t, stow_addr addr, uint64_t bytes, stow_tier tier,
                            void *pointer) {
  ASSERT(addr != 0 && bytes > 0);
  table_plain *plain = malloc(sizeof *plain);
  if (plain == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to track an allocation");
  *plain = (table_plain){.bytes = bytes, .tier = tier, .pointer = pointer};
  stow_status status = map_put(&t->plains, addr, (uintptr_t)plain);
  if (status != STOW_OK) free(plain);
  return status;
}

stow_status table_plain_take(cuda_table *t, stow_addr addr, table_plain *plain) {
  ASSERT(plain != NULL);
  uint64_t value;
  if (!map_remove(&t->plains, addr, &value))
    return stow_fail(
        STOW_ERR_STATE,
        "freeing 0x%" PRIx64 ": no plain allocation at that address; was it freed before?", addr);
  table_plain *found = (table_plain *)(uintptr_t)value;
  *plain = *found;
  free(found);
  return STOW_OK;
}
