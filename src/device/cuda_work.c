/* Cuda work: plain allocations, copies, streams and events.
 *
 * A stream or event may be the program's own (the shim passes them on), so submitting work accepts
 * any handle; only what was created here can be destroyed here. */
#include <inttypes.h>
#include <stdlib.h>

#include <stowage/size.h>

#include "base/checked.h"
#include "device/cuda_device.h"

/* ---- plain allocations ---- */

static void free_plain(cuda_dev *d, stow_addr addr, const table_plain *plain, cu_result *code) {
  *code = plain->tier == STOW_TIER_HOST
              ? physical_pinned_free(&d->physical, plain->pointer, plain->bytes)
              : physical_plain_free(&d->physical, addr, plain->bytes);
}

/* Checks that the tier can hold plain allocations and has room for this one. */
static stow_status check_plain(cuda_dev *d, uint64_t bytes, stow_tier tier) {
  if (bytes == 0) return stow_fail(STOW_ERR_INVALID, "allocating 0 bytes on %s", d->props.uuid);
  if (tier == STOW_TIER_VRAM) return STOW_OK;
  if (tier != STOW_TIER_HOST)
    return stow_fail(STOW_ERR_UNSUPPORTED, "allocating: a CUDA device has no tier %s",
                     stow_tier_name(tier));
  cuda_host_find(d);
  if (d->props.host_backing == STOW_HOST_NONE)
    return stow_fail(STOW_ERR_UNSUPPORTED, "allocating on the host: %s", d->host_reason);
  return cuda_host_take(d, bytes, "allocating");
}

stow_status cuda_plain_alloc(stow_device *device, stow_addr *addr, uint64_t bytes, stow_tier tier) {
  cuda_dev *d = (cuda_dev *)device;
  *addr = 0;
  STOW_TRY(check_plain(d, bytes, tier));
  cuda_scope scope;
  STOW_TRY(cuda_enter(d, &scope));
  cu_addr got = 0;
  table_plain plain = {.bytes = bytes, .tier = tier};
  cu_result code = tier == STOW_TIER_HOST
                       ? physical_pinned_alloc(&d->physical, &got, &plain.pointer, bytes)
                       : physical_plain_alloc(&d->physical, &got, bytes, bytes);
  stow_status status = STOW_OK;
  if (code != CU_OK) {
    char size[STOW_SIZE_TEXT_MAX];
    if (code == CU_ERROR_INVALID_VALUE && bytes > d->props.vram_bytes)
      code = CU_ERROR_OUT_OF_MEMORY; /* some drivers report huge sizes as invalid */
    status = cuda_fail(d, code, "allocating %s on tier %s", stow_size_format(size, bytes),
                       stow_tier_name(tier));
  } else {
    lock_acquire(&d->table_lock);
    status = table_plain_add(&d->table, got, bytes, tier, plain.pointer);
    lock_release(&d->table_lock);
    if (status != STOW_OK) free_plain(d, got, &plain, &code);
  }
  cuda_leave(d, &scope);
  if (status == STOW_OK) *addr = got;
  return status;
}

stow_status cuda_plain_free(stow_device *device, stow_addr addr) {
  cuda_dev *d = (cuda_dev *)device;
  table_plain plain;
  cuda_scope scope;
  STOW_TRY(cuda_enter(d, &scope));
  lock_acquire(&d->table_lock);
  stow_status status = table_plain_take(&d->table, addr, &plain);
  lock_release(&d->table_lock);
  if (status == STOW_OK) {
    cu_result code;
    free_plain(d, addr, &plain, &code);
    if (code != CU_OK) {
      lock_acquire(&d->table_lock);
      (void)table_plain_add(&d->table, addr, plain.bytes, plain.tier, plain.pointer);
      lock_release(&d->table_lock);
      status = cuda_fail(d, code, "freeing 0x%" PRIx64, addr);
    }
  }
  cuda_leave(d, &scope);
  return status;
}

/* ---- work ---- */

