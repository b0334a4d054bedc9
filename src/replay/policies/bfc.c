/* bfc: the best-fit-with-coalescing allocator of XLA (JAX) and TensorFlow.
 *
 * Sizes round to 256 B. Takes the smallest free chunk that fits, lowest address first (the
 * original's power-of-two bins, ordered by size and address, are equivalent), and splits it if it
 * is at least twice the request or 128 MiB larger. If nothing fits, it allocates a region from the
 * driver: the first is 2 MiB, each next one twice as large, and none is ever freed. With
 * `preallocate` one region is the whole limit. All streams share it: XLA frees on the host, ordered
 * by its single compute stream. */
#include <stdlib.h>

#include "base/checked.h"
#include "base/driver_cost.h"
#include "replay/policies/fit.h"
#include "replay/policies/policy.h"

/* Constants of TSL's BFCAllocator. */
#define CHUNK_MIN    UINT64_C(256)
#define REGION_FIRST (UINT64_C(2) << 20)
#define WASTE_MAX    (UINT64_C(128) << 20)

typedef struct bfc {
  policy base;
  policy_options options;
  policy_stats stats;
  fit fit;
  uint64_t region_bytes; /* size of the next region */
  uint64_t next_addr;
} bfc;

static policy_answer take_region(bfc *b, uint64_t bytes) {
  if (b->next_addr < bytes * 2) b->next_addr = UINT64_C(1) << 63;
  b->next_addr = round_down(b->next_addr - bytes, UINT64_C(2) << 20);
  b->stats.page_calls++;
  b->stats.page_time_ns += driver_cost_ns(DRIVER_ALLOC, bytes);
  b->stats.reserved_bytes += bytes;
  b->stats.peak_reserved_bytes = b->stats.reserved_bytes; /* nothing is ever freed */
  b->stats.largest_hole_bytes = fit_largest(&b->fit);
  return fit_add(&b->fit, b->next_addr, bytes, 0) != 0 ? POLICY_DONE : POLICY_BROKEN;
}

/* Allocates a region for a request of `bytes`: the planned size if it fits, else what is left. */
static policy_answer extend(bfc *b, uint64_t bytes) {
  uint64_t left = round_down(b->options.limit_bytes - b->stats.reserved_bytes, CHUNK_MIN);
  if (bytes > left) return POLICY_FULL;
  bool raised = false;
  for (; b->region_bytes < bytes; raised = true) b->region_bytes *= 2;
  uint64_t take = b->region_bytes;
  if (take > left) {
    take = left;
    b->stats.same_down_to_bytes = b->options.limit_bytes; /* this depends on the limit itself */
  } else if (b->stats.reserved_bytes + take > b->stats.same_down_to_bytes) {
    b->stats.same_down_to_bytes = b->stats.reserved_bytes + take;
  }
  if (!raised && b->region_bytes < POLICY_NO_LIMIT / 2) b->region_bytes *= 2;
  return take_region(b, take);
}

static policy_answer bfc_alloc(policy *p, uint32_t id, uint64_t bytes, uint32_t lane) {
  (void)lane;
  bfc *b = (bfc *)p;
  if (bytes > POLICY_NO_LIMIT / 2) return POLICY_FULL;
  uint64_t rounded = bytes == 0 ? CHUNK_MIN : round_up(bytes, CHUNK_MIN);
  uint32_t chunk = fit_find(&b->fit, rounded);
  if (chunk == 0) {
    policy_answer answer = extend(b, rounded);
    if (answer != POLICY_DONE) {
      b->stats.largest_hole_bytes = fit_largest(&b->fit);
      return answer;
    }
    chunk = fit_find(&b->fit, rounded);
  }
  uint64_t have = b->fit.chunks[chunk].bytes;
  if ((have >= rounded * 2 || have - rounded >= WASTE_MAX) && !fit_split(&b->fit, chunk, rounded))
    return POLICY_BROKEN;
  fit_own(&b->fit, chunk, id);
  return POLICY_DONE;
}

static policy_answer bfc_release(policy *p, uint32_t id) {
  return fit_release(&((bfc *)p)->fit, id) ? POLICY_DONE : POLICY_BROKEN;
}

static void bfc_close(policy *p) {
  fit_free(&((bfc *)p)->fit);
  free(p);
}

static stow_status bfc_open(policy **out, const policy_options *options) {
  bfc *b = calloc(1, sizeof *b);
  if (b == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a policy");
  b->base.ops = &policy_bfc;
  b->options = *options;
  b->next_addr = UINT64_C(1) << 63;
  b->region_bytes = REGION_FIRST;
  stow_status status = fit_init(&b->fit, options->id_count);
  if (status != STOW_OK) {
    bfc_close(&b->base);
    return status;
  }
  if (options->settings.preallocate && options->limit_bytes != POLICY_NO_LIMIT) {
    b->region_bytes = round_down(options->limit_bytes, CHUNK_MIN);
    b->stats.same_down_to_bytes = options->limit_bytes;
  }
  *out = &b->base;
  return STOW_OK;
}

static uint64_t bfc_address(const policy *p, uint32_t id) {
  const fit *f = &((const bfc *)p)->fit;
  return f->chunks[f->chunk_of[id]].addr;
}

static void bfc_stats(const policy *p, policy_stats *out) {
  *out = ((const bfc *)p)->stats;
}

const policy_ops policy_bfc = {
    .name = "bfc",
    .about = "XLA and TensorFlow: best fit with coalescing",
    .open = bfc_open,
    .alloc = bfc_alloc,
    .release = bfc_release,
    .address = bfc_address,
    .stats = bfc_stats,
    .close = bfc_close,
};
