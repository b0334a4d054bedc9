/* Address ranges of the simulated card: what was reserved, and plain blocks, in one tree by
 * address.
 *
 * Lookups cost the logarithm of the number of ranges. A reserved range has a slot per page_bytes of
 * addresses, so finding what stands behind an address is one index. */
#include "base/assert.h"
#include "device/sim.h"

#include <stdlib.h>
#include <unistd.h>

#include <stowage/size.h>

#include "base/checked.h"
#include "base/hash.h"

/* ---- the tree: a treap, its shape decided by random priorities ---- */

/* Ranges below `addr` to *low, the others to *high. */
static void tree_split(sim_range *root, stow_addr addr, sim_range **low, sim_range **high) {
  if (root == NULL) {
    *low = *high = NULL;
  } else if (root->addr < addr) {
    tree_split(root->right, addr, &root->right, high);
    *low = root;
  } else {
    tree_split(root->left, addr, low, &root->left);
    *high = root;
  }
}

static sim_range *tree_merge(sim_range *low, sim_range *high) {
  if (low == NULL) return high;
  if (high == NULL) return low;
  if (low->priority > high->priority) {
    low->right = tree_merge(low->right, high);
    return low;
  }
  high->left = tree_merge(low, high->left);
  return high;
}

static void tree_add(sim *s, sim_range *range) {
  ASSERT(range->left == NULL && range->right == NULL);
  sim_range *low, *high;
  range->priority = hash_u64(s->random++, 0);
  tree_split(s->ranges, range->addr, &low, &high);
  s->ranges = tree_merge(tree_merge(low, range), high);
}

static void tree_remove(sim *s, sim_range *range) {
  ASSERT(s->ranges != NULL);
  sim_range **link = &s->ranges;
  while (*link != range) link = range->addr < (*link)->addr ? &(*link)->left : &(*link)->right;
  *link = tree_merge(range->left, range->right);
}

sim_range *sim_range_at(const sim *s, stow_addr addr) {
  sim_range *at = s->ranges;
  while (at != NULL) {
    if (addr < at->addr)
      at = at->left;
    else if (addr - at->addr < at->bytes)
      return at;
    else
      at = at->right;
  }
  return NULL;
}

sim_range *sim_range_after(const sim *s, stow_addr addr) {
  sim_range *at = s->ranges, *best = NULL;
  while (at != NULL) {
    if (at->addr >= addr) best = at;
    at = at->addr >= addr ? at->left : at->right;
  }
  return best;
}

static void tree_free(sim *s, sim_range *root) {
  if (root == NULL) return;
  tree_free(s, root->left);
  tree_free(s, root->right);
  sim_memory_unreserve(s, root->addr, root->bytes);
  free(root->slots);
  free(root);
}

void sim_range_free_all(sim *s) {
  tree_free(s, s->ranges);
  s->ranges = NULL;
}

/* A range of `bytes` with addresses of its own, in the tree. The addresses come first: a size that
 * no process has room for must not make the book-keeping ask for memory. */
static stow_status range_add(sim *s, sim_range **out, uint64_t bytes, uint64_t align,
                             uint64_t slots) {
  ASSERT(lock_held(&s->lock));
  ASSERT(out != NULL);
  stow_addr addr;
  STOW_TRY(sim_memory_reserve(s, &addr, bytes, align));
  sim_range *range = calloc(1, sizeof *range);
  if (range != NULL && slots > 0) range->slots = calloc(slots, sizeof *range->slots);
  if (range == NULL || (slots > 0 && range->slots == NULL)) {
    free(range);
    sim_memory_unreserve(s, addr, bytes);
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to keep book of a range of %llu bytes",
                     (unsigned long long)bytes);
  }
  range->addr = addr;
  range->bytes = bytes;
  s->reserved_bytes += bytes;
  tree_add(s, range);
  *out = range;
  return STOW_OK;
}

static void range_remove(sim *s, sim_range *range) {
  ASSERT(lock_held(&s->lock));
  ASSERT(range->mapped == 0);
  tree_remove(s, range);
  s->reserved_bytes -= range->bytes;
  sim_memory_unreserve(s, range->addr, range->bytes);
  free(range->slots);
  free(range);
}

/* ---- reserving ---- */

static stow_status reserve(sim *s, stow_addr *addr, uint64_t bytes, uint64_t align) {
  ASSERT(lock_held(&s->lock));
  uint64_t page = s->options.page_bytes;
  STOW_TRY(sim_check_vmm(s, "reserving addresses"));
  if (addr == NULL) return stow_fail(STOW_ERR_INVALID, "reserving addresses: no place for them");
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
  STOW_TRY(range_add(s, &range, bytes, align == 0 ? page : align, bytes / page));
  *addr = range->addr;
  s->ranges_live++;
  s->counts.reserve++;
  sim_cost_charge(s, SIM_CALL_RESERVE, sim_cost_ns(s, SIM_CALL_RESERVE, bytes, STOW_TIER_VRAM, 0));
  return STOW_OK;
}

