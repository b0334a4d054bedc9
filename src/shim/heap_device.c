/* Heap device: pages of the real driver, counted in the ledger. See heap_device.h. */
#include "shim/heap_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/lock.h"
#include "base/status.h"
#include "shim/address.h"
#include "shim/capture.h"
#include "shim/counted.h"
#include "shim/host_tier.h"
#include "shim/measure.h"
#include "shim/page_room.h"

/* CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED */
#define ATTRIBUTE_RDMA 110

/* A heap of one lane reserves two for each tier. */
#define RANGES_MAX 8

enum { ON_HOST = 1, LENT = 2, PAGE_FLAGS = 3 };

typedef struct heap_device {
  stow_device head; /* first: a stow_device is the beginning of this */
  cu_device number;
  unsigned device;
  stow_device_props props;
  bool rdma; /* pages can be reached by network devices, as plain memory can */
  _Atomic uint64_t held[STOW_TIER_COUNT];
  _Atomic uint64_t lent; /* pages of vram among those the heap has as host pages */
  struct {
    _Atomic cu_addr base, end; /* both 0: no range */
  } ranges[RANGES_MAX];
  lock lock;
  map pages; /* guarded by lock; handle to bytes, with ON_HOST or LENT */
} heap_device;

static _Thread_local bool on_host, inside;

void heap_device_use_host(bool host) {
  on_host = host;
}

bool heap_device_inside(void) {
  return inside;
}

/* ---- entering the driver ---- */

/* Enters relaxed capture mode, so that our calls do not invalidate a capture. */
static int enter(void) {
  ASSERT(!inside);
  int mode = CU_CAPTURE_RELAXED;
  const cuda_driver *driver = shim_driver();
  inside = true;
  return driver->cuThreadExchangeStreamCaptureMode != NULL &&
                 driver->cuThreadExchangeStreamCaptureMode(&mode) == CU_OK
             ? mode
             : -1;
}

static void leave(int mode) {
  ASSERT(inside);
  const cuda_driver *driver = shim_driver();
  if (mode >= 0) driver->cuThreadExchangeStreamCaptureMode(&mode);
  inside = false;
}

static stow_status answer(cu_result code, const char *what) {
  if (code == CU_OK) return STOW_OK;
  return stow_fail(cuda_status_of(code), "%s: CUDA error %d", what, code);
}

/* ---- pages ---- */

static bool charge_more(const counted *c, uint64_t bytes) {
  if (page_take(c->device, c->kind, bytes)) return true;
  if (capture_on()) return false;
  /* As the driver does before it reports out of memory. */
  measure_trim_pools(c->device);
  return page_take(c->device, c->kind, bytes);
}

/* A physical_account function: pages of the heap count as plain memory. */
static bool charge_plain(const void *who, uint64_t bytes) {
  ASSERT(((const counted *)who)->kind == LEDGER_PLAIN);
  return counted_charge_by(who, bytes, charge_more);
}

static bool make_room(const void *who, uint64_t bytes) {
  return page_reclaim(((const counted *)who)->device, bytes);
}

static const physical_account PLAIN = {.charge = charge_plain,
                                       .make_room = make_room,
                                       .made = counted_made,
                                       .undo = counted_undo,
                                       .uncharge = counted_release};

static cu_result create_vram(const heap_device *c, cu_handle *handle, uint64_t bytes) {
  ASSERT(handle != NULL && bytes > 0);
  counted who = {c->device, LEDGER_PLAIN};
  physical maker = {shim_driver(), &PLAIN, &who};
  cu_prop prop = physical_vram_prop(c->number);
  prop.flags.gpu_direct_rdma = c->rdma;
  if (on_host) return CU_ERROR_OUT_OF_MEMORY;
  return physical_page_create(&maker, handle, bytes, &prop, 0);
}

static cu_result release(const heap_device *c, cu_handle handle, uint64_t bytes, stow_tier tier) {
  ASSERT(handle != 0);
  counted who = {c->device, LEDGER_PLAIN};
  physical maker = {shim_driver(), &PLAIN, &who};
  return tier == STOW_TIER_HOST ? host_tier_page_release(handle, bytes, c->device)
                                : physical_page_release(&maker, handle, bytes);
}

/* Returns the available and the total vram; 0 if blocks cannot be in both tiers. */
static uint64_t vram_room(const heap_device *c, uint64_t *whole) {
  const ledger *l = account_ledger();
  *whole = 0;
  if (l->header == NULL || atomic_load(&l->header->host_path) != LEDGER_PATH_PAGES) return 0;
  return host_tier_vram_room(c->device, whole);
}