static stow_status check_bytes(const char *what, stow_addr addr, uint64_t bytes) {
  uint64_t end;
  if (addr == 0) return stow_fail(STOW_ERR_INVALID, "%s: address 0", what);
  if (!checked_add(&end, addr, bytes))
    return stow_fail(STOW_ERR_INVALID,
                     "%s: %" PRIu64 " bytes at 0x%" PRIx64 " extend past the address space", what,
                     bytes, addr);
  return STOW_OK;
}

stow_status cuda_copy(stow_device *device, stow_addr to, stow_addr from, uint64_t bytes,
                      stow_stream stream) {
  cuda_dev *d = (cuda_dev *)device;
  char size[STOW_SIZE_TEXT_MAX];
  if (bytes == 0) return STOW_OK;
  STOW_TRY(check_bytes("copying to", to, bytes));
  STOW_TRY(check_bytes("copying from", from, bytes));
  if (to < from + bytes && from < to + bytes)
    return stow_fail(STOW_ERR_INVALID,
                     "copying %s from 0x%" PRIx64 " to 0x%" PRIx64 ": the ranges overlap",
                     stow_size_format(size, bytes), from, to);
  cuda_scope scope;
  STOW_TRY(cuda_enter(d, &scope));
  cu_result code = d->driver->cuMemcpyAsync(to, from, bytes, stream);
  cuda_leave(d, &scope);
  return code == CU_OK ? STOW_OK
                       : cuda_fail(d, code, "copying %s from 0x%" PRIx64 " to 0x%" PRIx64,
                                   stow_size_format(size, bytes), from, to);
}

stow_status cuda_fill(stow_device *device, stow_addr to, uint8_t value, uint64_t bytes,
                      stow_stream stream) {
  cuda_dev *d = (cuda_dev *)device;
  char size[STOW_SIZE_TEXT_MAX];
  if (bytes == 0) return STOW_OK;
  STOW_TRY(check_bytes("filling", to, bytes));
  cuda_scope scope;
  STOW_TRY(cuda_enter(d, &scope));
  cu_result code = d->driver->cuMemsetD8Async(to, value, bytes, stream);
  cuda_leave(d, &scope);
  return code == CU_OK
             ? STOW_OK
             : cuda_fail(d, code, "filling %s at 0x%" PRIx64, stow_size_format(size, bytes), to);
}

/* ---- streams and events ---- */

/* Records a new handle. */
static stow_status note(cuda_dev *d, map *handles, const void *handle) {
  lock_acquire(&d->table_lock);
  stow_status status = map_put(handles, (uintptr_t)handle, 0);
  lock_release(&d->table_lock);
  return status;
}

/* Removes one of our handles before it is destroyed. */
static stow_status forget(cuda_dev *d, map *handles, const void *handle, const char *what) {
  if (handle == NULL)
    return stow_fail(STOW_ERR_INVALID, "destroying a %s: the handle is NULL", what);
  lock_acquire(&d->table_lock);
  bool ours = map_remove(handles, (uintptr_t)handle, NULL);
  lock_release(&d->table_lock);
  return ours ? STOW_OK
              : stow_fail(STOW_ERR_STATE,
                          "destroying %s %p: not created through this device, or destroyed before",
                          what, handle);
}

stow_status cuda_stream_create(stow_device *device, stow_stream *stream) {
  cuda_dev *d = (cuda_dev *)device;
  *stream = NULL;
  cuda_scope scope;
  STOW_TRY(cuda_enter(d, &scope));
  cu_stream made = NULL;
  cu_result code = d->driver->cuStreamCreate(&made, CU_STREAM_NON_BLOCKING_FLAG);
  stow_status status = STOW_OK;
  if (code != CU_OK)
    status = cuda_fail(d, code, "creating a stream");
  else if ((status = note(d, &d->table.streams, made)) != STOW_OK)
    d->driver->cuStreamDestroy_v2(made);
  cuda_leave(d, &scope);
  if (status == STOW_OK) *stream = made;
  return status;
}

stow_status cuda_stream_destroy(stow_device *device, stow_stream stream) {
  cuda_dev *d = (cuda_dev *)device;
  cuda_scope scope;
  STOW_TRY(cuda_enter(d, &scope));
  stow_status status = forget(d, &d->table.streams, stream, "stream");
  if (status == STOW_OK) {
    cu_result code = d->driver->cuStreamDestroy_v2(stream);
    if (code != CU_OK) {
      (void)note(d, &d->table.streams, stream);
      status = cuda_fail(d, code, "destroying a stream");
    }
  }
  cuda_leave(d, &scope);
  return status;
}

