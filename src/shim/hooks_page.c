/* Page hooks: virtual memory: pages and their mappings.
 *
 * With a limit or with spilling, page.c handles requests for device memory, and the program gets
 * tokens. All other pages are the driver's: such a page counts from its creation until its last
 * handle is released and its last mapping is gone, as long as the driver keeps it. */
#include "shim/address.h"
#include "shim/counted.h"
#include "shim/holdings.h"
#include "shim/hooks.h"
#include "shim/page.h"
#include "shim/page_parts.h"
#include "shim/record.h"
#include "shim/refusal.h"
#include "shim/retry.h"
#include "shim/room.h"

/* ---- pages ---- */

/* The account for pages that go to the driver: a reached limit is a refusal, a full device is
 * not. */
static bool charge_passed(const void *who, uint64_t bytes) {
  if (room_account_charge(who, bytes)) return true;
  refusal_note(((const counted *)who)->device, bytes);
  return false;
}

static const physical_account PASSED = {.charge = charge_passed,
                                        .make_room = room_account_make,
                                        .undo = counted_undo,
                                        .uncharge = counted_release};

cu_result cuMemCreate(cu_handle *handle, size_t bytes, const cu_prop *prop,
                      unsigned long long flags) {
  __typeof__(&cuMemCreate) real = REAL(cuMemCreate);
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  if (handle == NULL || prop == NULL) return real(handle, bytes, prop, flags);
  if (page_parts_wanted(bytes, prop, flags)) {
    cu_result code = page_parts_create(handle, bytes, prop);
    if (code != CU_ERROR_NOT_SUPPORTED) return code;
  }
  if (page_wanted(bytes, prop, flags)) return page_create(handle, bytes, prop, PAGE_OF_PROGRAM);
  /* Pages that the program itself puts on the host are counted, not limited. */
  bool vram = prop->location.type == CU_LOCATION_DEVICE;
  counted who = {vram ? account_device(prop->location.id) : 0, vram ? LEDGER_PAGES : LEDGER_PINNED};
  physical maker = {shim_program_driver(), &PASSED, &who};
  cu_result code = physical_page_create(&maker, handle, bytes, prop, flags);
  if (code == CU_OK)
    holdings_add(HOLDING_PAGE, *handle, &(holding){bytes, who.kind, who.device, NULL, 0, 1, false});
  return code;
}

cu_result cuMemRelease(cu_handle handle) {
  __typeof__(&cuMemRelease) real = REAL(cuMemRelease);
  holding page;
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  if (page_parts_is(handle)) return page_parts_release(handle);
  if (page_is_token(handle)) return page_release(handle);
  /* Removed before the driver is called, which may reuse the handle at once. */
  int uses = holdings_use(HOLDING_PAGE, handle, -1, &page);
  cu_result code = real(handle);
  if (code != CU_OK && uses == 0) {
    page.uses = 1;
    ledger_add(account_ledger(), page.device, page.kind, page.bytes);
    holdings_add(HOLDING_PAGE, handle, &page);
  } else if (code != CU_OK && uses > 0)
    holdings_use(HOLDING_PAGE, handle, 1, &page);
  return code;
}

/* ---- mappings ---- */

cu_result cuMemMap(cu_addr addr, size_t bytes, size_t offset, cu_handle handle,
                   unsigned long long flags) {
  __typeof__(&cuMemMap) real = REAL(cuMemMap);
  holding page;
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  if (page_parts_is(handle)) return page_parts_map(addr, bytes, offset, handle, flags);
  if (page_is_token(handle)) return page_map(addr, bytes, offset, handle, flags);
  cu_result code = page_leave_range(addr, bytes);
  if (code == CU_OK) code = real(addr, bytes, offset, handle, flags);
  if (code == CU_OK && holdings_use(HOLDING_PAGE, handle, 1, &page) > 0) {
    holdings_add(HOLDING_MAPPING, addr,
                 &(holding){0, page.kind, page.device, NULL, handle, 1, false});
    record_event(STOW_TRACE_SEGMENT_MAP, addr, page.bytes, NULL, page.device, 0);
  }
  return code;
}

cu_result cuMemUnmap(cu_addr addr, size_t bytes) {
  __typeof__(&cuMemUnmap) real = REAL(cuMemUnmap);
  cu_result code;
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  page_parts_unmapping(addr, bytes);
  if (page_unmap_range(addr, bytes, &code)) return code;
  /* What the program has already unmapped must be unmapped for the driver too. */
  code = page_leave_range(addr, bytes);
  if (code == CU_OK) code = real(addr, bytes);
  if (code != CU_OK) return code;
  page_unmapped(addr, bytes);
  for (uint64_t done = 0; done < bytes;) {
    holding mapping, page = {.bytes = SHIM_GRANULE};
    bool known = holdings_remove(HOLDING_MAPPING, addr + done, &mapping);
    if (known && page_is_token(mapping.link))
      page_alias_gone(mapping.link);
    else if (known && holdings_use(HOLDING_PAGE, mapping.link, -1, &page) >= 0)
      record_event(STOW_TRACE_SEGMENT_UNMAP, addr + done, page.bytes, NULL, page.device, 0);
    done += page.bytes > 0 ? page.bytes : SHIM_GRANULE;
  }
  return code;
}

