/* Cuda pages: address ranges, physical pages and mappings.
 *
 * The table is checked and updated first, under its lock. The driver is called without a lock,
 * because creating host pages takes a quarter of a second per GiB. If the driver refuses, the
 * table's entry is undone, so an error changes nothing. */
#include <inttypes.h>
#include <stdlib.h>

#include <stowage/size.h>

#include "base/assert.h"
#include "base/checked.h"
#include "device/cuda_device.h"

static stow_status want_pages(const cuda_dev *d) {
  if (d->props.has_vmm) return STOW_OK;
  return stow_fail(STOW_ERR_UNSUPPORTED,
                   "%s: this driver or device has no virtual memory management (CUDA %d.%d), so no "
                   "pages or ranges; plain allocations work",
                   d->props.uuid, d->props.driver_version / 1000,
                   d->props.driver_version % 1000 / 10);
}

/* ---- ranges ---- */

/* Requests more than needed, so that the result contains an aligned range. */
static cu_result reserve_wide(cuda_dev *d, table_range *range, uint64_t align) {
  uint64_t wide;
  cu_addr addr = 0;
  if (!checked_add(&wide, range->bytes, align)) return CU_ERROR_OUT_OF_MEMORY;
  cu_result code = d->driver->cuMemAddressReserve(&addr, wide, 0, 0, 0);
  if (code != CU_OK) return code;
  range->outer_addr = addr;
  range->outer_bytes = wide;
  range->addr = round_up(addr, align);
  return CU_OK;
}

static cu_result reserve_aligned(cuda_dev *d, table_range *range, uint64_t align) {
  cu_addr addr = 0;
  cu_result code = d->driver->cuMemAddressReserve(&addr, range->bytes, align, 0, 0);
  if (code == CU_ERROR_INVALID_VALUE && align > d->props.page_bytes)
    return reserve_wide(d, range, align);
  if (code != CU_OK) return code;
  if (addr % align != 0) { /* the driver treats the alignment as a hint */
    d->driver->cuMemAddressFree(addr, range->bytes);
    return reserve_wide(d, range, align);
  }
  range->addr = range->outer_addr = addr;
  range->outer_bytes = range->bytes;
  return CU_OK;
}

stow_status cuda_reserve(stow_device *device, stow_addr *addr, uint64_t bytes, uint64_t align) {
  cuda_dev *d = (cuda_dev *)device;
  char size[STOW_SIZE_TEXT_MAX], unit[STOW_SIZE_TEXT_MAX];
  *addr = 0;
  STOW_TRY(want_pages(d));
  STOW_TRY(cuda_check_extent(d, "reserving", 0, bytes));
  if (align == 0) align = d->props.page_bytes;
  if (!is_power_of_two(align) || align < d->props.page_bytes)
    return stow_fail(STOW_ERR_INVALID,
                     "reserving %s aligned to %" PRIu64 ": the alignment must be a power of two "
                     "of at least %s",
                     stow_size_format(size, bytes), align,
                     stow_size_format(unit, d->props.page_bytes));
  cuda_scope scope;
  STOW_TRY(cuda_enter(d, &scope));
  table_range range = {.bytes = bytes};
  cu_result code = reserve_aligned(d, &range, align);
  stow_status status = STOW_OK;
  /* All arguments were checked, so the only possible invalid value is a size beyond the address
   * space. */
  if (code == CU_ERROR_INVALID_VALUE) code = CU_ERROR_OUT_OF_MEMORY;
  if (code != CU_OK)
    status = cuda_fail(d, code, "reserving %s of addresses; free ranges, or reserve less",
                       stow_size_format(size, bytes));
  else {
    lock_acquire(&d->table_lock);
    status = table_range_add(&d->table, &range);
    lock_release(&d->table_lock);
    if (status != STOW_OK) d->driver->cuMemAddressFree(range.outer_addr, range.outer_bytes);
  }
  cuda_leave(d, &scope);
  if (status == STOW_OK) *addr = range.addr;
  return status;
}

