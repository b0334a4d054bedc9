/* Open: opens and closes a heap (stowage/heap.h). */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/growing.h"
#include "memory/heap.h"

#define PAGE_BYTES_MAX (UINT64_C(64) << 20)

/* Every handle ever returned, kept so that a closed handle differs from an invalid pointer. */
static lock registry_lock = LOCK_INIT(LOCK_REGISTRY);
static stow_heap *registry; /* guarded by registry_lock */

/* ---- opening ---- */

static stow_status options_check(const stow_heap_options *o) {
  if (o->page_bytes_max && !is_power_of_two(o->page_bytes_max))
    return stow_fail(STOW_ERR_INVALID, "heap options: page_bytes_max %llu is not a power of two",
                     (unsigned long long)o->page_bytes_max);
  if ((o->gate.close == NULL) != (o->gate.open == NULL))
    return stow_fail(STOW_ERR_INVALID, "heap options: a gate needs both open and close");
  return o->device != NULL ? device_check(o->device) : STOW_OK;
}

static stow_status heap_set_up(heap *h, const stow_heap_options *o) {
  STOW_TRY(device_props(h->device, &h->props));
  if (!h->props.has_vmm)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "heap: %s cannot map pages (no virtual memory management in its driver); a "
                     "newer driver is needed",
                     h->props.name);
  if (o->host_limit_bytes && h->props.host_backing < STOW_HOST_LOCATION)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "heap: %s cannot map host pages, so nothing can spill; set host_limit_bytes 0",
                     h->props.name);
  uint64_t vram = o->vram_limit_bytes && o->vram_limit_bytes < h->props.vram_bytes
                      ? o->vram_limit_bytes
                      : h->props.vram_bytes;
  h->host_limit = o->host_limit_bytes;
  if (h->props.host_bytes && h->host_limit > h->props.host_bytes)
    h->host_limit = h->props.host_bytes;
  uint64_t limits[POOL_TIERS] = {vram, h->host_limit};
  uint64_t page_max = o->page_bytes_max ? o->page_bytes_max : PAGE_BYTES_MAX;
  STOW_TRY(pool_open(&h->pool, h->device, limits, h->props.page_bytes, page_max));
  h->reserve[STOW_TIER_VRAM] = o->reserve_bytes;
  h->reserve[STOW_TIER_HOST] = o->host_reserve_bytes;
  h->gate = o->gate;
  if (o->disk_folder && !(h->disk_folder = strdup(o->disk_folder)))
    return stow_fail(STOW_ERR_HOST_MEMORY, "heap: no memory for its options");
  return o->background ? background_start(h) : STOW_OK;
}

static void heap_destroy(heap *h) {
  background_stop(h);
  uint32_t lanes = atomic_load(&h->lane_count);
  for (uint32_t i = 0; i < lanes; i++) lane_close(atomic_load(&h->lanes[i]));
  disk_close(h);
  if (h->scratch && device_unreserve(h->device, h->scratch, h->scratch_bytes) != STOW_OK)
    device_unreserve(h->device, h->scratch, h->scratch_bytes);
  if (h->mover_stream && device_stream_destroy(h->device, h->mover_stream) != STOW_OK)
    device_stream_destroy(h->device, h->mover_stream);
  if (h->pool.chunks) pool_close(&h->pool);
  order_close(&h->order);
  if (h->device_ours) stow_device_close(h->device);
#ifdef STOWAGE_CHECKS
  map_free(&h->sites);
#endif
  free(h->notes);
  free(h->disk_folder);
  free(h);
}

stow_status stow_heap_open(stow_heap **out, const stow_heap_options *given) {
  if (!out || !given) return stow_fail(STOW_ERR_INVALID, "heap: NULL argument");
  *out = NULL;
  stow_heap_options full = STOW_HEAP_OPTIONS_INIT;
  const stow_heap_options *options = &full;
  STOW_TRY(growing_read(&full, sizeof full, given, "stow_heap_options"));
  STOW_TRY(options_check(options));
  heap *h = calloc(1, sizeof *h);
  stow_heap *shell = calloc(1, sizeof *shell);
  if (!h || !shell) {
    free(h);
    free(shell);
    return stow_fail(STOW_ERR_HOST_MEMORY, "heap: no host memory for its tables");
  }
  latch_prepare();
  h->disk.fd = -1;
  h->device = options->device;
  stow_status status = STOW_OK;
  if (!h->device) {
    status = stow_device_open(&h->device, options->device_name);
    h->device_ours = status == STOW_OK;
  }
  lock_init(&h->lock, LOCK_HEAP);
  order_open(&h->order, h->device);
  if (status == STOW_OK) status = heap_set_up(h, options);
  if (status != STOW_OK) {
    heap_destroy(h);
    free(shell);
    return status;
  }
  h->shell = shell;
  atomic_store_explicit(&shell->inner, h, memory_order_release);
  lock_acquire(&registry_lock);
  shell->next = registry;
  registry = shell;
  lock_release(&registry_lock);
  *out = shell;
  return STOW_OK;
}

/* ---- closing ---- */

static bool free_one(void *user, const stow_heap_entry *entry) {
  uint64_t *ptrs = user;
  if (ptrs[0] < 4096) ptrs[++ptrs[0]] = entry->ptr;
  return ptrs[0] < 4096;
}

/* Frees what is still live. Returns how many allocations that were. */
static uint64_t free_rest(stow_heap *shell) {
  uint64_t total = 0, *ptrs = malloc(4097 * sizeof *ptrs);
  if (!ptrs) return 0;
  do {
    ptrs[0] = 0;
    stow_heap_each(shell, free_one, ptrs);
    for (uint64_t i = 1; i <= ptrs[0]; i++) {
      lane *l = lane_at(atomic_load(&shell->inner), ptrs[i]);
      stow_heap_free(shell, ptrs[i], l->stream);
    }
    total += ptrs[0];
  } while (ptrs[0] == 4096);
  free(ptrs);
  return total;
}

stow_status stow_heap_close(stow_heap *shell) {
  if (!shell) return STOW_OK;
  heap *h = atomic_load_explicit(&shell->inner, memory_order_acquire);
  if (!h) return stow_fail(STOW_ERR_STATE, "heap: closed twice");
  background_stop(h);
  /* Release through a lost device too: some calls may still work. */
  atomic_store(&h->dead, 0);
  uint64_t left = free_rest(shell);
  stow_status status;
  lock_acquire(&h->lock);
  for (int tries = 0; tries < 3; tries++) { /* a call that failed once may succeed now */
    heap_settle(h, true, &status);
    uint64_t went = 0;
    for (int t = 0; t < POOL_TIERS; t++) went += heap_strip(h, (stow_tier)t, UINT64_MAX, NULL);
    if (went == 0 && tries > 0 && status == STOW_OK) break;
  }
  heap_settle(h, true, &status);
  lock_release(&h->lock);
  atomic_store_explicit(&shell->inner, NULL, memory_order_release);
  heap_destroy(h);
  if (left)
    return stow_fail(STOW_ERR_STATE, "heap: closed with %llu allocations live",
                     (unsigned long long)left);
  return status;
}

stow_device *stow_heap_device(stow_heap *shell) {
  heap *h = shell ? atomic_load_explicit(&shell->inner, memory_order_acquire) : NULL;
  return h ? h->device : NULL;
}
