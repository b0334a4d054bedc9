/* Cuda context: makes the device's context current for one call, and holds the checks that a
 * device's entries share. */
#include <inttypes.h>

#include <stowage/size.h>

#include "device/cuda_device.h"

/* Set for good by thread_enter: this thread is ours and needs no switch at each call. */
static _Thread_local bool thread_relaxed;

void cuda_note_lost(cuda_dev *d, cu_result code) {
  if (cuda_status_of(code) == STOW_ERR_DEVICE_LOST) atomic_store(&d->lost, true);
}

stow_status cuda_enter(cuda_dev *d, cuda_scope *scope) {
  *scope = (cuda_scope){.capture_mode = CU_CAPTURE_RELAXED};
  if (atomic_load_explicit(&d->lost, memory_order_relaxed))
    return stow_fail(STOW_ERR_DEVICE_LOST,
                     "device %s was lost earlier and cannot be used; restart the process",
                     d->props.uuid);
  cu_context current = NULL;
  cu_result code = d->driver->cuCtxGetCurrent(&current);
  if (code == CU_OK && current != d->context) {
    code = d->driver->cuCtxPushCurrent_v2(d->context);
    scope->pushed = code == CU_OK;
  }
  if (code != CU_OK) return cuda_fail(d, code, "entering device %s", d->props.uuid);
  if (!thread_relaxed && d->driver->cuThreadExchangeStreamCaptureMode != NULL)
    scope->exchanged = d->driver->cuThreadExchangeStreamCaptureMode(&scope->capture_mode) == CU_OK;
  return STOW_OK;
}

void cuda_leave(cuda_dev *d, const cuda_scope *scope) {
  int mode = scope->capture_mode;
  cu_context popped;
  if (scope->exchanged) d->driver->cuThreadExchangeStreamCaptureMode(&mode);
  if (scope->pushed) d->driver->cuCtxPopCurrent_v2(&popped);
}

stow_status cuda_thread_enter(stow_device *device) {
  cuda_dev *d = (cuda_dev *)(uintptr_t)device;
  if (atomic_load(&d->lost))
    return stow_fail(STOW_ERR_DEVICE_LOST, "entering device %s: the device was lost",
                     d->props.uuid);
  cu_result code = d->driver->cuCtxSetCurrent(d->context);
  if (code != CU_OK) return cuda_fail(d, code, "making device %s current", d->props.uuid);
  int mode = CU_CAPTURE_RELAXED;
  if (d->driver->cuThreadExchangeStreamCaptureMode != NULL &&
      d->driver->cuThreadExchangeStreamCaptureMode(&mode) == CU_OK)
    thread_relaxed = true;
  return STOW_OK;
}

stow_status cuda_check_extent(const cuda_dev *d, const char *what, stow_addr addr, uint64_t bytes) {
  uint64_t granule = d->props.page_bytes;
  char size[STOW_SIZE_TEXT_MAX], unit[STOW_SIZE_TEXT_MAX];
  if (bytes == 0 || bytes % granule != 0)
    return stow_fail(STOW_ERR_INVALID, "%s %s (%" PRIu64 " bytes): not a multiple of %s", what,
                     stow_size_format(size, bytes), bytes, stow_size_format(unit, granule));
  if (addr % granule != 0)
    return stow_fail(STOW_ERR_INVALID,
                     "%s %s at 0x%" PRIx64 ": the address is not a multiple of %s", what,
                     stow_size_format(size, bytes), addr, stow_size_format(unit, granule));
  return STOW_OK;
}

void cuda_thread_leave(cuda_dev *d) {
  cu_context current = NULL;
  if (d->driver->cuCtxGetCurrent(&current) == CU_OK && current == d->context && thread_relaxed)
    d->driver->cuCtxSetCurrent(NULL);
}
