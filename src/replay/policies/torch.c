/* PyTorch's caching allocator: rounding, best fit, splitting, merging, and the path of a request.
 *
 * The order is PyTorch's (2.11): search, collect garbage, allocate a segment, free oversize blocks
 * and retry, free everything cached and retry. */
#include "replay/policies/torch.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/list.h"

/* ---- sizes ---- */

static uint32_t log2_floor(uint64_t n) {
  return 63 - (uint32_t)__builtin_clzll(n);
}

/* Rounds up to the next of `divisions` equal steps between two powers of two. */
static uint64_t round_to_division(uint64_t bytes, uint32_t divisions) {
  if (is_power_of_two(bytes)) return bytes;
  uint64_t floor = UINT64_C(1) << log2_floor(bytes);
  uint64_t step = floor >> log2_floor(divisions);
  return step == 0 ? floor << 1 : round_up(bytes, step);
}

uint64_t torch_round(const policy_settings *settings, uint64_t bytes) {
  if (bytes < TORCH_BLOCK_MIN) return TORCH_BLOCK_MIN;
  uint32_t log = log2_floor(bytes), class = log > 20 ? log - 20 : 0;
  uint32_t divisions = settings->divisions[class < POLICY_DIVISIONS ? class : POLICY_DIVISIONS - 1];
  if (divisions > 1 && bytes > TORCH_BLOCK_MIN * divisions)
    return round_to_division(bytes, divisions);
  return round_up(bytes, TORCH_BLOCK_MIN);
}

uint64_t torch_segment_bytes(uint64_t rounded) {
  if (rounded <= TORCH_SMALL_MAX) return TORCH_SMALL_SEGMENT;
  if (rounded < TORCH_LARGE_MIN) return TORCH_LARGE_SEGMENT;
  return round_up(rounded, TORCH_LARGE_ROUND);
}

/* ---- blocks ---- */

/* ---- counting ---- */

/* ---- a request ---- */

/* Returns the size of a block for best fit among blocks that can grow: with the unmapped part after
 * it. */
static uint64_t grown_bytes(const torch *t, uint32_t block) {
  const torch_block *b = &t->blocks[block];
  const torch_block *n = &t->blocks[b->next];
  return b->bytes + (b->next != 0 && !n->mapped ? n->bytes : 0);
}

static bool find_free(torch *t, torch_request *r) {
  torch_pool *pool = &t->pools[r->pool];
  if (t->gc && !pool->private) t->searches[pool->small]++;
  order_at at;
  if (!order_seek(&pool->free, &at, r->bytes, 0)) return false;
  if (t->expandable) {
    order_at next = at;
    while (order_next(&pool->free, &next) && grown_bytes(t, order_get(&pool->free, next).id) <
                                                 grown_bytes(t, order_get(&pool->free, at).id))
      at = next;
  }
  order_key key = order_get(&pool->free, at);
  uint64_t oversize = t->options.settings.max_split_bytes;
  if (r->bytes < oversize && key.bytes >= oversize) return false;
  if (r->bytes >= oversize && key.bytes >= r->bytes + t->options.settings.max_rounding_bytes)
    return false;
  r->block = key.id;
  order_remove_at(&pool->free, at);
  return true;
}

static bool should_split(const torch *t, const torch_request *r) {
  uint64_t rest = t->blocks[r->block].bytes - r->bytes;
  if (t->pools[r->pool].small || t->expandable) return rest >= TORCH_BLOCK_MIN;
  return r->bytes < t->options.settings.max_split_bytes && rest > TORCH_SMALL_MAX;
}

/* Splits the found block: its front becomes the allocation; the rest keeps its number and is
 * free. */
static bool split(torch *t, torch_request *r) {
  uint32_t rest = r->block, front = torch_block_new(t);
  if (front == 0) return false;
  torch_block *b = &t->blocks[rest], *f = &t->blocks[front];
  *f = (torch_block){.addr = b->addr,
                     .bytes = r->bytes,
                     .prev = b->prev,
                     .next = rest,
                     .pool = b->pool,
                     .range = b->range,
                     .mapped = true};
  if (f->prev != 0) t->blocks[f->prev].next = front;
  b->prev = front;
  b->addr += r->bytes;
  b->bytes -= r->bytes;
  r->block = front;
  return torch_block_put(t, rest);
}

