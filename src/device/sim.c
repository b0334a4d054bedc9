/* The simulated card: opening and closing it, its properties, capacity and counts.
 *
 * A device like any other behind stowage/sys/device.h, for machines without a card and for tests:
 * what would corrupt memory on a card is caught and named here (sim_work.c). All entries take one
 * lock, so a call is a point in the card's one order of events. */
#include "device/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <stowage/size.h>

#include "base/checked.h"
#include "base/growing.h"
#include "device/fault.h"

#define DEFAULT_PAGE_BYTES (UINT64_C(2) << 20)
#define PAGE_BYTES_MAX     (UINT64_C(1) << 30) /* offsets in a granule are 32 bits */
#define TIER_BYTES_MAX     (UINT64_C(1) << 50) /* 1 PiB: sums of sizes stay far from overflow */

static stow_status check_size(const stow_sim_options *options, const char *tier, uint64_t bytes) {
  char size[STOW_SIZE_TEXT_MAX], page[STOW_SIZE_TEXT_MAX];
  if (bytes > TIER_BYTES_MAX)
    return stow_fail(STOW_ERR_INVALID, "simulated card: %s of %s is more than 1 PiB; ask for less",
                     tier, stow_size_format(size, bytes));
  if (bytes % options->page_bytes != 0)
    return stow_fail(STOW_ERR_INVALID,
                     "simulated card: %s of %llu bytes is not a multiple of %s; round it down to "
                     "%llu bytes",
                     tier, (unsigned long long)bytes, stow_size_format(page, options->page_bytes),
                     (unsigned long long)round_down(bytes, options->page_bytes));
  return STOW_OK;
}

static stow_status check_options(stow_sim_options *options) {
  if (options->page_bytes == 0) options->page_bytes = DEFAULT_PAGE_BYTES;
  if (!is_power_of_two(options->page_bytes) || options->page_bytes < (uint64_t)getpagesize() ||
      options->page_bytes > PAGE_BYTES_MAX)
    return stow_fail(STOW_ERR_INVALID,
                     "simulated card: pages of %llu bytes; must be a power of two from %d to 1 GiB",
                     (unsigned long long)options->page_bytes, getpagesize());
  if (options->vram_bytes == 0)
    return stow_fail(STOW_ERR_INVALID,
                     "simulated card: 0 bytes of vram; ask for at least one page");
  STOW_TRY(check_size(options, "vram", options->vram_bytes));
  return check_size(options, "host", options->host_bytes);
}

stow_status stow_sim_open(stow_device **device, const stow_sim_options *options) {
  if (device == NULL || options == NULL)
    return stow_fail(STOW_ERR_INVALID, "simulated card: no options, or no place for the device");
  *device = NULL;
  stow_sim_options checked = STOW_SIM_OPTIONS_INIT;
  STOW_TRY(growing_read(&checked, sizeof checked, options, "stow_sim_options"));
  STOW_TRY(check_options(&checked));
  sim *s = calloc(1, sizeof *s);
  if (s == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a simulated card");
  s->base.ops = &sim_ops;
  s->options = checked;
  s->random = 1;
  lock_init(&s->lock, LOCK_DEVICE);
  stow_status status = sim_stream_open(s);
  if (status == STOW_OK) status = sim_memory_open(s);
  if (status != STOW_OK) {
    sim_stream_free_all(s);
    free(s);
    return status;
  }
  *device = &s->base;
  return STOW_OK;
}

static stow_status sim_close(stow_device *device) {
  sim *s = (sim *)(void *)device;
  uint64_t pages = s->pages_live - s->plain_live, ranges = s->ranges_live, plain = s->plain_live;
  uint64_t mappings = s->mappings_live, streams = s->streams_live, events = s->events_live;
  sim_range_free_all(s);
  sim_page_free_all(s);
  sim_stream_free_all(s);
  sim_memory_close(s);
  free(s);
  if (pages + ranges + plain + mappings + streams + events == 0) return STOW_OK;
  return stow_fail(
      STOW_ERR_STATE,
      "the simulated card was closed with %llu pages, %llu mappings, %llu ranges, %llu "
      "plain blocks, %llu streams and %llu events never given back; give them back "
      "before closing",
      (unsigned long long)pages, (unsigned long long)mappings, (unsigned long long)ranges,
      (unsigned long long)plain, (unsigned long long)streams, (unsigned long long)events);
}

static stow_status sim_props(const stow_device *device, stow_device_props *props) {
  const sim *s = (const sim *)(const void *)device;
  *props = (stow_device_props){.struct_bytes = sizeof *props,
                               .host_numa_node = -1,
                               .has_vmm = !s->options.no_vmm,
                               .vram_bytes = s->options.vram_bytes,
                               .host_bytes = s->options.host_bytes,
                               .page_bytes = s->options.page_bytes};
  snprintf(props->kind, sizeof props->kind, "sim");
  snprintf(props->name, sizeof props->name, "simulated card");
  snprintf(props->uuid, sizeof props->uuid, "sim");
  if (s->options.host_bytes == 0)
    props->host_backing = STOW_HOST_NONE;
  else
    props->host_backing = s->options.no_vmm ? STOW_HOST_PINNED : STOW_HOST_SIMULATED;
  return STOW_OK;
}

/* ---- capacity ---- */

stow_status sim_check_tier(const sim *s, stow_tier tier) {
  if (tier == STOW_TIER_VRAM || (tier == STOW_TIER_HOST && s->options.host_bytes > 0))
    return STOW_OK;
  if (tier == STOW_TIER_HOST)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "this simulated card has no host tier; open it like sim:16G,host=32G");
  if (tier == STOW_TIER_DISK)
    return stow_fail(STOW_ERR_UNSUPPORTED, "a device has no disk tier; use vram or host");
  return stow_fail(STOW_ERR_INVALID, "%d is not a tier; use vram or host", (int)tier);
}

