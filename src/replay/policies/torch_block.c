/* Torch block: blocks of PyTorch's allocator in their pools, merging, and the counters of reserve
 * and cost. */
#include "base/list.h"
#include "replay/policies/torch.h"

uint32_t torch_block_new(torch *t) {
  uint32_t block = t->spare;
  if (block != 0) {
    t->spare = t->blocks[block].next;
  } else {
    if (LIST_ROOM(t->blocks, t->block_count, t->block_capacity, 256, "blocks") != STOW_OK) return 0;
    block = t->block_count++;
  }
  t->blocks[block] = (torch_block){.mapped = true};
  return block;
}

void torch_block_drop(torch *t, uint32_t block) {
  t->blocks[block].next = t->spare;
  t->spare = block;
}

bool torch_block_put(torch *t, uint32_t block) {
  torch_block *b = &t->blocks[block];
  torch_pool *pool = &t->pools[b->pool];
  b->state = TORCH_FREE;
  if (!b->mapped) return order_put(&pool->unmapped, (order_key){0, b->addr, block}) == STOW_OK;
  b->birth = t->searches[pool->small];
  return order_put(&pool->free, (order_key){b->bytes, b->addr, block}) == STOW_OK;
}

void torch_block_take(torch *t, uint32_t block) {
  torch_block *b = &t->blocks[block];
  torch_pool *pool = &t->pools[b->pool];
  if (b->mapped)
    order_remove(&pool->free, (order_key){b->bytes, b->addr, block});
  else
    order_remove(&pool->unmapped, (order_key){0, b->addr, block});
}

void torch_block_merge(torch *t, uint32_t into, uint32_t neighbour) {
  if (neighbour == 0) return;
  torch_block *b = &t->blocks[into], *n = &t->blocks[neighbour];
  if (n->state != TORCH_FREE || n->mapped != b->mapped) return;
  torch_block_take(t, neighbour);
  if (b->prev == neighbour) {
    b->addr = n->addr;
    b->prev = n->prev;
    if (b->prev != 0) t->blocks[b->prev].next = into;
  } else {
    b->next = n->next;
    if (b->next != 0) t->blocks[b->next].prev = into;
  }
  b->bytes += n->bytes;
  torch_block_drop(t, neighbour);
}

void torch_note_hole(torch *t) {
  t->stats.largest_hole_bytes = 0;
  for (uint32_t i = 0; i < t->pool_count; i++) {
    order_at at;
    if (!order_last(&t->pools[i].free, &at)) continue;
    uint64_t bytes = order_get(&t->pools[i].free, at).bytes;
    if (bytes > t->stats.largest_hole_bytes) t->stats.largest_hole_bytes = bytes;
  }
}

void torch_reserved(torch *t, int64_t bytes) {
  t->stats.reserved_bytes += (uint64_t)bytes;
  if (t->stats.reserved_bytes > t->stats.peak_reserved_bytes) {
    t->stats.peak_reserved_bytes = t->stats.reserved_bytes;
    torch_note_hole(t);
  }
}

void torch_charge(torch *t, driver_call call, uint64_t bytes) {
  t->stats.page_calls++;
  t->stats.page_time_ns += driver_cost_ns(call, bytes);
}

bool torch_fits(torch *t, uint64_t more) {
  uint64_t total = t->stats.reserved_bytes + more;
  if (more > POLICY_NO_LIMIT || total > t->options.limit_bytes) return false;
  if (total > t->stats.same_down_to_bytes) t->stats.same_down_to_bytes = total;
  return true;
}