static policy_answer take_memory(torch *t, torch_request *r) {
  return t->expandable ? torch_range_take(t, r) : torch_segment_take(t, r);
}

/* Requests memory from the driver because nothing cached fits. */
static policy_answer take_or_retry(torch *t, torch_request *r) {
  if (t->gc) torch_collect(t);
  policy_answer answer = take_memory(t, r);
  if (answer != POLICY_FULL) return answer;
  if (torch_release_available(t, r)) answer = take_memory(t, r);
  if (answer != POLICY_FULL) return answer;
  t->stats.retries++;
  answer = torch_release_cached(t);
  return answer != POLICY_DONE ? answer : take_memory(t, r);
}

static policy_answer torch_alloc(policy *p, uint32_t id, uint64_t bytes, uint32_t lane) {
  torch *t = (torch *)p;
  if (bytes > POLICY_NO_LIMIT) return POLICY_FULL;
  torch_request r = {.bytes = torch_round(&t->options.settings, bytes)};
  r.segment_bytes = torch_segment_bytes(r.bytes);
  r.pool = lane * 2 + (r.bytes <= TORCH_SMALL_MAX);
  if (!find_free(t, &r)) {
    policy_answer answer = take_or_retry(t, &r);
    if (answer != POLICY_DONE) {
      torch_note_hole(t);
      return answer;
    }
  }
  if (should_split(t, &r) && !split(t, &r)) return POLICY_BROKEN;
  t->blocks[r.block].state = TORCH_LIVE;
  t->blocks[r.block].owner = id;
  t->block_of[id] = r.block;
  return POLICY_DONE;
}

static policy_answer free_block(torch *t, uint32_t block) {
  t->block_of[t->blocks[block].owner] = 0;
  torch_block_merge(t, block, t->blocks[block].prev);
  torch_block_merge(t, block, t->blocks[block].next);
  return torch_block_put(t, block) ? POLICY_DONE : POLICY_BROKEN;
}

/* Removes a block from the pending list. Keeps the order of the rest, in which they complete. */
static void forget_pending(torch *t, uint32_t block) {
  for (uint32_t i = 0; i < t->pending_count; i++)
    if (t->pending[i] == block) {
      t->pending_count--;
      memmove(&t->pending[i], &t->pending[i + 1], (t->pending_count - i) * sizeof *t->pending);
      return;
    }
}

static policy_answer torch_release(policy *p, uint32_t id) {
  torch *t = (torch *)p;
  uint32_t block = t->block_of[id];
  if (block == 0) return POLICY_DONE; /* the retry path waited for it and freed it already */
  if (t->blocks[block].state == TORCH_PENDING) forget_pending(t, block);
  return free_block(t, block);
}

static policy_answer torch_pend(policy *p, uint32_t id) {
  torch *t = (torch *)p;
  if (t->block_of[id] == 0) return POLICY_DONE;
  if (LIST_ROOM(t->pending, t->pending_count, t->pending_capacity, 64, "waiting blocks") != STOW_OK)
    return POLICY_BROKEN;
  t->blocks[t->block_of[id]].state = TORCH_PENDING;
  t->pending[t->pending_count++] = t->block_of[id];
  return POLICY_DONE;
}

static policy_answer torch_wait(torch *t) {
  for (uint32_t i = 0; i < t->pending_count; i++)
    if (free_block(t, t->pending[i]) != POLICY_DONE) return POLICY_BROKEN;
  t->pending_count = 0;
  return POLICY_DONE;
}

