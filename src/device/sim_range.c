/* Address ranges of the simulated device: reserved ranges, and plain blocks.
 *
 * A reserved range has a slot per page_bytes of addresses, so finding the page at an address is one
 * index. */
#include "base/assert.h"
#include "device/sim_state.h"

#include <unistd.h>

#include <stowage/size.h>

#include "base/checked.h"

/* ---- reserving ---- */

static stow_status reserve(sim *s, stow_addr *addr, uint64_t bytes, uint64_t align) {
  ASSERT(lock_held(&s->lock));
  uint64_t page = s->options.page_bytes;
  STOW_TRY(sim_check_vmm(s, "reserving addresses"));
  if (addr == NULL)
    return stow_fail(STOW_ERR_INVALID, "reserving addresses: the result pointer is NULL");
  if (bytes == 0 || bytes % page != 0)
    return stow_fail(STOW_ERR_INVALID,
                     "reserving %llu bytes of addresses; must be a multiple of the page size, %llu",
                     (unsigned long long)bytes, (unsigned long long)page);
  if (align != 0 && (!is_power_of_two(align) || align < page))
    return stow_fail(STOW_ERR_INVALID,
                     "reserving addresses aligned to %llu; must be 0 or a power of two of at least "
                     "the page size, %llu",
                     (unsigned long long)align, (unsigned long long)page);
  sim_range *range;
  STOW_TRY(sim_range_add(s, &range, bytes, align == 0 ? page : align, bytes / page));
  *addr = range->addr;
  s->ranges_live++;
  s->counts.reserve++;
  sim_cost_charge(s, DRIVER_RESERVE, sim_cost_ns(s, DRIVER_RESERVE, bytes, STOW_TIER_VRAM, 0));
  return STOW_OK;
}

stow_status sim_reserve(stow_device *device, stow_addr *addr, uint64_t bytes, uint64_t align) {
  sim *s = sim_lock(device);
  return sim_unlock(s, reserve(s, addr, bytes, align));
}

static stow_status unreserve(sim *s, stow_addr addr, uint64_t bytes) {
  ASSERT(lock_held(&s->lock));
  STOW_TRY(sim_check_vmm(s, "freeing addresses"));
  if (addr % s->options.page_bytes != 0 || bytes == 0 || bytes % s->options.page_bytes != 0)
    return stow_fail(
        STOW_ERR_INVALID,
        "freeing %llu bytes of addresses at 0x%llx; both must be multiples of the page size, %llu",
        (unsigned long long)bytes, (unsigned long long)addr,
        (unsigned long long)s->options.page_bytes);
  sim_range *range = sim_range_at(s, addr);
  if (range == NULL || range->plain != 0)
    return stow_fail(STOW_ERR_STATE, "freeing addresses at 0x%llx: none are reserved there",
                     (unsigned long long)addr);
  if (range->addr != addr || range->bytes != bytes)
    return stow_fail(STOW_ERR_STATE,
                     "freeing %llu bytes of addresses at 0x%llx: the reserved range is %llu bytes "
                     "at 0x%llx; free the whole range",
                     (unsigned long long)bytes, (unsigned long long)addr,
                     (unsigned long long)range->bytes, (unsigned long long)range->addr);
  if (range->mapped != 0)
    return stow_fail(
        STOW_ERR_STATE,
        "freeing addresses at 0x%llx: %llu bytes of them are still mapped; unmap them first",
        (unsigned long long)addr, (unsigned long long)(range->mapped * s->options.page_bytes));
  sim_range_remove(s, range);
  s->ranges_live--;
  s->counts.unreserve++;
  /* Not measured separately; assumed to cost the same as reserving. */
  sim_cost_charge(s, DRIVER_RESERVE, sim_cost_ns(s, DRIVER_RESERVE, bytes, STOW_TIER_VRAM, 0));
  return STOW_OK;
}

