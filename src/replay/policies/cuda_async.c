/* cuda_async: the driver's stream-ordered pool (cudaMallocAsync) as PyTorch's
 * backend:cudaMallocAsync uses it, with a release threshold that keeps everything.
 *
 * NVIDIA does not document the pool. This models what it did on an H200 (driver 580,
 * tests/gpu/record_async.py); docs/policies.md says how well it fits. Sizes round to 512 B. A freed
 * block waits and merges only with other waiting blocks. A request searches the waiting blocks
 * first: the smallest that fits, among equals the first freed. Then it searches the blocks merged
 * earlier: the smallest, among equals the last merged. If neither has one, the waiting blocks merge
 * with their free neighbours and are searched again. Finally the request is placed over addresses
 * without pages, in the shortest run that holds it: idle 32 MiB pages that no block touches are
 * moved there, and only the missing pages are created. So the reserve grows in steps of 32 MiB, and
 * never while enough whole pages are idle. */
#include "replay/policies/cuda_async.h"

#include <stdlib.h>

#include "base/checked.h"

/* Takes the smallest block of an order that holds `bytes` and cuts it to size. Returns 0 if there
 * is none, or (*broken) without host memory. */
static uint32_t take_best(async_pool *a, order *o, uint64_t bytes, bool *broken) {
  order_at at;
  if (!order_seek(o, &at, bytes, 0)) return 0;
  uint32_t block = order_get(o, at).id;
  order_remove_at(o, at);
  const async_block *b = &a->blocks[block];
  uint8_t state = b->state;
  if (b->bytes > bytes && async_cut(a, block, b->addr + bytes, state) == 0) *broken = true;
  return block;
}

/* Frees the waiting blocks in the order they were freed, merging each with its free neighbours. */
static bool settle(async_pool *a, uint32_t lane) {
  order *waiting = &a->lanes[lane].waiting;
  size_t count = 0;
  uint32_t *list = waiting->count > 0 ? malloc(waiting->count * sizeof *list) : NULL;
  if (waiting->count > 0 && list == NULL) {
    stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to walk %zu freed blocks", waiting->count);
    return false;
  }
  order_at at;
  for (bool more = order_first(waiting, &at); more; more = order_next(waiting, &at))
    /* The loop does not run if none waits. NOLINTNEXTLINE(clang-analyzer-core.NullDereference) */
    list[count++] = order_get(waiting, at).id;
  /* Insertion sort by turn: few blocks wait, and they are nearly sorted. */
  for (size_t i = 1; i < count; i++) {
    uint32_t block = list[i];
    size_t j = i;
    for (; j > 0 && a->blocks[list[j - 1]].turn > a->blocks[block].turn; j--) list[j] = list[j - 1];
    list[j] = block;
  }
  bool done = true;
  for (size_t i = 0; i < count && done; i++) {
    uint32_t block = list[i];
    async_take(a, block);
    a->blocks[block].state = ASYNC_FREE;
    a->blocks[block].turn = ++a->turn;
    async_merge(a, block, a->blocks[block].prev, ASYNC_FREE);
    async_merge(a, block, a->blocks[block].next, ASYNC_FREE);
    done = async_put(a, block);
  }
  free(list);
  return done;
}

static uint64_t largest_hole(const async_pool *a) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < a->options.lane_count; i++) {
    order_at at;
    const order *both[2] = {&a->lanes[i].waiting, &a->lanes[i].free};
    for (int k = 0; k < 2; k++)
      if (order_last(both[k], &at) && order_get(both[k], at).bytes > most)
        most = order_get(both[k], at).bytes;
  }
  return most;
}

static policy_answer find_block(async_pool *a, uint32_t lane, uint64_t bytes, uint32_t *block) {
  async_lane *l = &a->lanes[lane];
  bool broken = false;
  *block = take_best(a, &l->waiting, bytes, &broken);
  if (*block == 0) *block = take_best(a, &l->free, bytes, &broken);
  if (*block == 0) {
    if (!settle(a, lane)) return POLICY_BROKEN;
    *block = take_best(a, &l->free, bytes, &broken);
  }
  if (broken) return POLICY_BROKEN;
  if (*block != 0) return POLICY_DONE;
  policy_answer answer = async_map(a, lane, bytes, block);
  if (answer == POLICY_FULL || a->stats.reserved_bytes > a->stats.peak_reserved_bytes) {
    a->stats.peak_reserved_bytes = a->stats.reserved_bytes;
    a->stats.largest_hole_bytes = largest_hole(a);
  }
  return answer;
}

static policy_answer async_alloc(policy *p, uint32_t id, uint64_t bytes, uint32_t lane) {
  async_pool *a = (async_pool *)p;
  if (bytes > UINT64_C(1) << 44) return POLICY_FULL;
  uint32_t block;
  policy_answer answer =
      find_block(a, lane, bytes == 0 ? ASYNC_ALIGN : round_up(bytes, ASYNC_ALIGN), &block);
  if (answer != POLICY_DONE) return answer;
  a->blocks[block].state = ASYNC_LIVE;
  a->block_of[id] = block;
  return POLICY_DONE;
}

static policy_answer async_release(policy *p, uint32_t id) {
  async_pool *a = (async_pool *)p;
  uint32_t block = a->block_of[id];
  if (block == 0) return POLICY_DONE;
  a->block_of[id] = 0;
  a->blocks[block].state = ASYNC_WAITING;
  a->blocks[block].turn = ++a->turn;
  async_merge(a, block, a->blocks[block].next, ASYNC_WAITING);
  async_merge(a, block, a->blocks[block].prev, ASYNC_WAITING);
  return async_put(a, block) ? POLICY_DONE : POLICY_BROKEN;
}

static void async_close(policy *p) {
  async_pool *a = (async_pool *)p;
  for (uint32_t i = 0; a->lanes != NULL && i < a->options.lane_count; i++) {
    order_free(&a->lanes[i].waiting);
    order_free(&a->lanes[i].free);
    order_free(&a->lanes[i].holes);
  }
  free(a->lanes);
  free(a->blocks);
  free(a->block_of);
  free(a);
}

static stow_status async_open(policy **out, const policy_options *options) {
  async_pool *a = calloc(1, sizeof *a);
  if (a == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a policy");
  a->base.ops = &policy_cuda_async;
  a->options = *options;
  a->block_capacity = 256;
  a->block_count = 1;
  a->blocks = calloc(a->block_capacity, sizeof *a->blocks);
  a->lanes = calloc(options->lane_count, sizeof *a->lanes);
  a->block_of = calloc((size_t)options->id_count + 1, sizeof *a->block_of);
  bool opened = a->blocks != NULL && a->lanes != NULL && a->block_of != NULL;
  for (uint32_t i = 0; opened && i < options->lane_count; i++) opened = async_range_open(a, i);
  if (!opened) {
    async_close(&a->base);
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to replay %u blocks at once",
                     options->id_count);
  }
  *out = &a->base;
  return STOW_OK;
}

static uint64_t async_address(const policy *p, uint32_t id) {
  const async_pool *a = (const async_pool *)p;
  return a->blocks[a->block_of[id]].addr;
}

static void async_stats(const policy *p, policy_stats *out) {
  *out = ((const async_pool *)p)->stats;
}

const policy_ops policy_cuda_async = {
    .name = "cuda_async",
    .about = "the driver's stream-ordered pool, as observed on a GPU",
    .open = async_open,
    .alloc = async_alloc,
    .release = async_release,
    .address = async_address,
    .stats = async_stats,
    .close = async_close,
};
