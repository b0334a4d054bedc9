/* Spill: host pages in the place of device pages. */
#include "shim/spill.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hostmem.h"
#include "base/lock.h"
#include "device/cuda_card.h"
#include "device/cuda_probe.h"
#include "shim/record.h"

/* ---- host pages ---- */

static lock road_lock = LOCK_INIT(LOCK_DEVICE);
static bool road_known; /* guarded by road_lock, as the two below */
static cuda_driver table;
static cuda_probe road;

void spill_after_fork(void) {
  retry_after_fork();
  lock_init(&road_lock, LOCK_DEVICE);
}

/* By which road this driver puts pages on the host; asked once, the answer is kept between
 * processes. */
static cuda_probe find_road(cu_device card) {
  lock_take(&road_lock);
  if (!road_known) {
    road = (cuda_probe){.road = STOW_HOST_NONE, .numa_node = -1};
    table = *shim_driver();
    if (cuda_driver_start(&table) == STOW_OK && table.has_vmm)
      cuda_probe_card(&road, &table, card, false);
    shim_log("host pages by road %s", cuda_road_name(road.road));
    road_known = true;
  }
  cuda_probe answer = road;
  lock_give(&road_lock);
  return answer;
}

bool spill_on(void) {
  const ledger *l = account_ledger();
  return l->header != NULL && ledger_spill_limit(l) > 0;
}

uint64_t spill_budget(cu_device card) {
  ledger *l = account_ledger();
  uint64_t limit = l->header == NULL ? 0 : ledger_spill_limit(l);
  if (limit == 0) return 0;
  cuda_probe found = find_road(card);
  stow_host_road way = found.road;
  uint64_t told = way == STOW_HOST_NUMA || way == STOW_HOST_LOCATION ? LEDGER_ROAD_PAGES
                  : way == STOW_HOST_PINNED                          ? LEDGER_ROAD_PINNED
                                                                     : LEDGER_ROAD_NONE;
  if (atomic_load(&l->header->host_road) == LEDGER_ROAD_UNKNOWN) {
    /* Processes that find out at once write the same. */
    snprintf(l->header->host_reason, sizeof l->header->host_reason, "%.255s", found.reason);
    atomic_store(&l->header->host_road, told);
  }
  return told == LEDGER_ROAD_NONE ? 0 : limit;
}

/* For cuBLAS, cuDNN and their like; a small limit is not cut smaller still. */
#define RESERVE_BYTES ((uint64_t)128 << 20)
#define RESERVE_FROM  ((uint64_t)1 << 30)

uint64_t spill_reserve(unsigned device) {
  const ledger *l = account_ledger();
  if (l->header == NULL || ledger_spill_limit(l) == 0) return 0;
  uint64_t limit = ledger_limit(l, device);
  if (limit == LEDGER_UNLIMITED || limit < RESERVE_FROM) return 0;
  uint64_t plain = ledger_own(l, device, LEDGER_PLAIN);
  return plain < RESERVE_BYTES ? RESERVE_BYTES - plain : 0;
}

bool spill_host_has(uint64_t bytes) {
  hostmem memory;
  return hostmem_read(&memory) == STOW_OK && memory.usable_bytes >= bytes;
}

uint64_t spill_vram_room(unsigned device, uint64_t *whole) {
  const ledger *l = account_ledger();
  size_t left = 0, total = 0;
  const cuda_driver *driver = shim_driver();
  *whole = 0;
  if (l->header == NULL || spill_capturing() || driver->cuMemGetInfo_v2 == NULL ||
      driver->cuMemGetInfo_v2(&left, &total) != CU_OK)
    return 0;
  uint64_t limit = ledger_limit(l, device);
  *whole = limit < total ? limit : total;
  if (limit == LEDGER_UNLIMITED) return left;
  uint64_t room = account_room(device);
  return room < left ? room : left;
}

cu_result spill_make_page(cu_handle *handle, size_t bytes, cu_device card) {
  const cuda_driver *driver = shim_driver();
  cuda_probe how = find_road(card);
  cu_prop prop = {.type = CU_ALLOCATION_PINNED};
  if (how.road == STOW_HOST_NUMA)
    prop.location = (cu_location){CU_LOCATION_HOST_NUMA, how.numa_node};
  else if (how.road == STOW_HOST_LOCATION)
    prop.location = (cu_location){CU_LOCATION_HOST, 0};
  else
    return CU_ERROR_NOT_SUPPORTED;
  return driver->cuMemCreate == NULL ? CU_ERROR_NOT_SUPPORTED
                                     : driver->cuMemCreate(handle, bytes, &prop, 0);
}

/* Counts `bytes` to be spilled; false where budget or host have no room. */
static bool count_spilled(unsigned device, uint64_t bytes) {
  ledger *l = account_ledger();
  return spill_host_has(bytes) && l->header != NULL &&
         ledger_take(l, device, LEDGER_SPILLED, bytes);
}

/* Takes it back. To the program it is what it was before: the device's memory is full. */
static cu_result not_spilled(unsigned device, uint64_t bytes, cu_result code) {
  shim_log("%llu bytes on the host: CUDA error %d", (unsigned long long)bytes, code);
  ledger_give(account_ledger(), device, LEDGER_SPILLED, bytes);
  return CU_ERROR_OUT_OF_MEMORY;
}