stow_status cuda_unreserve(stow_device *device, stow_addr addr, uint64_t bytes) {
  cuda_dev *d = (cuda_dev *)device;
  table_range range;
  STOW_TRY(want_pages(d));
  STOW_TRY(cuda_check_extent(d, "unreserving", addr, bytes));
  cuda_scope scope;
  STOW_TRY(cuda_enter(d, &scope));
  lock_acquire(&d->table_lock);
  stow_status status = table_range_take(&d->table, addr, bytes, &range);
  lock_release(&d->table_lock);
  if (status == STOW_OK) {
    cu_result code = d->driver->cuMemAddressFree(range.outer_addr, range.outer_bytes);
    if (code == CU_OK)
      table_range_free(&range);
    else {
      lock_acquire(&d->table_lock);
      table_range_back(&d->table, &range);
      lock_release(&d->table_lock);
      status = cuda_fail(d, code, "unreserving 0x%" PRIx64, addr);
    }
  }
  cuda_leave(d, &scope);
  return status;
}

/* ---- pages ---- */

static stow_status page_prop(cuda_dev *d, stow_tier tier, cu_prop *prop) {
  ASSERT(prop != NULL);
  if (tier == STOW_TIER_VRAM) {
    *prop = physical_vram_prop(d->id.handle);
    return STOW_OK;
  }
  if (tier != STOW_TIER_HOST)
    return stow_fail(STOW_ERR_UNSUPPORTED, "creating a page: a CUDA device has no pages on tier %s",
                     stow_tier_name(tier));
  cuda_host_find(d);
  if (!physical_host_prop(prop, d->props.host_backing, d->props.host_numa_node))
    return stow_fail(
        STOW_ERR_UNSUPPORTED, "creating a page on the host: %s%s",
        d->props.host_backing == STOW_HOST_PINNED ? "only plain allocations work here: " : "",
        d->host_reason);
  return STOW_OK;
}

/* For out-of-memory, reports how much is free; otherwise the driver's text. */
static stow_status create_failed(cuda_dev *d, cu_result code, uint64_t bytes, stow_tier tier) {
  ASSERT(code != CU_OK);
  char size[STOW_SIZE_TEXT_MAX], have[STOW_SIZE_TEXT_MAX], of[STOW_SIZE_TEXT_MAX];
  size_t free_bytes, total_bytes;
  stow_size_format(size, bytes);
  if (code == CU_ERROR_INVALID_VALUE && bytes > d->props.vram_bytes) code = CU_ERROR_OUT_OF_MEMORY;
  if (code == CU_ERROR_OUT_OF_MEMORY && tier == STOW_TIER_VRAM &&
      d->driver->cuMemGetInfo_v2(&free_bytes, &total_bytes) == CU_OK)
    return cuda_fail(d, code, "creating a page of %s in vram with %s of %s free", size,
                     stow_size_format(have, free_bytes), stow_size_format(of, total_bytes));
  return cuda_fail(d, code, "creating a page of %s on tier %s", size, stow_tier_name(tier));
}

stow_status cuda_page_create(stow_device *device, stow_page *page, uint64_t bytes, stow_tier tier) {
  cuda_dev *d = (cuda_dev *)device;
  *page = 0;
  STOW_TRY(want_pages(d));
  STOW_TRY(cuda_check_extent(d, "creating a page of", 0, bytes));
  cu_prop prop;
  STOW_TRY(page_prop(d, tier, &prop));
  if (tier == STOW_TIER_HOST) STOW_TRY(cuda_host_take(d, bytes, "creating a page of"));
  cuda_scope scope;
  STOW_TRY(cuda_enter(d, &scope));
  cu_handle handle = 0;
  stow_status status;
  cu_result code = physical_page_create(&d->physical, &handle, bytes, &prop, 0);
  if (code != CU_OK)
    status = create_failed(d, code, bytes, tier);
  else {
    lock_acquire(&d->table_lock);
    status = table_page_add(&d->table, handle, bytes, tier);
    lock_release(&d->table_lock);
    if (status != STOW_OK) physical_page_release(&d->physical, handle, bytes);
  }
  cuda_leave(d, &scope);
  if (status == STOW_OK) *page = handle;
  return status;
}