stow_status sim_reserve(stow_device *device, stow_addr *addr, uint64_t bytes, uint64_t align) {
  sim *s = sim_take(device);
  return sim_give(s, reserve(s, addr, bytes, align));
}

static stow_status unreserve(sim *s, stow_addr addr, uint64_t bytes) {
  ASSERT(lock_held(&s->lock));
  STOW_TRY(sim_check_vmm(s, "giving addresses back"));
  if (addr % s->options.page_bytes != 0 || bytes == 0 || bytes % s->options.page_bytes != 0)
    return stow_fail(STOW_ERR_INVALID,
                     "giving back %llu bytes of addresses at 0x%llx; both must be multiples of the "
                     "page size, %llu",
                     (unsigned long long)bytes, (unsigned long long)addr,
                     (unsigned long long)s->options.page_bytes);
  sim_range *range = sim_range_at(s, addr);
  if (range == NULL || range->plain != 0)
    return stow_fail(STOW_ERR_STATE, "giving back addresses at 0x%llx: none are reserved there",
                     (unsigned long long)addr);
  if (range->addr != addr || range->bytes != bytes)
    return stow_fail(STOW_ERR_STATE,
                     "giving back %llu bytes of addresses at 0x%llx: reserved were %llu bytes at "
                     "0x%llx; give back the whole range",
                     (unsigned long long)bytes, (unsigned long long)addr,
                     (unsigned long long)range->bytes, (unsigned long long)range->addr);
  if (range->mapped != 0)
    return stow_fail(STOW_ERR_STATE,
                     "giving back addresses at 0x%llx: %llu bytes of them are still mapped; unmap "
                     "them first",
                     (unsigned long long)addr,
                     (unsigned long long)(range->mapped * s->options.page_bytes));
  range_remove(s, range);
  s->ranges_live--;
  s->counts.unreserve++;
  /* Not measured by itself; taken as what reserving costs. */
  sim_cost_charge(s, SIM_CALL_RESERVE, sim_cost_ns(s, SIM_CALL_RESERVE, bytes, STOW_TIER_VRAM, 0));
  return STOW_OK;
}

stow_status sim_unreserve(stow_device *device, stow_addr addr, uint64_t bytes) {
  sim *s = sim_take(device);
  return sim_give(s, unreserve(s, addr, bytes));
}

/* ---- plain blocks ---- */

/* What a block takes of its tier: from half a page upwards whole pages, below that whole pages of
 * the operating system (the driver packs small blocks together, too). */
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
    return stow_fail(STOW_ERR_INVALID, "a plain block of %llu bytes, or no place for its address",
                     (unsigned long long)bytes);
  if (!plain_bytes(s, &block, bytes)) block = UINT64_MAX; /* then there is no room for it */
  uint32_t index;
  STOW_TRY(sim_page_add(s, &index, block, tier));
  uint64_t align = block < s->options.page_bytes ? (uint64_t)getpagesize() : s->options.page_bytes;
  sim_range *range = NULL;
  stow_status status = range_add(s, &range, block, align, 0);
  if (status == STOW_OK) {
    status = plain_back(s, range, index);
    if (status != STOW_OK) range_remove(s, range);
  }
  if (status != STOW_OK) {
    s->pages[index].maps = 0;
    sim_page_drop(s, index);
    return status;
  }
  *addr = range->addr;
  s->plain_live++;
  s->counts.plain_alloc++;
  sim_cost_charge(s, SIM_CALL_ALLOC, sim_cost_ns(s, SIM_CALL_ALLOC, block, tier, 0));
  return STOW_OK;
}

stow_status sim_plain_alloc(stow_device *device, stow_addr *addr, uint64_t bytes, stow_tier tier) {
  sim *s = sim_take(device);
  return sim_give(s, plain_alloc(s, addr, bytes, tier));
}

/* As cuMemFree does, it waits until the whole card is idle: programs rely on it. */
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
  range_remove(s, range);
  s->plain_live--;
  s->counts.plain_free++;
  sim_cost_charge(s, SIM_CALL_FREE, sim_cost_ns(s, SIM_CALL_FREE, bytes, tier, 0));
  return STOW_OK;
}

stow_status sim_plain_free(stow_device *device, stow_addr addr) {
  sim *s = sim_take(device);
  return sim_give(s, plain_free(s, addr));
}