cu_result spill_page(cu_handle *handle, size_t bytes, unsigned device, cu_device card) {
  if (!count_spilled(device, bytes)) return CU_ERROR_OUT_OF_MEMORY;
  cu_result code = spill_make_page(handle, bytes, card);
  if (code != CU_OK) return not_spilled(device, bytes, code);
  atomic_fetch_add(&account_ledger()->header->spilled_total_bytes, bytes);
  return CU_OK;
}

/* ---- whole allocations ---- */

static size_t whole_pages(size_t bytes) {
  return (bytes + SHIM_GRANULE - 1) / SHIM_GRANULE * SHIM_GRANULE;
}

/* Where a driver puts no pages on the host: memory pinned and mapped, which is at an address of its
 * own. */
static cu_result spill_pinned(cu_addr *addr, size_t bytes, unsigned device, cu_context context) {
  const cuda_driver *driver = shim_driver();
  void *host;
  if (driver->cuMemHostAlloc == NULL || driver->cuMemHostGetDevicePointer_v2 == NULL ||
      driver->cuMemFreeHost == NULL || !count_spilled(device, bytes))
    return CU_ERROR_OUT_OF_MEMORY;
  cu_result code = driver->cuMemHostAlloc(&host, bytes, CU_HOST_PORTABLE | CU_HOST_DEVICE_MAP);
  if (code != CU_OK) return not_spilled(device, bytes, code);
  code = driver->cuMemHostGetDevicePointer_v2(addr, host, 0);
  if (code != CU_OK) {
    driver->cuMemFreeHost(host);
    return not_spilled(device, bytes, code);
  }
  atomic_fetch_add(&account_ledger()->header->spilled_total_bytes, bytes);
  book_add(BOOK_ADDRESS, *addr,
           &(holding){bytes, LEDGER_SPILLED, device, context, (uintptr_t)host, 1, true});
  return CU_OK;
}

/* Puts a page behind a range of its own; the range, or the driver's error with nothing left. */
static cu_result map_alone(cu_addr *addr, cu_handle page, size_t bytes, cu_device card) {
  const cuda_driver *driver = shim_driver();
  cu_access grant = {{CU_LOCATION_DEVICE, card}, CU_ACCESS_READ_WRITE};
  cu_result code = driver->cuMemAddressReserve(addr, bytes, 0, 0, 0);
  if (code != CU_OK) return code;
  code = driver->cuMemMap(*addr, bytes, 0, page, 0);
  if (code == CU_OK) {
    code = driver->cuMemSetAccess(*addr, bytes, &grant, 1);
    if (code == CU_OK) return CU_OK;
    driver->cuMemUnmap(*addr, bytes);
  }
  driver->cuMemAddressFree(*addr, bytes);
  return code;
}

/* A page of its own behind an address of its own. */
static cu_result spill_alone(cu_addr *addr, size_t bytes, unsigned device, cu_device card,
                             cu_context context) {
  cu_handle page;
  cu_result code = spill_page(&page, bytes, device, card);
  if (code != CU_OK) return code;
  code = map_alone(addr, page, bytes, card);
  if (code != CU_OK) {
    shim_driver()->cuMemRelease(page);
    return not_spilled(device, bytes, code);
  }
  book_add(BOOK_ADDRESS, *addr, &(holding){bytes, LEDGER_SPILLED, device, context, page, 1, false});
  return CU_OK;
}

cu_result spill_plain(cu_addr *addr, size_t bytes, unsigned device, cu_device card,
                      cu_context context) {
  size_t size = whole_pages(bytes);
  if (size < bytes) return CU_ERROR_OUT_OF_MEMORY;
  cu_result code = find_road(card).road == STOW_HOST_PINNED
                       ? spill_pinned(addr, size, device, context)
                       : spill_alone(addr, size, device, card, context);
  if (code == CU_OK)
    record_taken(*addr, bytes, NULL, device, LEDGER_SPILLED);
  else
    account_refused(device, size);
  return code;
}

static cu_result give_back(cu_addr addr, const holding *what) {
  cu_result code;
  if (what->pinned)
    code = shim_driver()->cuMemFreeHost((void *)(uintptr_t)what->link);
  else {
    code = shim_driver()->cuMemUnmap(addr, what->bytes);
    if (code != CU_OK) return code;
    shim_driver()->cuMemRelease(what->link);
    shim_driver()->cuMemAddressFree(addr, what->bytes);
  }
  return code;
}

/* Memory must not go while queued work uses it, of whichever context is current here; the driver's
 * own free waits too. */
static cu_result wait_for_work(cu_context context) {
  cu_context old;
  cu_result code = CU_OK;
  if (context != NULL) code = shim_driver()->cuCtxPushCurrent_v2(context);
  if (code != CU_OK) return code;
  code = shim_driver()->cuCtxSynchronize();
  if (context != NULL) shim_driver()->cuCtxPopCurrent_v2(&old);
  return code;
}

cu_result spill_plain_free(cu_addr addr, const holding *what) {
  cu_result code = wait_for_work(what->context);
  if (code == CU_OK) code = give_back(addr, what);
  if (code == CU_OK) account_give(what->device, LEDGER_SPILLED, what->bytes);
  return code;
}

void spill_plain_drop(cu_addr addr, const holding *what) {
  /* Pinned memory may have gone with the context. */
  cu_result code = give_back(addr, what);
  if (code != CU_OK) shim_log("a spilled block of a context that ended: CUDA error %d", code);
  account_give(what->device, LEDGER_SPILLED, what->bytes);
}
