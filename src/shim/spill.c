/* Spill: whole allocations in host memory, for requests that vram has no room for. */
#include "shim/spill.h"

#include "base/assert.h"
#include "shim/address.h"
#include "shim/host_tier.h"
#include "shim/record.h"
#include "shim/refusal.h"

static size_t whole_pages(size_t bytes) {
  return (bytes + SHIM_GRANULE - 1) / SHIM_GRANULE * SHIM_GRANULE;
}

/* Allocates pinned and mapped memory, which has its own address. */
static cu_result spill_pinned(cu_addr *addr, size_t bytes, unsigned device, cu_context context) {
  ASSERT(bytes % SHIM_GRANULE == 0);
  void *host;
  cu_result code = host_tier_pinned_alloc(addr, &host, bytes, device);
  if (code != CU_OK) return code;
  holdings_add(HOLDING_ADDRESS, *addr,
               &(holding){bytes, LEDGER_SPILLED, device, context, (uintptr_t)host, 1, true});
  return CU_OK;
}

/* Maps a page at a new range. Returns the range, or the driver's error with nothing left behind. */
static cu_result map_alone(cu_addr *addr, cu_handle page, size_t bytes, cu_device ordinal) {
  ASSERT(page != 0);
  const cuda_driver *driver = shim_driver();
  cu_access grant = {{CU_LOCATION_DEVICE, ordinal}, CU_ACCESS_READ_WRITE};
  cu_result code = address_reserve(addr, bytes, 0);
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

/* Creates a separate page at a separate address. */
static cu_result spill_alone(cu_addr *addr, size_t bytes, unsigned device, cu_device ordinal,
                             cu_context context) {
  ASSERT(bytes % SHIM_GRANULE == 0);
  cu_handle page;
  cu_result code = host_tier_page_create(&page, bytes, device, ordinal);
  if (code != CU_OK) return code;
  code = map_alone(addr, page, bytes, ordinal);
  if (code != CU_OK) {
    shim_log("mapping %zu bytes on the host: CUDA error %d", bytes, code);
    host_tier_page_release(page, bytes, device);
    return CU_ERROR_OUT_OF_MEMORY;
  }
  holdings_add(HOLDING_ADDRESS, *addr,
               &(holding){bytes, LEDGER_SPILLED, device, context, page, 1, false});
  return CU_OK;
}

cu_result spill_plain(cu_addr *addr, size_t bytes, unsigned device, cu_device ordinal,
                      cu_context context) {
  ASSERT(addr != NULL);
  size_t size = whole_pages(bytes);
  if (size < bytes) return CU_ERROR_OUT_OF_MEMORY;
  cu_result code = host_tier_path(ordinal) == STOW_HOST_PINNED
                       ? spill_pinned(addr, size, device, context)
                       : spill_alone(addr, size, device, ordinal, context);
  if (code == CU_OK)
    record_taken(*addr, bytes, NULL, device, LEDGER_SPILLED);
  else
    refusal_note(device, size);
  return code;
}

/* Releases an allocation; on success its bytes are no longer counted. */
static cu_result give_back(cu_addr addr, const holding *what) {
  ASSERT(what->kind == LEDGER_SPILLED);
  ASSERT(what->link != 0);
  if (what->pinned)
    return host_tier_pinned_free((void *)(uintptr_t)what->link, what->bytes, what->device);
  cu_result code = shim_driver()->cuMemUnmap(addr, what->bytes);
  if (code != CU_OK) return code;
  host_tier_page_release(what->link, what->bytes, what->device);
  shim_driver()->cuMemAddressFree(addr, what->bytes);
  return CU_OK;
}

/* Waits for queued work that may use the memory, in any context; the driver's own free waits
 * too. */
cu_result spill_wait_for_work(cu_context context) {
  cu_context old;
  cu_result code = CU_OK;
  if (context != NULL) code = shim_driver()->cuCtxPushCurrent_v2(context);
  if (code != CU_OK) return code;
  code = shim_driver()->cuCtxSynchronize();
  if (context != NULL) shim_driver()->cuCtxPopCurrent_v2(&old);
  return code;
}

cu_result spill_plain_free(cu_addr addr, const holding *what) {
  ASSERT(what->kind == LEDGER_SPILLED);
  cu_result code = spill_wait_for_work(what->context);
  return code == CU_OK ? give_back(addr, what) : code;
}

void spill_plain_drop(cu_addr addr, const holding *what) {
  ASSERT(what->kind == LEDGER_SPILLED);
  cu_result code = give_back(addr, what);
  if (code == CU_OK) return;
  /* Pinned memory may have been freed with the context. */
  shim_log("a spilled block of a context that ended: CUDA error %d", code);
  account_uncharge(what->device, LEDGER_SPILLED, what->bytes);
}
