/* Hooks of virtual memory: pages, and where they are mapped. A page counts from its making until
 * its last handle is released and its last mapping is gone, as the driver keeps it. */
#include "shim/account.h"
#include "shim/hooks.h"
#include "shim/plain.h"
#include "shim/record.h"
#include "shim/spill.h"

/* Pages that the program itself puts on the host are only told. */
static cu_result create_elsewhere(cu_handle *handle, size_t bytes, const cu_prop *prop,
                                  unsigned long long flags) {
  cu_result code = REAL(cuMemCreate)(handle, bytes, prop, flags);
  if (code != CU_OK) return code;
  ledger_add(account_ledger(), 0, LEDGER_PINNED, bytes);
  book_add(BOOK_PAGE, *handle, &(holding){bytes, LEDGER_PINNED, 0, NULL, 0, 1, false});
  return code;
}

/* Would a page of `bytes` leave the reserve untouched? Not to the byte among processes: what is
 * kept exactly is the limit itself. */
static bool leaves_reserve(unsigned device, uint64_t bytes) {
  const ledger *l = account_ledger();
  uint64_t reserve = spill_reserve(device);
  ledger_totals totals;
  if (reserve == 0) return true;
  ledger_sum(l, device, &totals);
  uint64_t limit = ledger_limit(l, device) - reserve;
  return bytes <= limit && totals.vram_bytes <= limit - bytes;
}

cu_result cuMemCreate(cu_handle *handle, size_t bytes, const cu_prop *prop,
                      unsigned long long flags) {
  __typeof__(&cuMemCreate) real = REAL(cuMemCreate);
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  if (handle == NULL || prop == NULL) return real(handle, bytes, prop, flags);
  if (prop->location.type != CU_LOCATION_DEVICE)
    return create_elsewhere(handle, bytes, prop, flags);
  unsigned device = account_device(prop->location.id);
  cu_result code = CU_ERROR_OUT_OF_MEMORY;
  spill_asked();
  if (leaves_reserve(device, bytes) && account_take(device, LEDGER_PAGES, bytes)) {
    code = real(handle, bytes, prop, flags);
    /* The heap of plain requests may hold it idle. */
    if (code == CU_ERROR_OUT_OF_MEMORY && plain_trim(device, false))
      code = real(handle, bytes, prop, flags);
    if (code == CU_OK)
      book_add(BOOK_PAGE, *handle, &(holding){bytes, LEDGER_PAGES, device, NULL, 0, 1, false});
    else
      ledger_give(account_ledger(), device, LEDGER_PAGES, bytes);
  }
  if (code == CU_ERROR_OUT_OF_MEMORY && spill_wanted(device, prop->location.id, bytes))
    code = spill_page(handle, bytes, prop, device);
  return code;
}

cu_result cuMemRelease(cu_handle handle) {
  __typeof__(&cuMemRelease) real = REAL(cuMemRelease);
  holding page;
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  /* Out of the book before the driver is asked: it may give the same handle out again at once. */
  int uses = book_use(BOOK_PAGE, handle, -1, &page);
  cu_result code = real(handle);
  if (code != CU_OK && uses == 0) {
    page.uses = 1;
    ledger_add(account_ledger(), page.device, page.kind, page.bytes);
    book_add(BOOK_PAGE, handle, &page);
  } else if (code != CU_OK && uses > 0)
    book_use(BOOK_PAGE, handle, 1, &page);
  return code;
}

static void note_mapping(cu_addr addr, cu_handle handle, const holding *page) {
  bool spilled = page->kind == LEDGER_SPILLED;
  book_add(BOOK_MAPPING, addr, &(holding){0, page->kind, page->device, NULL, handle, 1, false});
  if (spilled) record_event(STOW_TRACE_SPILL, addr, page->bytes, NULL, page->device, 1);
  record_event(STOW_TRACE_SEGMENT_MAP, addr, page->bytes, NULL, page->device, spilled);
}

cu_result cuMemMap(cu_addr addr, size_t bytes, size_t offset, cu_handle handle,
                   unsigned long long flags) {
  __typeof__(&cuMemMap) real = REAL(cuMemMap);
  holding page;
  cu_result code = real == NULL ? CU_ERROR_NOT_SUPPORTED : real(addr, bytes, offset, handle, flags);
  if (code == CU_OK && book_use(BOOK_PAGE, handle, 1, &page) > 0) note_mapping(addr, handle, &page);
  return code;
}

cu_result cuMemUnmap(cu_addr addr, size_t bytes) {
  __typeof__(&cuMemUnmap) real = REAL(cuMemUnmap);
  cu_result code = real == NULL ? CU_ERROR_NOT_SUPPORTED : real(addr, bytes);
  if (code != CU_OK) return code;
  for (uint64_t done = 0; done < bytes;) {
    holding mapping, page = {.bytes = SHIM_GRANULE};
    if (book_remove(BOOK_MAPPING, addr + done, &mapping) &&
        book_use(BOOK_PAGE, mapping.link, -1, &page) >= 0)
      record_event(STOW_TRACE_SEGMENT_UNMAP, addr + done, page.bytes, NULL, page.device,
                   page.kind == LEDGER_SPILLED);
    done += page.bytes > 0 ? page.bytes : SHIM_GRANULE;
  }
  return code;
}

cu_result cuMemSetAccess(cu_addr addr, size_t bytes, const cu_access *access, size_t count) {
  __typeof__(&cuMemSetAccess) real = REAL(cuMemSetAccess);
  cu_result code = real == NULL ? CU_ERROR_NOT_SUPPORTED : real(addr, bytes, access, count);
  /* The last call of a request that is made of pages. */
  if (code == CU_OK) spill_served();
  return code;
}

cu_result cuMemRetainAllocationHandle(cu_handle *handle, void *addr) {
  __typeof__(&cuMemRetainAllocationHandle) real = REAL(cuMemRetainAllocationHandle);
  holding page;
  cu_result code = real == NULL ? CU_ERROR_NOT_SUPPORTED : real(handle, addr);
  if (code == CU_OK) book_use(BOOK_PAGE, *handle, 1, &page);
  return code;
}