stow_status sim_unreserve(stow_device *device, stow_addr addr, uint64_t bytes) {
  sim *s = sim_lock(device);
  return sim_unlock(s, unreserve(s, addr, bytes));
}

/* ---- plain blocks ---- */

/* Returns what a block uses of its tier: from half a page upwards whole pages, below that whole
 * pages of the operating system (the driver packs small blocks too). */
static bool plain_bytes(const sim *s, uint64_t *block, uint64_t bytes) {
  bool large = bytes > s->options.page_bytes / 2;
  return checked_round_up(block, bytes, large ? s->options.page_bytes : (uint64_t)getpagesize());
}

static stow_status plain_back(sim *s, sim_range *range, uint32_t index) {
  ASSERT(range->plain == 0);
  STOW_TRY(sim_memory_map(s, range->addr, range->bytes, s->pages[index].offset));
  STOW_TRY(sim_memory_access(s, range->addr, range->bytes));
  range->plain = index + 1;
  s->pages[index].maps = 1;
  s->pages[index].touched = true;
  return STOW_OK;
}

static stow_status plain_alloc(sim *s, stow_addr *addr, uint64_t bytes, stow_tier tier) {
  ASSERT(lock_held(&s->lock));
  STOW_TRY(sim_check_tier(s, tier));
  uint64_t block;
  if (addr == NULL || bytes == 0)
    return stow_fail(STOW_ERR_INVALID,
                     "a plain block of %llu bytes: the size is 0 or the result pointer is NULL",
                     (unsigned long long)bytes);
  if (!plain_bytes(s, &block, bytes)) block = UINT64_MAX; /* then the request does not fit */
  uint32_t index;
  STOW_TRY(sim_page_add(s, &index, block, tier));
  uint64_t align = block < s->options.page_bytes ? (uint64_t)getpagesize() : s->options.page_bytes;
  sim_range *range = NULL;
  stow_status status = sim_range_add(s, &range, block, align, 0);
  if (status == STOW_OK) {
    status = plain_back(s, range, index);
    if (status != STOW_OK) sim_range_remove(s, range);
  }
  if (status != STOW_OK) {
    s->pages[index].maps = 0;
    sim_page_drop(s, index);
    return status;
  }
  *addr = range->addr;
  s->plain_live++;
  s->counts.plain_alloc++;
  sim_cost_charge(s, DRIVER_ALLOC, sim_cost_ns(s, DRIVER_ALLOC, block, tier, 0));
  return STOW_OK;
}

stow_status sim_plain_alloc(stow_device *device, stow_addr *addr, uint64_t bytes, stow_tier tier) {
  sim *s = sim_lock(device);
  return sim_unlock(s, plain_alloc(s, addr, bytes, tier));
}

/* Like cuMemFree, waits until the whole device is idle: programs rely on it. */
static stow_status plain_free(sim *s, stow_addr addr) {
  ASSERT(lock_held(&s->lock));
  sim_range *range = sim_range_at(s, addr);
  if (range == NULL || range->plain == 0 || range->addr != addr)
    return stow_fail(STOW_ERR_STATE,
                     "freeing 0x%llx: no plain block begins there; was it freed before?",
                     (unsigned long long)addr);
  STOW_TRY(sim_wait_all(s));
  uint32_t index = range->plain - 1;
  uint64_t bytes = range->bytes;
  stow_tier tier = (stow_tier)s->pages[index].tier;
  STOW_TRY(sim_page_drop(s, index));
  sim_range_remove(s, range);
  s->plain_live--;
  s->counts.plain_free++;
  sim_cost_charge(s, DRIVER_FREE, sim_cost_ns(s, DRIVER_FREE, bytes, tier, 0));
  return STOW_OK;
}

stow_status sim_plain_free(stow_device *device, stow_addr addr) {
  sim *s = sim_lock(device);
  return sim_unlock(s, plain_free(s, addr));
}
