/* Cuda: a device behind NVIDIA's driver, loaded at run time.
 *
 * Opens and closes a device and reports its properties. cuda_context.c enters the driver,
 * cuda_host.c finds the host tier, cuda_pages.c and cuda_work.c do the rest. Works from any thread
 * and alongside the program's own use of CUDA: shares the primary context with cudart, makes it
 * current only during a call, and always restores the program's current context. Opening creates
 * only the context; the host tier is probed at the first query (and the result is cached across
 * processes). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/size.h>

#include "base/hostmem.h"
#include "device/cuda_device.h"
#include "device/cuda_open.h"
#include "device/cuda_probe.h"
#include "device/device.h"

/* Without pages there is no granularity to query; the usual value keeps callers' arithmetic
 * valid. */
#define NO_PAGES_GRANULE (UINT64_C(2) << 20)

static cuda_dev *dev_of(const stow_device *device) {
  return (cuda_dev *)(uintptr_t)device;
}

/* ---- queries ---- */

static stow_status cuda_props(const stow_device *device, stow_device_props *props) {
  cuda_dev *d = dev_of(device);
  cuda_host_find(d);
  *props = d->props;
  return STOW_OK;
}

static stow_status vram_memory(cuda_dev *d, size_t *free_bytes, size_t *total_bytes) {
  cuda_scope scope;
  STOW_TRY(cuda_enter(d, &scope));
  cu_result code = d->driver->cuMemGetInfo_v2(free_bytes, total_bytes);
  cuda_leave(d, &scope);
  return code == CU_OK ? STOW_OK
                       : cuda_fail(d, code, "querying the free memory of device %s", d->props.uuid);
}

static stow_status cuda_memory(stow_device *device, stow_tier tier, uint64_t *free_bytes,
                               uint64_t *total_bytes) {
  cuda_dev *d = dev_of(device);
  uint64_t free_now, total;
  if (tier == STOW_TIER_VRAM) {
    size_t f, t;
    STOW_TRY(vram_memory(d, &f, &t));
    free_now = f;
    total = t;
  } else if (tier == STOW_TIER_HOST) {
    cuda_host_find(d);
    if (d->props.host_backing == STOW_HOST_NONE)
      return stow_fail(STOW_ERR_UNSUPPORTED, "device %s has no host tier: %s", d->props.uuid,
                       d->host_reason);
    hostmem host;
    STOW_TRY(hostmem_read(&host));
    free_now = host.usable_bytes;
    total = host.total_bytes;
  } else
    return stow_fail(STOW_ERR_UNSUPPORTED, "device %s has no tier %s", d->props.uuid,
                     stow_tier_name(tier));
  if (free_bytes != NULL) *free_bytes = free_now;
  if (total_bytes != NULL) *total_bytes = total;
  return STOW_OK;
}

static const char *cuda_error_text(const stow_device *device, int code) {
  return cuda_driver_text(dev_of(device)->driver, code);
}

/* ---- closing ---- */

typedef struct leaks {
  uint64_t pages, page_bytes, mappings, ranges, plains, streams, events;
} leaks;

/* Frees what the caller forgot, in the order the driver needs: mappings, ranges, pages. Ignores the
 * driver's results: nothing can be done about a failure here. */
static void give_back(cuda_dev *d, leaks *l) {
  const cuda_driver *driver = d->driver;
  cuda_table *t = &d->table;
  uint64_t key, value;
  if (t->range_count + t->pages.count + t->plains.count > 0) driver->cuCtxSynchronize();
  for (size_t i = 0; i < t->range_count; i++, l->ranges++) {
    table_range *range = &t->ranges[i];
    stow_addr addr;
    uint64_t bytes;
    for (size_t at = 0; table_next_mapping(t, range, &at, &addr, &bytes); l->mappings++)
      driver->cuMemUnmap(addr, bytes);
    driver->cuMemAddressFree(range->outer_addr, range->outer_bytes);
  }
  for (size_t at = 0; map_next(&t->pages, &at, &key, &value); l->pages++) {
    uint64_t bytes = ((table_page *)(uintptr_t)value)->bytes;
    l->page_bytes += bytes;
    physical_page_release(&d->physical, key, bytes);
  }
  for (size_t at = 0; map_next(&t->plains, &at, &key, &value); l->plains++) {
    const table_plain *plain = (const table_plain *)(uintptr_t)value;
    if (plain->tier == STOW_TIER_HOST)
      physical_pinned_free(&d->physical, plain->pointer, plain->bytes);
    else
      physical_plain_free(&d->physical, key, plain->bytes);
  }
  for (size_t at = 0; map_next(&t->events, &at, &key, &value); l->events++)
    driver->cuEventDestroy_v2((cu_event)(uintptr_t)key);
  for (size_t at = 0; map_next(&t->streams, &at, &key, &value); l->streams++)
    driver->cuStreamDestroy_v2((cu_stream)(uintptr_t)key);
}