cu_result cuMemSetAccess(cu_addr addr, size_t bytes, const cu_access *access, size_t count) {
  __typeof__(&cuMemSetAccess) real = REAL(cuMemSetAccess);
  cu_result code;
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  if (!page_set_access(addr, bytes, access, count, &code)) {
    code = page_leave_range(addr, bytes);
    if (code == CU_OK) code = real(addr, bytes, access, count);
  }
  /* The last call of a request that consists of pages. */
  if (code == CU_OK) spill_served();
  return code;
}

cu_result cuMemAddressReserve(cu_addr *addr, size_t bytes, size_t align, cu_addr hint,
                              unsigned long long flags) {
  __typeof__(&cuMemAddressReserve) real = REAL(cuMemAddressReserve);
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  return addr == NULL || hint != 0 || flags != 0 ? real(addr, bytes, align, hint, flags)
                                                 : address_reserve(addr, bytes, align);
}

cu_result cuMemAddressFree(cu_addr addr, size_t bytes) {
  __typeof__(&cuMemAddressFree) real = REAL(cuMemAddressFree);
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  cu_result code = page_leave_range(addr, bytes);
  return code == CU_OK ? real(addr, bytes) : code;
}

/* ---- handles: converted to the driver's own for its calls ---- */

cu_result cuMemRetainAllocationHandle(cu_handle *handle, void *addr) {
  __typeof__(&cuMemRetainAllocationHandle) real = REAL(cuMemRetainAllocationHandle);
  holding page;
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  if (handle != NULL && (page_parts_retain(handle, addr) || page_retain(handle, addr)))
    return CU_OK;
  cu_result code = real(handle, addr);
  if (code == CU_OK && handle != NULL) holdings_use(HOLDING_PAGE, *handle, 1, &page);
  return code;
}

static cu_handle real_handle(cu_handle handle) {
  if (page_parts_is(handle)) return 0; /* one handle cannot name them all */
  return page_is_token(handle) ? page_real(handle) : handle;
}

cu_result cuMemExportToShareableHandle(void *shareable, cu_handle handle, int type,
                                       unsigned long long flags) {
  __typeof__(&cuMemExportToShareableHandle) real = REAL(cuMemExportToShareableHandle);
  return real == NULL ? CU_ERROR_NOT_SUPPORTED : real(shareable, real_handle(handle), type, flags);
}

/* For network devices, which access the current pages. */
cu_result cuMemGetHandleForAddressRange(void *handle, cu_addr addr, size_t bytes, int type,
                                        unsigned long long flags) {
  __typeof__(&cuMemGetHandleForAddressRange) real = REAL(cuMemGetHandleForAddressRange);
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  page_pin_range(addr, bytes);
  return real(handle, addr, bytes, type, flags);
}

cu_result cuMemGetAllocationPropertiesFromHandle(cu_prop *prop, cu_handle handle) {
  __typeof__(&cuMemGetAllocationPropertiesFromHandle) real =
      REAL(cuMemGetAllocationPropertiesFromHandle);
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  if (prop == NULL || !(page_is_token(handle) || page_parts_is(handle))) return real(prop, handle);
  bool known = page_parts_is(handle) ? page_parts_prop(prop, handle) : page_prop(prop, handle);
  return known ? CU_OK : CU_ERROR_INVALID_VALUE;
}

cu_result cuMulticastBindMem(cu_handle multicast, size_t offset, cu_handle handle,
                             size_t handle_offset, size_t bytes, unsigned long long flags) {
  __typeof__(&cuMulticastBindMem) real = REAL(cuMulticastBindMem);
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  return real(multicast, offset, real_handle(handle), handle_offset, bytes, flags);
}

/* Maps entry by entry, in copies, because the list belongs to the program. */
static cu_result map_arrays(__typeof__(&cuMemMapArrayAsync) real, cu_array_map *maps,
                            unsigned count, cu_stream stream) {
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  for (unsigned i = 0; maps != NULL && i < count; i++) {
    cu_array_map one = maps[i];
    if (one.handle_type == 0) one.handle = real_handle(one.handle);
    cu_result code = real(&one, 1, stream);
    if (code != CU_OK) return code;
  }
  return maps == NULL || count == 0 ? real(maps, count, stream) : CU_OK;
}

cu_result cuMemMapArrayAsync(cu_array_map *maps, unsigned count, cu_stream stream) {
  return map_arrays(REAL(cuMemMapArrayAsync), maps, count, stream);
}

cu_result cuMemMapArrayAsync_ptsz(cu_array_map *maps, unsigned count, cu_stream stream) {
  return map_arrays(REAL(cuMemMapArrayAsync_ptsz), maps, count, stream);
}
