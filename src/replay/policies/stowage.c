/* stowage: the real heap (memory/) on a simulated device, not a model of it.
 *
 * The device only counts pages and has no bytes behind them, so a replay of any size costs no
 * memory. Its calls take as long as on an H200, and its clock follows the recording's. Each lane is
 * a stream of the device. There is no host tier and no thread: the result shows how far device
 * memory goes. A block that another stream may still use is freed when the recording says it was
 * released. */
#include <stdlib.h>

#include <stowage/heap.h>
#include <stowage/sys/device.h>

#include "base/checked.h"
#include "device/device.h"
#include "replay/policies/policy.h"

/* Unlimited: larger than any device. */
#define DEVICE_BYTES_MAX (UINT64_C(64) << 40)

typedef struct stowage {
  policy base;
  policy_options options;
  stow_device *device;
  stow_heap *heap;
  stow_stream *streams; /* by lane */
  uint64_t *addrs;      /* by id */
  uint32_t *lanes;      /* by id: where it was allocated */
  uint64_t device_bytes, start_ns, now_ns;
  uint64_t hole_bytes; /* at the refusal */
  bool started, refused;
} stowage;

static policy_answer stowage_alloc(policy *p, uint32_t id, uint64_t bytes, uint32_t lane) {
  stowage *s = (stowage *)p;
  if (bytes > s->device_bytes) return POLICY_FULL;
  stow_status status =
      stow_heap_alloc(&s->addrs[id], s->heap, bytes == 0 ? 1 : bytes, s->streams[lane]);
  s->lanes[id] = lane;
  if (status == STOW_OK) return POLICY_DONE;
  s->addrs[id] = 0;
  if (status != STOW_ERR_OUT_OF_MEMORY) return POLICY_BROKEN;
  stow_heap_failure failure = STOW_HEAP_FAILURE_INIT;
  if (stow_heap_last_failure(s->heap, &failure) == STOW_OK)
    s->hole_bytes = failure.largest_free_bytes;
  s->refused = true;
  return POLICY_FULL;
}

static policy_answer stowage_release(policy *p, uint32_t id) {
  stowage *s = (stowage *)p;
  uint64_t addr = s->addrs[id];
  if (addr == 0) return POLICY_DONE;
  s->addrs[id] = 0;
  stow_status status = stow_heap_free(s->heap, addr, s->streams[s->lanes[id]]);
  return status == STOW_OK ? POLICY_DONE : POLICY_BROKEN;
}

static policy_answer stowage_trim(policy *p) {
  stowage *s = (stowage *)p;
  return stow_heap_trim(s->heap, 0, NULL) == STOW_OK ? POLICY_DONE : POLICY_BROKEN;
}

/* Advances to the program's own time; calls and waits come on top. The clock never goes back. */
static void stowage_advance(policy *p, uint64_t time_ns) {
  stowage *s = (stowage *)p;
  if (!s->started) s->start_ns = s->now_ns = time_ns;
  s->started = true;
  if (time_ns < s->now_ns + 1000) return;
  uint64_t us = (time_ns - s->now_ns) / 1000;
  s->now_ns += us * 1000;
  stow_sim_advance(s->device, us);
}

static uint64_t stowage_address(const policy *p, uint32_t id) {
  return ((const stowage *)p)->addrs[id];
}

static void stowage_stats(const policy *p, policy_stats *out) {
  const stowage *s = (const stowage *)p;
  *out = (policy_stats){0};
  stow_heap_stats heap = STOW_HEAP_STATS_INIT;
  stow_sim_counts counts = STOW_SIM_COUNTS_INIT;
  if (stow_heap_get_stats(s->heap, &heap) == STOW_OK) {
    const stow_heap_tier_stats *vram = &heap.tier[STOW_TIER_VRAM];
    out->reserved_bytes = vram->held_bytes;
    out->peak_reserved_bytes = vram->peak_held_bytes;
    /* Unmapped pages serve any request, so they count as one hole. */
    out->largest_hole_bytes = s->refused ? s->hole_bytes : vram->cached_bytes;
    /* The limit is only compared with what is held and would be held. */
    out->same_down_to_bytes = vram->peak_held_bytes;
  }
  if (stow_sim_get_counts(s->device, &counts) == STOW_OK) {
    out->page_calls = counts.page_create + counts.page_release + counts.map + counts.unmap +
                      counts.access + counts.plain_alloc + counts.plain_free;
    out->page_time_ns = counts.call_ns + counts.wait_ns;
  }
}

static void stowage_close(policy *p) {
  stowage *s = (stowage *)p;
  for (uint32_t i = 0; s->addrs != NULL && i < s->options.id_count; i++)
    if (s->addrs[i] != 0) stow_heap_free(s->heap, s->addrs[i], s->streams[s->lanes[i]]);
  if (s->heap != NULL) stow_heap_close(s->heap);
  for (uint32_t i = 0; s->streams != NULL && i < s->options.lane_count; i++)
    if (s->streams[i] != NULL) device_stream_destroy(s->device, s->streams[i]);
  if (s->device != NULL) stow_device_close(s->device);
  free(s->streams);
  free(s->addrs);
  free(s->lanes);
  free(s);
}

static stow_status open_device(stowage *s) {
  stow_sim_options sim = STOW_SIM_OPTIONS_INIT;
  sim.vram_bytes = s->device_bytes;
  sim.host_bytes = 0;
  sim.paper = true;
  sim.costs = true;
  STOW_TRY(stow_sim_open(&s->device, &sim));
  for (uint32_t i = 1; i < s->options.lane_count; i++) /* lane 0: the default stream */
    STOW_TRY(device_stream_create(s->device, &s->streams[i]));
  stow_heap_options heap = STOW_HEAP_OPTIONS_INIT;
  heap.device = s->device;
  heap.vram_limit_bytes = s->device_bytes;
  heap.background = false;
  return stow_heap_open(&s->heap, &heap);
}

static stow_status stowage_open(policy **out, const policy_options *options) {
  stowage *s = calloc(1, sizeof *s);
  if (s == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a policy");
  s->base.ops = &policy_stowage;
  s->options = *options;
  uint64_t limit =
      options->limit_bytes < DEVICE_BYTES_MAX ? options->limit_bytes : DEVICE_BYTES_MAX;
  s->device_bytes = round_down(limit, UINT64_C(2) << 20);
  if (s->device_bytes == 0) s->device_bytes = UINT64_C(2) << 20;
  s->streams = calloc(options->lane_count, sizeof *s->streams);
  s->addrs = calloc((size_t)options->id_count + 1, sizeof *s->addrs);
  s->lanes = calloc((size_t)options->id_count + 1, sizeof *s->lanes);
  stow_status status = STOW_OK;
  if (s->streams == NULL || s->addrs == NULL || s->lanes == NULL)
    status = stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to replay %u blocks at once",
                       options->id_count);
  if (status == STOW_OK) status = open_device(s);
  if (status != STOW_OK) {
    stowage_close(&s->base);
    return status;
  }
  *out = &s->base;
  return STOW_OK;
}

const policy_ops policy_stowage = {
    .name = "stowage",
    .about = "Stowage's own heap, the real one, on a simulated device",
    .open = stowage_open,
    .alloc = stowage_alloc,
    .release = stowage_release,
    .trim = stowage_trim,
    .advance = stowage_advance,
    .address = stowage_address,
    .stats = stowage_stats,
    .close = stowage_close,
};