uint64_t heap_device_room(const stow_device *device) {
  uint64_t whole;
  int mode = enter();
  uint64_t room = vram_room((const heap_device *)device, &whole);
  leave(mode);
  return room;
}

/* Returns whether vram has space for a page of a block that is too large for it, with one part in
 * `part` left to others. */
static bool vram_has(const heap_device *c, uint64_t bytes, uint64_t part) {
  uint64_t whole, room = vram_room(c, &whole), left = whole / part;
  return room >= left && room - left >= bytes;
}

/* Takes a vram page for a block that exceeds vram. */
static cu_result lend(const heap_device *c, cu_handle *handle, uint64_t bytes, uint64_t part) {
  ASSERT(on_host);
  if (!vram_has(c, bytes, part)) return CU_ERROR_OUT_OF_MEMORY;
  on_host = false;
  cu_result code = create_vram(c, handle, bytes);
  on_host = true;
  return code;
}

static stow_status note_page(heap_device *c, cu_handle handle, uint64_t value) {
  ASSERT(handle != 0 && (value & ~(uint64_t)PAGE_FLAGS) > 0);
  lock_acquire(&c->lock);
  stow_status status = map_put(&c->pages, handle, value);
  lock_release(&c->lock);
  return status;
}

static stow_status page_create(stow_device *device, stow_page *page, uint64_t bytes,
                               stow_tier tier) {
  heap_device *c = (heap_device *)device;
  cu_handle handle = 0;
  int mode = enter();
  cu_result code = CU_ERROR_OUT_OF_MEMORY;
  uint64_t flags = 0;
  if (tier == STOW_TIER_VRAM)
    code = create_vram(c, &handle, bytes);
  else if (on_host) {
    code = lend(c, &handle, bytes, HOST_TIER_LEAVES_PART);
    flags = LENT;
    if (code != CU_OK) {
      code = host_tier_page_create(&handle, bytes, c->device, c->number);
      flags = ON_HOST;
    }
    if (code != CU_OK) { /* neither has enough alone */
      code = lend(c, &handle, bytes, UINT64_MAX);
      flags = LENT;
    }
    tier = flags == LENT ? STOW_TIER_VRAM : STOW_TIER_HOST;
  }
  if (code == CU_OK && note_page(c, handle, bytes | flags) != STOW_OK) {
    release(c, handle, bytes, tier);
    leave(mode);
    return STOW_ERR_HOST_MEMORY; /* map_put set the message */
  }
  leave(mode);
  if (code != CU_OK) return answer(code, "making a page");
  atomic_fetch_add_explicit(&c->held[tier], bytes, memory_order_relaxed);
  if (flags & LENT) atomic_fetch_add_explicit(&c->lent, bytes, memory_order_relaxed);
  *page = handle;
  return STOW_OK;
}

static stow_status page_release(stow_device *device, stow_page page) {
  heap_device *c = (heap_device *)device;
  uint64_t value;
  lock_acquire(&c->lock);
  bool known = map_remove(&c->pages, page, &value);
  lock_release(&c->lock);
  if (!known)
    return stow_fail(STOW_ERR_STATE, "page_release: unknown page handle 0x%llx",
                     (unsigned long long)page);
  stow_tier tier = value & ON_HOST ? STOW_TIER_HOST : STOW_TIER_VRAM;
  uint64_t bytes = value & ~(uint64_t)PAGE_FLAGS;
  int mode = enter();
  cu_result code = release(c, page, bytes, tier);
  leave(mode);
  if (code != CU_OK) {
    stow_status noted = note_page(c, page, value);
    (void)noted; /* without host memory it is forgotten, and stays counted */
    return answer(code, "releasing a page");
  }
  atomic_fetch_sub_explicit(&c->held[tier], bytes, memory_order_relaxed);
  if (value & LENT) atomic_fetch_sub_explicit(&c->lent, bytes, memory_order_relaxed);
  return STOW_OK;
}

bool heap_device_lent(const stow_device *device) {
  return atomic_load_explicit(&((const heap_device *)device)->lent, memory_order_relaxed) > 0;
}

uint64_t heap_device_held(const stow_device *device, stow_tier tier) {
  ASSERT(tier == STOW_TIER_VRAM || tier == STOW_TIER_HOST);
  return atomic_load_explicit(&((const heap_device *)device)->held[tier], memory_order_relaxed);
}

/* ---- ranges ---- */