static policy_answer release_pools(torch *t, bool small) {
  for (uint32_t i = small; i < t->pool_count; i += 2) {
    torch_pool *pool = &t->pools[i];
    if (pool->private) continue; /* a graph may replay into it */
    /* Freeing changes the order, so first list what to free. */
    order_at at;
    bool more = order_first(&pool->free, &at);
    if (!more) continue;
    uint32_t count = 0, *going = malloc(pool->free.count * sizeof *going);
    if (going == NULL) {
      stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to walk %zu free blocks", pool->free.count);
      return POLICY_BROKEN;
    }
    for (; more; more = order_next(&pool->free, &at)) {
      uint32_t block = order_get(&pool->free, at).id;
      const torch_block *b = &t->blocks[block];
      if (b->range != 0 || (b->prev == 0 && b->next == 0)) going[count++] = block;
    }
    policy_answer answer = POLICY_DONE;
    for (uint32_t k = 0; k < count && answer == POLICY_DONE; k++) {
      if (t->blocks[going[k]].range != 0)
        answer = torch_range_unmap(t, going[k]);
      else
        torch_segment_give(t, going[k]);
    }
    free(going);
    if (answer != POLICY_DONE) return answer;
  }
  return POLICY_DONE;
}

policy_answer torch_release_cached(torch *t) {
  if (torch_wait(t) != POLICY_DONE || release_pools(t, false) != POLICY_DONE) return POLICY_BROKEN;
  return release_pools(t, true);
}

static policy_answer torch_trim(policy *p) {
  return torch_release_cached((torch *)p);
}

/* ---- opening and closing ---- */

static void torch_close(policy *p) {
  torch *t = (torch *)p;
  for (uint32_t i = 0; t->pools != NULL && i < t->pool_count; i++) {
    order_free(&t->pools[i].free);
    order_free(&t->pools[i].unmapped);
  }
  free(t->pools);
  free(t->blocks);
  free(t->ranges);
  free(t->block_of);
  free(t->pending);
  free(t);
}

static stow_status torch_open(policy **out, const policy_ops *ops, const policy_options *options,
                              bool expandable) {
  torch *t = calloc(1, sizeof *t);
  if (t == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a policy");
  t->base.ops = ops;
  t->options = *options;
  t->expandable = expandable;
  t->gc = options->settings.gc_threshold > 0 && options->limit_in_framework &&
          options->limit_bytes != POLICY_NO_LIMIT;
  t->pool_count = options->lane_count * 2;
  t->block_capacity = 256;
  t->block_count = 1; /* number 0 means "none" */
  t->next_addr = UINT64_C(1) << 63;
  t->pools = calloc(t->pool_count, sizeof *t->pools);
  t->block_of = calloc((size_t)options->id_count + 1, sizeof *t->block_of);
  t->blocks = calloc(t->block_capacity, sizeof *t->blocks);
  if (t->pools == NULL || t->block_of == NULL || t->blocks == NULL) {
    torch_close(&t->base);
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to replay %u blocks at once",
                     options->id_count);
  }
  for (uint32_t i = 0; i < t->pool_count; i++) {
    const policy_lane *lane = &options->lanes[i / 2];
    t->pools[i].small = i & 1;
    t->pools[i].private = lane->pool[0] != 0 || lane->pool[1] != 0;
  }
  *out = &t->base;
  return STOW_OK;
}

static stow_status open_default(policy **out, const policy_options *options) {
  return torch_open(out, &policy_torch_default, options, false);
}

static stow_status open_expandable(policy **out, const policy_options *options) {
  return torch_open(out, &policy_torch_expandable, options, true);
}

static uint64_t torch_address(const policy *p, uint32_t id) {
  const torch *t = (const torch *)p;
  return t->blocks[t->block_of[id]].addr;
}

static void torch_stats(const policy *p, policy_stats *out) {
  const torch *t = (const torch *)p;
  *out = t->stats;
  /* Garbage collection depends on the limit itself, so no other limit is known to behave the
   * same. */
  if (t->gc) out->same_down_to_bytes = t->options.limit_bytes;
}

const policy_ops policy_torch_default = {
    .name = "torch_default",
    .about = "PyTorch's caching allocator with its default settings",
    .open = open_default,
    .alloc = torch_alloc,
    .release = torch_release,
    .pend = torch_pend,
    .trim = torch_trim,
    .address = torch_address,
    .stats = torch_stats,
    .close = torch_close,
};

const policy_ops policy_torch_expandable = {
    .name = "torch_expandable",
    .about = "PyTorch with expandable_segments:True",
    .open = open_expandable,
    .alloc = torch_alloc,
    .release = torch_release,
    .pend = torch_pend,
    .trim = torch_trim,
    .address = torch_address,
    .stats = torch_stats,
    .close = torch_close,
};