static stow_status cuda_close(stow_device *device) {
  cuda_dev *d = dev_of(device);
  leaks l = {0};
  cuda_scope scope;
  atomic_store(&d->lost, false); /* enter once more: a lost context must still be released */
  bool entered = cuda_enter(d, &scope) == STOW_OK;
  give_back(d, &l);
  if (entered) cuda_leave(d, &scope);
  cuda_thread_leave(d);
  d->driver->cuDevicePrimaryCtxRelease_v2(d->id.handle);
  char uuid[CUDA_UUID_MAX], size[STOW_SIZE_TEXT_MAX];
  snprintf(uuid, sizeof uuid, "%s", d->props.uuid);
  table_free(&d->table);
  free(d->driver_owned);
  free(d);
  if (l.pages + l.ranges + l.plains + l.streams + l.events == 0) return STOW_OK;
  return stow_fail(STOW_ERR_STATE,
                   "closing device %s: released what was never freed: %" PRIu64
                   " pages (%s), %" PRIu64 " ranges (%" PRIu64 " mappings in them), %" PRIu64
                   " plain allocations, %" PRIu64 " streams, %" PRIu64 " events",
                   uuid, l.pages, stow_size_format(size, l.page_bytes), l.ranges, l.mappings,
                   l.plains, l.streams, l.events);
}

/* ---- opening ---- */

static const stow_device_ops CUDA_OPS = {
    .struct_bytes = sizeof(stow_device_ops),
    .close = cuda_close,
    .props = cuda_props,
    .memory = cuda_memory,
    .reserve = cuda_reserve,
    .unreserve = cuda_unreserve,
    .page_create = cuda_page_create,
    .page_release = cuda_page_release,
    .map = cuda_map,
    .unmap = cuda_unmap,
    .access = cuda_access,
    .plain_alloc = cuda_plain_alloc,
    .plain_free = cuda_plain_free,
    .copy = cuda_copy,
    .fill = cuda_fill,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .stream_sync = cuda_stream_sync,
    .stream_wait = cuda_stream_wait,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_query = cuda_event_query,
    .event_wait = cuda_event_wait,
    .thread_enter = cuda_thread_enter,
    .error_text = cuda_error_text,
};