bool heap_device_owns(const stow_device *device, cu_addr addr) {
  const heap_device *c = (const heap_device *)device;
  for (int i = 0; i < RANGES_MAX; i++) {
    cu_addr base = atomic_load_explicit(&c->ranges[i].base, memory_order_acquire);
    if (base == 0) return false; /* they are not released before the heap ends */
    if (addr >= base && addr < atomic_load_explicit(&c->ranges[i].end, memory_order_relaxed))
      return true;
  }
  return false;
}

/* Ranges are reserved under the heap's lock, one at a time. */
static bool note_range(heap_device *c, cu_addr addr, uint64_t bytes) {
  ASSERT(addr != 0 && bytes > 0);
  for (int i = 0; i < RANGES_MAX; i++) {
    if (atomic_load(&c->ranges[i].base) != 0) continue;
    atomic_store_explicit(&c->ranges[i].end, addr + bytes, memory_order_relaxed);
    atomic_store_explicit(&c->ranges[i].base, addr, memory_order_release);
    return true;
  }
  return false;
}

static stow_status reserve(stow_device *device, stow_addr *addr, uint64_t bytes, uint64_t align) {
  cu_addr at = 0;
  int mode = enter();
  cu_result code = address_reserve(&at, bytes, align);
  /* Some drivers ignore the alignment; the heap needs it. */
  if (code == CU_OK &&
      ((align != 0 && at % align != 0) || !note_range((heap_device *)device, at, bytes))) {
    shim_driver()->cuMemAddressFree(at, bytes);
    code = CU_ERROR_OUT_OF_MEMORY;
  }
  leave(mode);
  *addr = at;
  return answer(code, "reserving addresses");
}

static stow_status unreserve(stow_device *device, stow_addr addr, uint64_t bytes) {
  (void)device;
  int mode = enter();
  cu_result code = shim_driver()->cuMemAddressFree(addr, bytes);
  leave(mode);
  return answer(code, "giving addresses back");
}

static stow_status map_page(stow_device *device, stow_addr addr, uint64_t bytes, stow_page page) {
  (void)device;
  int mode = enter();
  cu_result code = shim_driver()->cuMemMap(addr, bytes, 0, page, 0);
  leave(mode);
  return answer(code, "mapping a page");
}

static stow_status unmap(stow_device *device, stow_addr addr, uint64_t bytes) {
  (void)device;
  int mode = enter();
  cu_result code = shim_driver()->cuMemUnmap(addr, bytes);
  leave(mode);
  return answer(code, "unmapping pages");
}

static stow_status grant(stow_device *device, stow_addr addr, uint64_t bytes) {
  cu_access access = {{CU_LOCATION_DEVICE, ((heap_device *)device)->number}, CU_ACCESS_READ_WRITE};
  int mode = enter();
  cu_result code = shim_driver()->cuMemSetAccess(addr, bytes, &access, 1);
  leave(mode);
  return answer(code, "granting access to pages");
}

/* ---- the rest of the contract ---- */

static stow_status get_props(const stow_device *device, stow_device_props *props) {
  *props = ((const heap_device *)device)->props;
  return STOW_OK;
}

static stow_status memory(stow_device *device, stow_tier tier, uint64_t *free_bytes,
                          uint64_t *total_bytes) {
  (void)device;
  size_t left = 0, total = 0;
  if (tier != STOW_TIER_VRAM) return stow_fail(STOW_ERR_UNSUPPORTED, "not asked here");
  cu_result code = shim_driver()->cuMemGetInfo_v2(&left, &total);
  if (free_bytes != NULL) *free_bytes = left;
  if (total_bytes != NULL) *total_bytes = total;
  return answer(code, "querying free memory");
}

