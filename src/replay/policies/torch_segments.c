/* Segments of PyTorch's allocator: allocated from the driver one by one, freed as a whole. */
#include "replay/policies/torch.h"

#include "base/checked.h"

/* The driver places segments downwards, aligned to 32 MiB once they are that large (observed on an
 * H200, driver 580). Only the order of equal blocks depends on it. */
#define ADDR_ALIGN (UINT64_C(32) << 20)

static uint64_t invent_addr(torch *t, uint64_t bytes) {
  if (bytes > t->next_addr / 2) t->next_addr = UINT64_C(1) << 63;
  t->next_addr = round_down(t->next_addr - bytes, ADDR_ALIGN);
  return t->next_addr;
}

policy_answer torch_segment_take(torch *t, torch_request *r) {
  const policy_driver *driver = t->options.driver;
  uint64_t addr;
  if (!torch_fits(t, r->segment_bytes)) return POLICY_FULL;
  if (driver == NULL)
    addr = invent_addr(t, r->segment_bytes);
  else if (!driver->take(driver->user, r->segment_bytes, &addr))
    return POLICY_FULL;
  r->block = torch_block_new(t);
  if (r->block == 0) return POLICY_BROKEN;
  torch_block *b = &t->blocks[r->block];
  b->addr = addr;
  b->bytes = r->segment_bytes;
  b->pool = r->pool;
  torch_charge(t, DRIVER_ALLOC, b->bytes);
  torch_reserved(t, (int64_t)b->bytes);
  return POLICY_DONE;
}

void torch_segment_give(torch *t, uint32_t block) {
  torch_block *b = &t->blocks[block];
  const policy_driver *driver = t->options.driver;
  if (driver != NULL) driver->give(driver->user, b->addr, b->bytes);
  torch_charge(t, DRIVER_FREE, b->bytes);
  torch_reserved(t, -(int64_t)b->bytes);
  torch_block_take(t, block);
  torch_block_drop(t, block);
}

bool torch_release_available(torch *t, const torch_request *r) {
  uint64_t oversize = t->options.settings.max_split_bytes;
  if (oversize == POLICY_NO_LIMIT || t->expandable) return false;
  order *free = &t->pools[r->pool].free;
  uint64_t wanted = r->bytes < oversize ? oversize : r->bytes;
  order_at at;
  if (order_seek(free, &at, wanted, 0)) {
    torch_segment_give(t, order_get(free, at).id);
    return true;
  }
  /* No single block is large enough: free several, the largest first. */
  uint64_t given = 0;
  while (given < wanted && order_last(free, &at) && order_get(free, at).bytes >= oversize) {
    given += order_get(free, at).bytes;
    torch_segment_give(t, order_get(free, at).id);
  }
  return given >= wanted;
}

static bool is_whole(const torch *t, uint32_t block) {
  return t->blocks[block].prev == 0 && t->blocks[block].next == 0 && t->blocks[block].range == 0;
}

/* Runs one pass of PyTorch's collector over a pool: frees every whole segment of at least `age`. */
static bool collect_older(torch *t, torch_pool *pool, double age, uint64_t *given, uint64_t *ages,
                          uint64_t *count) {
  bool any = false;
  order_at at;
  for (bool more = order_first(&pool->free, &at); more;) {
    order_key key = order_get(&pool->free, at);
    uint64_t own = t->searches[false] - t->blocks[key.id].birth;
    if (is_whole(t, key.id) && (double)own >= age) {
      any = true;
      *given += key.bytes;
      *ages -= own;
      --*count;
      torch_segment_give(t, key.id);
      more = order_seek(&pool->free, &at, key.bytes, key.addr);
    } else {
      more = order_next(&pool->free, &at);
    }
  }
  return any;
}

/* Above the threshold, frees whole large segments that were unused for longer than the average,
 * until the reserve is below it or nothing is left to free. Applies only to the default large
 * pools. */
void torch_collect(torch *t) {
  uint64_t threshold =
      (uint64_t)(t->options.settings.gc_threshold * (double)t->options.limit_bytes);
  if (t->stats.reserved_bytes <= threshold) return;
  uint64_t target = t->stats.reserved_bytes - threshold, given = 0, ages = 0, count = 0;
  for (uint32_t i = 0; i < t->pool_count; i += 2) {
    torch_pool *pool = &t->pools[i];
    if (pool->private) continue;
    order_at at;
    for (bool more = order_first(&pool->free, &at); more; more = order_next(&pool->free, &at)) {
      uint32_t block = order_get(&pool->free, at).id;
      if (!is_whole(t, block)) continue;
      ages += t->searches[false] - t->blocks[block].birth;
      count++;
    }
  }
  for (bool any = true; any && given < target && count > 0;) {
    double age = (double)ages / (double)count;
    any = false;
    for (uint32_t i = 0; i < t->pool_count; i += 2)
      if (!t->pools[i].private) any |= collect_older(t, &t->pools[i], age, &given, &ages, &count);
  }
}