static stow_status fill_props(cuda_dev *d) {
  const cuda_driver *driver = d->driver;
  cu_device device = d->id.handle;
  stow_device_props *p = &d->props;
  size_t total = 0, granule = 0;
  snprintf(p->kind, sizeof p->kind, "cuda");
  snprintf(p->uuid, sizeof p->uuid, "%s", d->id.uuid);
  p->index = d->id.index;
  p->driver_version = driver->version;
  if (driver->cuDeviceGetName(p->name, (int)sizeof p->name, device) != CU_OK)
    snprintf(p->name, sizeof p->name, "unnamed device");
  p->name[sizeof p->name - 1] = '\0';
  p->compute_major = cuda_device_attribute(driver, device, CU_ATTRIBUTE_COMPUTE_MAJOR, 0);
  p->compute_minor = cuda_device_attribute(driver, device, CU_ATTRIBUTE_COMPUTE_MINOR, 0);
  p->host_numa_node = -1;
  cu_result code = driver->cuDeviceTotalMem_v2(&total, device);
  if (code != CU_OK) return cuda_driver_fail(driver, code, "querying the size of %s", p->uuid);
  p->vram_bytes = total;
  p->page_bytes = NO_PAGES_GRANULE;
  p->has_vmm = driver->has_vmm && cuda_device_attribute(driver, device, CU_ATTRIBUTE_VMM, 0) == 1;
  if (!p->has_vmm) return STOW_OK;
  cu_prop prop = {.type = CU_ALLOCATION_PINNED, .location = {CU_LOCATION_DEVICE, device}};
  code = driver->cuMemGetAllocationGranularity(&granule, &prop, CU_GRANULARITY_MINIMUM);
  if (code != CU_OK)
    return cuda_driver_fail(driver, code, "querying the page granularity of %s", p->uuid);
  if (granule == 0 || (granule & (granule - 1)) != 0)
    return stow_fail(STOW_ERR_DEVICE,
                     "%s reports a page granularity of %zu bytes, which is not a power of two",
                     p->uuid, granule);
  p->page_bytes = granule;
  return STOW_OK;
}

/* Opens a device on a driver. `owned` is freed with the device, or here on failure. */
static stow_status open_on(stow_device **device, const char *name, const cuda_driver *driver,
                           cuda_driver *owned) {
  cuda_dev *d = calloc(1, sizeof *d);
  stow_status status = STOW_OK;
  if (d == NULL)
    status = stow_fail(STOW_ERR_HOST_MEMORY, "device \"%s\": no host memory to open it", name);
  else {
    d->head.ops = &CUDA_OPS;
    d->driver = driver;
    d->driver_owned = owned;
    d->physical = (physical){.driver = driver};
    lock_init(&d->table_lock, LOCK_DEVICE);
    lock_init(&d->host_lock, LOCK_DEVICE);
    status = cuda_device_find(&d->id, driver, name);
  }
  if (status == STOW_OK) status = fill_props(d);
  if (status == STOW_OK) {
    cuda_probe kept;
    if (cuda_probe_kept(&kept, driver, d->id.handle))
      cuda_host_set(d, &kept);
    else if (cuda_device_attribute(driver, d->id.handle, CU_ATTRIBUTE_COMPUTE_MODE, 0) ==
             CU_MODE_EXCLUSIVE_PROCESS)
      cuda_host_find(d); /* exclusive mode: once our context exists, no child process gets one */
    cu_result code = driver->cuDevicePrimaryCtxRetain(&d->context, d->id.handle);
    if (code != CU_OK)
      status = cuda_driver_fail(driver, code, "device \"%s\": creating its context", name);
  }
  if (status != STOW_OK) {
    free(d);
    free(owned);
    return status;
  }
  table_init(&d->table, d->props.page_bytes);
  *device = &d->head;
  return STOW_OK;
}

stow_status cuda_open(stow_device **device, const char *name) {
  const cuda_driver *driver;
  *device = NULL;
  stow_status status = cuda_driver_get(&driver);
  if (status != STOW_OK)
    return stow_fail(status, "device \"%s\": %s; or use the simulated one, sim:16G", name,
                     stow_status_message());
  return open_on(device, name, driver, NULL);
}

stow_status cuda_open_with(stow_device **device, const char *name, cuda_resolve resolve,
                           void *user) {
  *device = NULL;
  cuda_driver *driver = malloc(sizeof *driver);
  if (driver == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "device \"%s\": no host memory to open it", name);
  stow_status status = cuda_driver_fill(driver, resolve, user);
  if (status != STOW_OK) {
    free(driver);
    return status;
  }
  return open_on(device, name, driver, driver);
}

stow_status cuda_count(int *count) {
  const cuda_driver *driver;
  *count = 0;
  stow_status status = cuda_driver_get(&driver);
  if (status == STOW_ERR_NOT_FOUND) return STOW_OK; /* no driver, or no visible device */
  STOW_TRY(status);
  cu_result code = driver->cuDeviceGetCount(count);
  return code == CU_OK ? STOW_OK : cuda_driver_fail(driver, code, "counting the devices");
}
