/* Expandable segments: address ranges into which pages of one size are mapped as blocks need them,
 * at the lowest address that fits. When memory runs out, fully free pages are unmapped. */
#include <stdlib.h>

#include "base/checked.h"
#include "base/list.h"
#include "replay/policies/torch.h"

/* PyTorch reserves 1 1/8 of the device's memory. A recording does not always know its device, and a
 * range only must never fill up: 1 1/8 of 256 GiB, or of the limit if that is larger. */
#define DEVICE_BYTES (UINT64_C(256) << 30)

static uint64_t range_bytes(const torch *t, uint64_t step) {
  uint64_t device = DEVICE_BYTES;
  if (t->options.limit_bytes != POLICY_NO_LIMIT && t->options.limit_bytes > device)
    device = t->options.limit_bytes;
  return (device + device / 8 + step - 1) / step * step;
}

static uint64_t range_addr(torch *t, uint64_t bytes) {
  const policy_driver *driver = t->options.driver;
  if (driver != NULL) return driver->reserve(driver->user, bytes);
  t->next_addr = t->next_addr > bytes * 2 ? t->next_addr - bytes : (UINT64_C(1) << 63) - bytes;
  return t->next_addr;
}

/* Opens a range: one unmapped block of its length. Returns 0 without host memory. */
static uint32_t range_open(torch *t, uint32_t pool, uint64_t least) {
  uint32_t slot = 0;
  while (slot < t->range_count && t->ranges[slot].open) slot++;
  if (LIST_ROOM(t->ranges, slot, t->range_capacity, 8, "address ranges") != STOW_OK) return 0;
  uint32_t block = torch_block_new(t);
  if (block == 0) return 0;
  uint64_t step = t->pools[pool].small ? TORCH_SMALL_SEGMENT : TORCH_LARGE_SEGMENT;
  uint64_t bytes = range_bytes(t, step);
  if (bytes < least) bytes = (least + step - 1) / step * step;
  t->ranges[slot] = (torch_range){range_addr(t, bytes), bytes, step, true};
  if (slot == t->range_count) t->range_count++;
  torch_block *b = &t->blocks[block];
  b->addr = t->ranges[slot].addr;
  b->bytes = bytes;
  b->pool = pool;
  b->range = slot + 1;
  b->mapped = false;
  if (torch_block_put(t, block)) return block;
  return 0;
}

/* Returns whether free and unmapped blocks from `block` on add up to `bytes`. */
static bool has_room(const torch *t, uint32_t block, uint64_t bytes) {
  uint64_t room = 0;
  for (; room < bytes && block != 0 && t->blocks[block].state == TORCH_FREE;
       block = t->blocks[block].next)
    room += t->blocks[block].bytes;
  return room >= bytes;
}

/* Finds the lowest address where the request fits by mapping; includes the free block before it. */
static uint32_t find_room(torch *t, const torch_request *r) {
  const order *unmapped = &t->pools[r->pool].unmapped;
  order_at at;
  for (bool more = order_first(unmapped, &at); more; more = order_next(unmapped, &at)) {
    uint32_t block = order_get(unmapped, at).id, before = t->blocks[block].prev;
    if (before != 0 && t->blocks[before].state == TORCH_FREE) block = before;
    if (has_room(t, block, r->bytes)) return block;
  }
  return range_open(t, r->pool, r->bytes);
}

/* Charges two calls per page. Multiplies instead of looping: the number of pages comes from a
 * file. */
static void charge_pages(torch *t, driver_call first, driver_call second, uint64_t step,
                         uint64_t bytes) {
  uint64_t pages = (bytes + step - 1) / step;
  t->stats.page_calls += 2 * pages;
  t->stats.page_time_ns += (driver_cost_ns(first, step) + driver_cost_ns(second, step)) * pages;
}

/* Charges the cost of mapping. One cuMemSetAccess covers all pages, but its time is proportional to
 * them. */
static void charge_map(torch *t, uint64_t step, uint64_t bytes) {
  charge_pages(t, DRIVER_CREATE, DRIVER_MAP, step, bytes);
  t->stats.page_calls++;
  t->stats.page_time_ns += driver_cost_ns(DRIVER_ACCESS, step) * (bytes / step);
}

/* Maps the first `bytes` of an unmapped block, rounded up to whole pages, and merges it with the
 * adjacent free blocks. */