stow_status sim_check_vmm(const sim *s, const char *what) {
  if (!s->options.no_vmm) return STOW_OK;
  return stow_fail(STOW_ERR_UNSUPPORTED,
                   "%s: this simulated card was opened without pages (no-vmm); use plain blocks",
                   what);
}

static uint64_t tier_total(const sim *s, stow_tier tier) {
  return tier == STOW_TIER_VRAM ? s->options.vram_bytes : s->options.host_bytes;
}

stow_status sim_charge(sim *s, stow_tier tier, uint64_t bytes) {
  bool vram = tier == STOW_TIER_VRAM;
  uint64_t *used = vram ? &s->counts.vram_used_bytes : &s->counts.host_used_bytes;
  uint64_t *peak = vram ? &s->counts.vram_peak_bytes : &s->counts.host_peak_bytes;
  uint64_t left = tier_total(s, tier) - *used;
  if (bytes > left) {
    char asked[STOW_SIZE_TEXT_MAX], there[STOW_SIZE_TEXT_MAX], total[STOW_SIZE_TEXT_MAX];
    return stow_fail(STOW_ERR_OUT_OF_MEMORY,
                     "%s of %s asked, %s of %s left on the simulated card; release pages or open a "
                     "larger card",
                     stow_size_format(asked, bytes), stow_tier_name(tier),
                     stow_size_format(there, left), stow_size_format(total, tier_total(s, tier)));
  }
  *used += bytes;
  if (*used > *peak) *peak = *used;
  return STOW_OK;
}

void sim_discharge(sim *s, stow_tier tier, uint64_t bytes) {
  *(tier == STOW_TIER_VRAM ? &s->counts.vram_used_bytes : &s->counts.host_used_bytes) -= bytes;
}

static stow_status sim_memory(stow_device *device, stow_tier tier, uint64_t *free_bytes,
                              uint64_t *total_bytes) {
  sim *s = sim_take(device);
  stow_status status = sim_check_tier(s, tier);
  if (status != STOW_OK) return sim_give(s, status);
  uint64_t used = tier == STOW_TIER_VRAM ? s->counts.vram_used_bytes : s->counts.host_used_bytes;
  if (free_bytes != NULL) *free_bytes = tier_total(s, tier) - used;
  if (total_bytes != NULL) *total_bytes = tier_total(s, tier);
  return sim_give(s, STOW_OK);
}

/* ---- the rest of the table ---- */

static stow_status sim_thread_enter(stow_device *device) {
  (void)device;
  return STOW_OK;
}

static const char *sim_error_text(const stow_device *device, int code) {
  (void)device, (void)code;
  return ""; /* it has no error numbers of its own */
}

const stow_device_ops sim_ops = {
    .struct_bytes = sizeof(stow_device_ops),
    .close = sim_close,
    .props = sim_props,
    .memory = sim_memory,
    .reserve = sim_reserve,
    .unreserve = sim_unreserve,
    .page_create = sim_page_create,
    .page_release = sim_page_release,
    .map = sim_map,
    .unmap = sim_unmap,
    .access = sim_access,
    .plain_alloc = sim_plain_alloc,
    .plain_free = sim_plain_free,
    .copy = sim_copy,
    .fill = sim_fill,
    .stream_create = sim_stream_create,
    .stream_destroy = sim_stream_destroy,
    .stream_sync = sim_stream_sync,
    .stream_wait = sim_stream_wait,
    .event_create = sim_event_create,
    .event_destroy = sim_event_destroy,
    .event_record = sim_event_record,
    .event_query = sim_event_query,
    .event_wait = sim_event_wait,
    .thread_enter = sim_thread_enter,
    .error_text = sim_error_text,
};

/* ---- the knobs ---- */

sim *sim_of(stow_device *device) {
  while (device != NULL && device->ops != &sim_ops) device = fault_inner(device);
  return (sim *)(void *)device;
}

stow_status stow_sim_advance(stow_device *device, uint64_t us) {
  sim *s = sim_of(device);
  if (s == NULL) return stow_fail(STOW_ERR_INVALID, "advancing time: not a simulated card");
  lock_take(&s->lock);
  uint64_t ns, then;
  stow_status status = STOW_OK;
  if (!checked_mul(&ns, us, 1000) || !checked_add(&then, s->counts.now_ns, ns))
    status = stow_fail(STOW_ERR_OVERFLOW,
                       "advancing time by %llu us passes the end of the simulated clock; it holds "
                       "584 years in all",
                       (unsigned long long)us);
  else
    s->counts.now_ns = then;
  return sim_give(s, status);
}

stow_status stow_sim_get_counts(stow_device *device, stow_sim_counts *counts) {
  sim *s = sim_of(device);
  if (s == NULL || counts == NULL)
    return stow_fail(STOW_ERR_INVALID, "counts: not a simulated card, or no place for them");
  lock_take(&s->lock);
  return sim_give(s, growing_write(counts, &s->counts, sizeof s->counts, "stow_sim_counts"));
}