stow_status cuda_stream_sync(stow_device *device, stow_stream stream) {
  cuda_dev *d = (cuda_dev *)device;
  cuda_scope scope;
  STOW_TRY(cuda_enter(d, &scope));
  cu_result code = d->driver->cuStreamSynchronize(stream);
  cuda_leave(d, &scope);
  return code == CU_OK ? STOW_OK : cuda_fail(d, code, "waiting for a stream");
}

static stow_status want_event(const void *event, const char *what) {
  return event != NULL ? STOW_OK : stow_fail(STOW_ERR_INVALID, "%s: no event", what);
}

stow_status cuda_stream_wait(stow_device *device, stow_stream stream, stow_event event) {
  cuda_dev *d = (cuda_dev *)device;
  STOW_TRY(want_event(event, "ordering a stream after an event"));
  cuda_scope scope;
  STOW_TRY(cuda_enter(d, &scope));
  cu_result code = d->driver->cuStreamWaitEvent(stream, event, 0);
  cuda_leave(d, &scope);
  return code == CU_OK ? STOW_OK : cuda_fail(d, code, "ordering a stream after an event");
}

stow_status cuda_event_create(stow_device *device, stow_event *event) {
  cuda_dev *d = (cuda_dev *)device;
  *event = NULL;
  cuda_scope scope;
  STOW_TRY(cuda_enter(d, &scope));
  cu_event made = NULL;
  cu_result code = d->driver->cuEventCreate(&made, CU_EVENT_NO_TIMING);
  stow_status status = STOW_OK;
  if (code != CU_OK)
    status = cuda_fail(d, code, "creating an event");
  else if ((status = note(d, &d->table.events, made)) != STOW_OK)
    d->driver->cuEventDestroy_v2(made);
  cuda_leave(d, &scope);
  if (status == STOW_OK) *event = made;
  return status;
}

stow_status cuda_event_destroy(stow_device *device, stow_event event) {
  cuda_dev *d = (cuda_dev *)device;
  cuda_scope scope;
  STOW_TRY(cuda_enter(d, &scope));
  stow_status status = forget(d, &d->table.events, event, "event");
  if (status == STOW_OK) {
    cu_result code = d->driver->cuEventDestroy_v2(event);
    if (code != CU_OK) {
      (void)note(d, &d->table.events, event);
      status = cuda_fail(d, code, "destroying an event");
    }
  }
  cuda_leave(d, &scope);
  return status;
}

stow_status cuda_event_record(stow_device *device, stow_event event, stow_stream stream) {
  cuda_dev *d = (cuda_dev *)device;
  STOW_TRY(want_event(event, "recording an event"));
  cuda_scope scope;
  STOW_TRY(cuda_enter(d, &scope));
  cu_result code = d->driver->cuEventRecord(event, stream);
  cuda_leave(d, &scope);
  return code == CU_OK ? STOW_OK : cuda_fail(d, code, "recording an event");
}

stow_status cuda_event_query(stow_device *device, stow_event event) {
  cuda_dev *d = (cuda_dev *)device;
  STOW_TRY(want_event(event, "querying an event"));
  cuda_scope scope;
  STOW_TRY(cuda_enter(d, &scope));
  cu_result code = d->driver->cuEventQuery(event);
  cuda_leave(d, &scope);
  if (code == CU_OK) return STOW_OK;
  if (code == CU_ERROR_NOT_READY) return STOW_ERR_NOT_READY; /* not an error: no message */
  return cuda_fail(d, code, "querying an event");
}

stow_status cuda_event_wait(stow_device *device, stow_event event) {
  cuda_dev *d = (cuda_dev *)device;
  STOW_TRY(want_event(event, "waiting for an event"));
  cuda_scope scope;
  STOW_TRY(cuda_enter(d, &scope));
  cu_result code = d->driver->cuEventSynchronize(event);
  cuda_leave(d, &scope);
  return code == CU_OK ? STOW_OK : cuda_fail(d, code, "waiting for an event");
}