static policy_answer map_block(torch *t, uint32_t block, uint64_t bytes) {
  uint64_t step = t->ranges[t->blocks[block].range - 1].step, addr = t->blocks[block].addr;
  uint64_t mapped = (bytes + step - 1) / step * step;
  const policy_driver *driver = t->options.driver;
  /* A framework's limit was checked before; here the device itself may be full. */
  if (!t->options.limit_in_framework && !torch_fits(t, mapped)) return POLICY_FULL;
  if (driver != NULL && !driver->map(driver->user, addr, mapped)) return POLICY_FULL;
  torch_block_take(t, block);
  if (mapped < t->blocks[block].bytes) {
    uint32_t rest = torch_block_new(t);
    if (rest == 0) return POLICY_BROKEN;
    torch_block *b = &t->blocks[block], *n = &t->blocks[rest];
    *n = (torch_block){.addr = addr + mapped,
                       .bytes = b->bytes - mapped,
                       .prev = block,
                       .next = b->next,
                       .pool = b->pool,
                       .range = b->range,
                       .mapped = false};
    if (n->next != 0) t->blocks[n->next].prev = rest;
    b->next = rest;
    b->bytes = mapped;
    if (!torch_block_put(t, rest)) return POLICY_BROKEN;
  }
  t->blocks[block].mapped = true;
  torch_block_merge(t, block, t->blocks[block].prev);
  torch_block_merge(t, block, t->blocks[block].next);
  if (!torch_block_put(t, block)) return POLICY_BROKEN;
  charge_map(t, step, mapped);
  torch_reserved(t, (int64_t)mapped);
  return POLICY_DONE;
}

static uint64_t least(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

policy_answer torch_range_take(torch *t, torch_request *r) {
  const policy_driver *driver = t->options.driver;
  if (t->options.limit_in_framework && !torch_fits(t, r->segment_bytes)) return POLICY_FULL;
  if (driver != NULL && !driver->allows(driver->user)) return POLICY_FULL;
  uint32_t block = find_room(t, r);
  if (block == 0) return POLICY_BROKEN;
  if (!t->blocks[block].mapped) {
    policy_answer answer = map_block(t, block, least(t->blocks[block].bytes, r->bytes));
    if (answer != POLICY_DONE) return answer;
  }
  while (t->blocks[block].bytes < r->bytes) {
    uint32_t next = t->blocks[block].next;
    uint64_t missing = r->bytes - t->blocks[block].bytes;
    policy_answer answer = map_block(t, next, least(missing, t->blocks[next].bytes));
    if (answer != POLICY_DONE) return answer;
    block = next; /* it was merged into the one before */
  }
  torch_block_take(t, block);
  r->block = block;
  return POLICY_DONE;
}

/* Splits a free piece off the middle of an unmapped block. */
static bool cut_free(torch *t, uint32_t of, uint64_t addr, uint64_t bytes, bool before) {
  uint32_t piece = torch_block_new(t);
  if (piece == 0) return false;
  torch_block *b = &t->blocks[of], *n = &t->blocks[piece];
  n->addr = addr;
  n->bytes = bytes;
  n->pool = b->pool;
  n->range = b->range;
  n->prev = before ? b->prev : of;
  n->next = before ? of : b->next;
  if (n->prev != 0) t->blocks[n->prev].next = piece;
  if (n->next != 0) t->blocks[n->next].prev = piece;
  return torch_block_put(t, piece);
}

policy_answer torch_range_unmap(torch *t, uint32_t block) {
  torch_block *b = &t->blocks[block];
  const torch_range *range = &t->ranges[b->range - 1];
  uint64_t step = range->step, begin = (b->addr - range->addr + step - 1) / step * step;
  uint64_t end = (b->addr - range->addr + b->bytes) / step * step;
  if (begin >= end) return POLICY_DONE;
  uint64_t addr = range->addr + begin, bytes = end - begin;
  uint64_t first = b->addr, past = b->addr + b->bytes;
  torch_block_take(t, block);
  if (first < addr && !cut_free(t, block, first, addr - first, true)) return POLICY_BROKEN;
  if (addr + bytes < past && !cut_free(t, block, addr + bytes, past - addr - bytes, false))
    return POLICY_BROKEN;
  b = &t->blocks[block];
  b->addr = addr;
  b->bytes = bytes;
  b->mapped = false;
  torch_block_merge(t, block, b->prev);
  torch_block_merge(t, block, b->next);
  if (!torch_block_put(t, block)) return POLICY_BROKEN;
  charge_pages(t, DRIVER_UNMAP, DRIVER_RELEASE, step, bytes);
  const policy_driver *driver = t->options.driver;
  if (driver != NULL) driver->unmap(driver->user, addr, bytes);
  torch_reserved(t, -(int64_t)bytes);
  if (b->prev == 0 && b->next == 0) { /* the range is empty */
    torch_block_take(t, block);
    t->ranges[b->range - 1].open = false;
    torch_block_drop(t, block);
  }
  return POLICY_DONE;
}
