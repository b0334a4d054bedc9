/* The simulated device: opens and closes it; its properties and its function table.
 *
 * A device like any other behind stowage/sys/device.h, for machines without a GPU and for tests: it
 * detects and names what would corrupt memory on a GPU (sim_work.c). All entries take one lock, so
 * the calls of a device have one total order. */
#include "device/sim_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <stowage/size.h>

#include "base/checked.h"
#include "base/growing.h"

#define DEFAULT_PAGE_BYTES (UINT64_C(2) << 20)
#define PAGE_BYTES_MAX     (UINT64_C(1) << 30) /* offsets in a granule are 32 bits */
#define TIER_BYTES_MAX     (UINT64_C(1) << 50) /* 1 PiB: sums of sizes stay far from overflow */

static stow_status check_size(const stow_sim_options *options, const char *tier, uint64_t bytes) {
  char size[STOW_SIZE_TEXT_MAX], page[STOW_SIZE_TEXT_MAX];
  if (bytes > TIER_BYTES_MAX)
    return stow_fail(STOW_ERR_INVALID,
                     "simulated device: %s of %s is more than 1 PiB; choose a smaller size", tier,
                     stow_size_format(size, bytes));
  if (bytes % options->page_bytes != 0)
    return stow_fail(
        STOW_ERR_INVALID,
        "simulated device: %s of %llu bytes is not a multiple of %s; round it down to %llu bytes",
        tier, (unsigned long long)bytes, stow_size_format(page, options->page_bytes),
        (unsigned long long)round_down(bytes, options->page_bytes));
  return STOW_OK;
}

static stow_status check_options(stow_sim_options *options) {
  if (options->page_bytes == 0) options->page_bytes = DEFAULT_PAGE_BYTES;
  if (!is_power_of_two(options->page_bytes) || options->page_bytes < (uint64_t)getpagesize() ||
      options->page_bytes > PAGE_BYTES_MAX)
    return stow_fail(
        STOW_ERR_INVALID,
        "simulated device: pages of %llu bytes; must be a power of two from %d to 1 GiB",
        (unsigned long long)options->page_bytes, getpagesize());
  if (options->vram_bytes == 0)
    return stow_fail(STOW_ERR_INVALID,
                     "simulated device: 0 bytes of vram; request at least one page");
  STOW_TRY(check_size(options, "vram", options->vram_bytes));
  return check_size(options, "host", options->host_bytes);
}

stow_status stow_sim_open(stow_device **device, const stow_sim_options *options) {
  if (device == NULL || options == NULL)
    return stow_fail(STOW_ERR_INVALID,
                     "simulated device: the options or the result pointer is NULL");
  *device = NULL;
  stow_sim_options checked = STOW_SIM_OPTIONS_INIT;
  STOW_TRY(growing_read(&checked, sizeof checked, options, "stow_sim_options"));
  STOW_TRY(check_options(&checked));
  sim *s = calloc(1, sizeof *s);
  if (s == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a simulated device");
  s->base.ops = &sim_ops;
  s->options = checked;
  s->random = 1;
  s->last_call = DRIVER_CALLS;
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
      "the simulated device was closed with %llu pages, %llu mappings, %llu ranges, %llu plain "
      "blocks, %llu streams and %llu events never freed; free them before closing",
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
  snprintf(props->name, sizeof props->name, "simulated device");
  snprintf(props->uuid, sizeof props->uuid, "sim");
  if (s->options.host_bytes == 0)
    props->host_backing = STOW_HOST_NONE;
  else
    props->host_backing = s->options.no_vmm ? STOW_HOST_PINNED : STOW_HOST_SIMULATED;
  return STOW_OK;
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