stow_status cuda_page_release(stow_device *device, stow_page page) {
  cuda_dev *d = (cuda_dev *)device;
  table_page taken;
  STOW_TRY(want_pages(d));
  cuda_scope scope;
  STOW_TRY(cuda_enter(d, &scope));
  lock_acquire(&d->table_lock);
  stow_status status = table_page_take(&d->table, page, &taken);
  lock_release(&d->table_lock);
  if (status == STOW_OK) {
    cu_result code = physical_page_release(&d->physical, page, taken.bytes);
    if (code != CU_OK) {
      lock_acquire(&d->table_lock);
      (void)table_page_add(&d->table, page, taken.bytes, taken.tier);
      lock_release(&d->table_lock);
      status = cuda_fail(d, code, "releasing page 0x%" PRIx64, page);
    }
  }
  cuda_leave(d, &scope);
  return status;
}

/* ---- mappings ---- */

stow_status cuda_map(stow_device *device, stow_addr addr, uint64_t bytes, stow_page page) {
  cuda_dev *d = (cuda_dev *)device;
  STOW_TRY(want_pages(d));
  STOW_TRY(cuda_check_extent(d, "mapping", addr, bytes));
  cuda_scope scope;
  STOW_TRY(cuda_enter(d, &scope));
  lock_acquire(&d->table_lock);
  stow_status status = table_map(&d->table, addr, bytes, page);
  lock_release(&d->table_lock);
  if (status == STOW_OK) {
    cu_result code = d->driver->cuMemMap(addr, bytes, 0, page, 0);
    if (code != CU_OK) {
      lock_acquire(&d->table_lock);
      table_unmap(&d->table, addr, bytes);
      lock_release(&d->table_lock);
      status = cuda_fail(d, code, "mapping page 0x%" PRIx64 " at 0x%" PRIx64, page, addr);
    }
  }
  cuda_leave(d, &scope);
  return status;
}

/* Checks a run of whole mapped pages, for unmap and set-access. */
static stow_status check_run(cuda_dev *d, const char *what, stow_addr addr, uint64_t bytes) {
  STOW_TRY(want_pages(d));
  STOW_TRY(cuda_check_extent(d, what, addr, bytes));
  lock_acquire(&d->table_lock);
  stow_status status = table_check_mapped(&d->table, addr, bytes, what);
  lock_release(&d->table_lock);
  return status;
}

stow_status cuda_unmap(stow_device *device, stow_addr addr, uint64_t bytes) {
  cuda_dev *d = (cuda_dev *)device;
  STOW_TRY(check_run(d, "unmapping", addr, bytes));
  cuda_scope scope;
  STOW_TRY(cuda_enter(d, &scope));
  cu_result code = d->driver->cuMemUnmap(addr, bytes);
  stow_status status = STOW_OK;
  if (code != CU_OK)
    status = cuda_fail(d, code, "unmapping 0x%" PRIx64, addr);
  else {
    lock_acquire(&d->table_lock);
    table_unmap(&d->table, addr, bytes);
    lock_release(&d->table_lock);
  }
  cuda_leave(d, &scope);
  return status;
}

stow_status cuda_access(stow_device *device, stow_addr addr, uint64_t bytes) {
  cuda_dev *d = (cuda_dev *)device;
  STOW_TRY(check_run(d, "granting access to", addr, bytes));
  cuda_scope scope;
  STOW_TRY(cuda_enter(d, &scope));
  cu_access grant = {.location = {CU_LOCATION_DEVICE, d->id.handle}, .flags = CU_ACCESS_READ_WRITE};
  cu_result code = d->driver->cuMemSetAccess(addr, bytes, &grant, 1);
  cuda_leave(d, &scope);
  return code == CU_OK ? STOW_OK : cuda_fail(d, code, "granting access at 0x%" PRIx64, addr);
}
