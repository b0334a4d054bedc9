/* Physical: counts, calls the driver, undoes. */
#include "device/physical.h"

#include "base/assert.h"

/* ---- the account ---- */

static bool take(const physical *p, uint64_t bytes) {
  ASSERT(p->driver != NULL);
  const physical_account *a = p->account;
  return a == NULL || a->charge == NULL || a->charge(p->who, bytes);
}

static bool make_room(const physical *p, uint64_t bytes) {
  const physical_account *a = p->account;
  return a != NULL && a->make_room != NULL && a->make_room(p->who, bytes);
}

/* Reports the driver's result to the account and returns it. */
static cu_result settle(const physical *p, uint64_t bytes, cu_result code) {
  ASSERT(p->driver != NULL);
  const physical_account *a = p->account;
  if (a != NULL && code == CU_OK && a->made != NULL) a->made(p->who, bytes);
  if (a != NULL && code != CU_OK && a->undo != NULL) a->undo(p->who, bytes, code);
  return code;
}

static cu_result give(const physical *p, uint64_t bytes, cu_result code) {
  const physical_account *a = p->account;
  if (a != NULL && code == CU_OK && a->uncharge != NULL) a->uncharge(p->who, bytes);
  return code;
}

/* ---- pages ---- */

cu_prop physical_vram_prop(cu_device device) {
  return (cu_prop){.type = CU_ALLOCATION_PINNED, .location = {CU_LOCATION_DEVICE, device}};
}

bool physical_host_prop(cu_prop *prop, stow_host_backing path, int numa_node) {
  ASSERT(prop != NULL);
  *prop = (cu_prop){.type = CU_ALLOCATION_PINNED};
  if (path == STOW_HOST_NUMA)
    prop->location = (cu_location){CU_LOCATION_HOST_NUMA, numa_node};
  else if (path == STOW_HOST_LOCATION)
    prop->location = (cu_location){CU_LOCATION_HOST, 0};
  else
    return false;
  return true;
}

cu_result physical_page_create(const physical *p, cu_handle *page, uint64_t bytes,
                               const cu_prop *prop, unsigned long long flags) {
  ASSERT(page != NULL && prop != NULL);
  const cuda_driver *driver = p->driver;
  if (driver->cuMemCreate == NULL) return CU_ERROR_NOT_SUPPORTED;
  if (!take(p, bytes)) return CU_ERROR_OUT_OF_MEMORY;
  cu_result code = driver->cuMemCreate(page, bytes, prop, flags);
  if (code == CU_ERROR_OUT_OF_MEMORY && make_room(p, bytes))
    code = driver->cuMemCreate(page, bytes, prop, flags);
  return settle(p, bytes, code);
}

cu_result physical_page_release(const physical *p, cu_handle page, uint64_t bytes) {
  ASSERT(p->driver->cuMemRelease != NULL);
  return give(p, bytes, p->driver->cuMemRelease(page));
}

/* ---- plain allocations ---- */

cu_result physical_plain_alloc(const physical *p, cu_addr *addr, size_t bytes,
                               uint64_t counted_bytes) {
  ASSERT(addr != NULL);
  ASSERT(p->driver->cuMemAlloc_v2 != NULL);
  ASSERT(counted_bytes >= bytes);
  if (!take(p, counted_bytes)) return CU_ERROR_OUT_OF_MEMORY;
  cu_result code = p->driver->cuMemAlloc_v2(addr, bytes);
  if (code == CU_ERROR_OUT_OF_MEMORY && make_room(p, counted_bytes))
    code = p->driver->cuMemAlloc_v2(addr, bytes);
  return settle(p, counted_bytes, code);
}

cu_result physical_plain_free(const physical *p, cu_addr addr, uint64_t counted_bytes) {
  ASSERT(addr != 0);
  ASSERT(p->driver->cuMemFree_v2 != NULL);
  return give(p, counted_bytes, p->driver->cuMemFree_v2(addr));
}

/* ---- pinned host memory ---- */

cu_result physical_pinned_alloc(const physical *p, cu_addr *addr, void **host, uint64_t bytes) {
  ASSERT(addr != NULL && host != NULL);
  ASSERT(bytes > 0);
  const cuda_driver *driver = p->driver;
  if (driver->cuMemHostAlloc == NULL || driver->cuMemHostGetDevicePointer_v2 == NULL ||
      driver->cuMemFreeHost == NULL)
    return CU_ERROR_NOT_SUPPORTED;
  if (!take(p, bytes)) return CU_ERROR_OUT_OF_MEMORY;
  cu_result code = driver->cuMemHostAlloc(host, bytes, CU_HOST_PORTABLE | CU_HOST_DEVICE_MAP);
  if (code == CU_OK) {
    code = driver->cuMemHostGetDevicePointer_v2(addr, *host, 0);
    if (code != CU_OK) driver->cuMemFreeHost(*host);
  }
  return settle(p, bytes, code);
}

cu_result physical_pinned_free(const physical *p, void *host, uint64_t bytes) {
  ASSERT(host != NULL);
  return give(p, bytes, p->driver->cuMemFreeHost(host));
}