static stow_status no_plain(stow_device *device, stow_addr *addr, uint64_t bytes, stow_tier tier) {
  (void)device, (void)addr, (void)bytes, (void)tier;
  return stow_fail(STOW_ERR_UNSUPPORTED, "the shim's heap has pages only");
}
static stow_status no_plain_free(stow_device *device, stow_addr addr) {
  (void)device, (void)addr;
  return stow_fail(STOW_ERR_UNSUPPORTED, "the shim's heap has pages only");
}
static stow_status no_copy(stow_device *device, stow_addr to, stow_addr from, uint64_t bytes,
                           stow_stream stream) {
  (void)device, (void)to, (void)from, (void)bytes, (void)stream;
  return stow_fail(STOW_ERR_UNSUPPORTED, "the shim's heap moves nothing");
}
static stow_status no_fill(stow_device *device, stow_addr to, uint8_t value, uint64_t bytes,
                           stow_stream stream) {
  (void)device, (void)to, (void)value, (void)bytes, (void)stream;
  return stow_fail(STOW_ERR_UNSUPPORTED, "the shim's heap fills nothing");
}
static stow_status no_stream(stow_device *device, stow_stream *stream) {
  (void)device, (void)stream;
  return stow_fail(STOW_ERR_UNSUPPORTED, "the shim's heap has no streams");
}
static stow_status of_stream(stow_device *device, stow_stream stream) {
  (void)device, (void)stream;
  return STOW_OK;
}
static stow_status stream_wait(stow_device *device, stow_stream stream, stow_event event) {
  (void)device, (void)stream, (void)event;
  return STOW_OK;
}
static stow_status event_create(stow_device *device, stow_event *event) {
  *event = device; /* any value works: nothing waits for it */
  return STOW_OK;
}
static stow_status of_event(stow_device *device, stow_event event) {
  (void)device, (void)event;
  return STOW_OK;
}
static stow_status event_record(stow_device *device, stow_event event, stow_stream stream) {
  (void)device, (void)event, (void)stream;
  return STOW_OK;
}
static stow_status thread_enter(stow_device *device) {
  (void)device;
  return STOW_OK;
}
static const char *error_text(const stow_device *device, int code) {
  (void)device, (void)code;
  return "";
}

static stow_status heap_device_close(stow_device *device) {
  heap_device *c = (heap_device *)device;
  map_free(&c->pages);
  free(c);
  return STOW_OK;
}

static const stow_device_ops OPS = {.struct_bytes = sizeof(stow_device_ops),
                                    .close = heap_device_close,
                                    .props = get_props,
                                    .memory = memory,
                                    .reserve = reserve,
                                    .unreserve = unreserve,
                                    .page_create = page_create,
                                    .page_release = page_release,
                                    .map = map_page,
                                    .unmap = unmap,
                                    .access = grant,
                                    .plain_alloc = no_plain,
                                    .plain_free = no_plain_free,
                                    .copy = no_copy,
                                    .fill = no_fill,
                                    .stream_create = no_stream,
                                    .stream_destroy = of_stream,
                                    .stream_sync = of_stream,
                                    .stream_wait = stream_wait,
                                    .event_create = event_create,
                                    .event_destroy = of_event,
                                    .event_record = event_record,
                                    .event_query = of_event,
                                    .event_wait = of_event,
                                    .thread_enter = thread_enter,
                                    .error_text = error_text};

/* ---- opening ---- */

/* Returns true if the driver has all page calls and the device supports them. */
static bool has_pages(cu_device number) {
  const cuda_driver *driver = shim_driver();
  if (!driver->has_vmm || driver->cuMemGetInfo_v2 == NULL || driver->cuDeviceGetAttribute == NULL)
    return false;
  int has = 0;
  cu_result code = driver->cuDeviceGetAttribute(&has, CU_ATTRIBUTE_VMM, number);
  return code == CU_OK && has != 0;
}

stow_status heap_device_open(stow_device **out, cu_device number, unsigned device) {
  ASSERT(out != NULL && number >= 0);
  size_t granule = 0, total = 0;
  cu_prop prop = {.type = CU_ALLOCATION_PINNED, .location = {CU_LOCATION_DEVICE, number}};
  const cuda_driver *driver = shim_driver();
  if (!has_pages(number) || driver->cuMemGetAllocationGranularity == NULL ||
      driver->cuMemGetAllocationGranularity(&granule, &prop, CU_GRANULARITY_MINIMUM) != CU_OK ||
      shim_driver()->cuDeviceTotalMem_v2(&total, number) != CU_OK)
    return stow_fail(STOW_ERR_UNSUPPORTED, "this driver has no pages");
  heap_device *c = calloc(1, sizeof *c);
  if (c == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for the bookkeeping of a device");
  c->head.ops = &OPS;
  c->number = number;
  c->device = device;
  lock_init(&c->lock, LOCK_DEVICE);
  snprintf(c->props.kind, sizeof c->props.kind, "cuda");
  snprintf(c->props.name, sizeof c->props.name, "device %u", device);
  c->props.index = number;
  c->props.has_vmm = true;
  /* Whether there is a path to the host is probed when the first page needs it. */
  c->props.host_backing = STOW_HOST_LOCATION;
  c->props.host_numa_node = -1;
  c->props.vram_bytes = total / granule * granule;
  c->props.page_bytes = granule;
  int rdma = 0;
  c->rdma =
      shim_driver()->cuDeviceGetAttribute(&rdma, ATTRIBUTE_RDMA, number) == CU_OK && rdma != 0;
  *out = &c->head;
  return STOW_OK;
}
