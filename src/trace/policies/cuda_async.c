/* cuda_async: a model of the driver's stream-ordered pool (cudaMallocAsync) as PyTorch's
 * backend:cudaMallocAsync uses it, with a release threshold that keeps everything.
 *
 * The driver's pool is not documented; this is what its figures on a card show. The reserve grows
 * in steps of 32 MiB (every peak measured is a multiple of it), freed memory is reused and merged,
 * and a request that fits nowhere is served by growing at the end of what is there. Blocks are 512
 * B aligned. A block freed on a stream is reusable on it at once; on another stream the driver
 * waits for the free to be passed, which the recording's free_completed already tells. At a limit
 * nothing can be given back but free pages at the end: the request fails if what is missing there
 * does not fit. docs/policies.md says how far the model was held against a card. */
#include <stdlib.h>

#include "base/checked.h"
#include "trace/policies/cost.h"
#include "trace/policies/fit.h"
#include "trace/policies/policy.h"

#define BLOCK_ALIGN UINT64_C(512)
#define GROWTH_STEP (UINT64_C(32) << 20)
#define FIRST_ADDR  (UINT64_C(1) << 32)

typedef struct async_pool {
  policy base;
  policy_options options;
  policy_stats stats;
  fit fit;
  uint32_t tail; /* the chunk at the end */
} async_pool;

/* The chunk at the end may have been split or merged since: walk to it. */
static uint32_t find_tail(async_pool *a) {
  while (a->tail != 0 && a->fit.chunks[a->tail].next != 0) a->tail = a->fit.chunks[a->tail].next;
  return a->tail;
}

static policy_answer grow(async_pool *a, uint64_t bytes) {
  uint32_t tail = find_tail(a);
  uint64_t have = tail != 0 && !a->fit.chunks[tail].live ? a->fit.chunks[tail].bytes : 0;
  uint64_t more = round_up(bytes - have, GROWTH_STEP);
  uint64_t total = a->stats.reserved_bytes + more;
  if (total > a->options.limit_bytes) return POLICY_FULL;
  if (total > a->stats.same_down_to_bytes) a->stats.same_down_to_bytes = total;
  a->tail = fit_add(&a->fit, FIRST_ADDR + a->stats.reserved_bytes, more, tail);
  if (a->tail == 0) return POLICY_BROKEN;
  a->stats.reserved_bytes = total;
  a->stats.peak_reserved_bytes = total;
  a->stats.largest_hole_bytes = fit_largest(&a->fit);
  for (uint64_t at = 0; at < more; at += GROWTH_STEP) {
    a->stats.page_calls += 2;
    a->stats.page_time_ns += cost_ns(COST_CREATE, GROWTH_STEP) + cost_ns(COST_MAP, GROWTH_STEP) +
                             cost_ns(COST_ACCESS, GROWTH_STEP);
  }
  return POLICY_DONE;
}

static policy_answer async_alloc(policy *p, uint32_t id, uint64_t bytes, uint32_t lane) {
  (void)lane;
  async_pool *a = (async_pool *)p;
  if (bytes > POLICY_NO_LIMIT / 2) return POLICY_FULL;
  uint64_t rounded = bytes == 0 ? BLOCK_ALIGN : round_up(bytes, BLOCK_ALIGN);
  uint32_t chunk = fit_find(&a->fit, rounded);
  if (chunk == 0) {
    policy_answer answer = grow(a, rounded);
    if (answer != POLICY_DONE) {
      a->stats.largest_hole_bytes = fit_largest(&a->fit);
      return answer;
    }
    chunk = fit_find(&a->fit, rounded);
  }
  if (a->fit.chunks[chunk].bytes > rounded && !fit_split(&a->fit, chunk, rounded))
    return POLICY_BROKEN;
  if (a->tail == 0) a->tail = chunk;
  fit_own(&a->fit, chunk, id);
  return POLICY_DONE;
}

static policy_answer async_release(policy *p, uint32_t id) {
  async_pool *a = (async_pool *)p;
  uint32_t chunk = a->fit.chunk_of[id];
  if (chunk == 0) return POLICY_DONE;
  /* Merging drops numbers: hold on to one that stays. */
  uint32_t prev = a->fit.chunks[chunk].prev;
  bool merges = prev != 0 && !a->fit.chunks[prev].live;
  if (a->tail == chunk || a->tail == a->fit.chunks[chunk].next) a->tail = merges ? prev : chunk;
  return fit_release(&a->fit, id) ? POLICY_DONE : POLICY_BROKEN;
}

static void async_close(policy *p) {
  fit_free(&((async_pool *)p)->fit);
  free(p);
}

static stow_status async_open(policy **out, const policy_options *options) {
  async_pool *a = calloc(1, sizeof *a);
  if (a == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a policy");
  a->base.ops = &policy_cuda_async;
  a->options = *options;
  stow_status status = fit_init(&a->fit, options->id_count);
  if (status != STOW_OK) {
    async_close(&a->base);
    return status;
  }
  *out = &a->base;
  return STOW_OK;
}

static uint64_t async_address(const policy *p, uint32_t id) {
  const fit *f = &((const async_pool *)p)->fit;
  return f->chunks[f->chunk_of[id]].addr;
}

static void async_stats(const policy *p, policy_stats *out) {
  *out = ((const async_pool *)p)->stats;
}

const policy_ops policy_cuda_async = {
    .name = "cuda_async",
    .about = "the driver's stream-ordered pool (a model)",
    .open = async_open,
    .alloc = async_alloc,
    .release = async_release,
    .address = async_address,
    .stats = async_stats,
    .close = async_close,
};
