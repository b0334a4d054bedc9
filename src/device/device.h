/* Device: calls through the interface stowage/sys/device.h, and the backends behind it.
 *
 * Everything above calls a device through these inline functions: device_map(d, …) is
 * d->ops->map(d, …). */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include <stowage/sys/device.h>

#include "base/assert.h"
#include "base/status.h"

/* ---- backends, one function each to open them ---- */

/* Opens a simulated device. `spec` is the text after "sim": "", ":16G",
 * ":16G,host=32G,paper,costs". */
stow_status sim_open_spec(stow_device **device, const char *spec);

/* Opens a GPU. `name` is an index or a UUID (or a unique prefix of one). STOW_ERR_NOT_FOUND: there
 * is no driver, or no such device; the message says which. */
stow_status cuda_open(stow_device **device, const char *name);
/* Counts the GPUs. Returns 0 and STOW_OK without a driver. */
stow_status cuda_count(int *count);

/* ---- the calls ---- */

static inline stow_status device_memory(stow_device *d, stow_tier tier, uint64_t *free_bytes,
                                        uint64_t *total_bytes) {
  ASSERT(d != NULL && d->ops != NULL);
  return d->ops->memory(d, tier, free_bytes, total_bytes);
}
/* Checks that the backend's table is complete. For devices that come from outside. */
static inline stow_status device_check(const stow_device *d) {
  if (d->ops != NULL && d->ops->struct_bytes >= sizeof(stow_device_ops)) return STOW_OK;
  return stow_fail(STOW_ERR_INVALID,
                   "stow_device_ops: struct_bytes is %u; set it to sizeof(stow_device_ops)",
                   d->ops != NULL ? d->ops->struct_bytes : 0);
}
static inline stow_status device_props(const stow_device *d, stow_device_props *props) {
  ASSERT(d != NULL && d->ops != NULL);
  *props = (stow_device_props)STOW_DEVICE_PROPS_INIT;
  stow_status status = d->ops->props(d, props);
  props->struct_bytes = sizeof *props;
  return status;
}
static inline stow_status device_reserve(stow_device *d, stow_addr *addr, uint64_t bytes,
                                         uint64_t align) {
  ASSERT(d != NULL && d->ops != NULL);
  return d->ops->reserve(d, addr, bytes, align);
}
static inline stow_status device_unreserve(stow_device *d, stow_addr addr, uint64_t bytes) {
  ASSERT(d != NULL && d->ops != NULL);
  return d->ops->unreserve(d, addr, bytes);
}
static inline stow_status device_page_create(stow_device *d, stow_page *page, uint64_t bytes,
                                             stow_tier tier) {
  ASSERT(d != NULL && d->ops != NULL);
  return d->ops->page_create(d, page, bytes, tier);
}
static inline stow_status device_page_release(stow_device *d, stow_page page) {
  ASSERT(d != NULL && d->ops != NULL);
  return d->ops->page_release(d, page);
}
static inline stow_status device_map(stow_device *d, stow_addr addr, uint64_t bytes,
                                     stow_page page) {
  ASSERT(d != NULL && d->ops != NULL);
  return d->ops->map(d, addr, bytes, page);
}
static inline stow_status device_unmap(stow_device *d, stow_addr addr, uint64_t bytes) {
  ASSERT(d != NULL && d->ops != NULL);
  return d->ops->unmap(d, addr, bytes);
}
static inline stow_status device_access(stow_device *d, stow_addr addr, uint64_t bytes) {
  ASSERT(d != NULL && d->ops != NULL);
  return d->ops->access(d, addr, bytes);
}
static inline stow_status device_plain_alloc(stow_device *d, stow_addr *addr, uint64_t bytes,
                                             stow_tier tier) {
  ASSERT(d != NULL && d->ops != NULL);
  return d->ops->plain_alloc(d, addr, bytes, tier);
}
static inline stow_status device_plain_free(stow_device *d, stow_addr addr) {
  ASSERT(d != NULL && d->ops != NULL);
  return d->ops->plain_free(d, addr);
}
static inline stow_status device_copy(stow_device *d, stow_addr to, stow_addr from, uint64_t bytes,
                                      stow_stream stream) {
  ASSERT(d != NULL && d->ops != NULL);
  return d->ops->copy(d, to, from, bytes, stream);
}
static inline stow_status device_fill(stow_device *d, stow_addr to, uint8_t value, uint64_t bytes,
                                      stow_stream stream) {
  ASSERT(d != NULL && d->ops != NULL);
  return d->ops->fill(d, to, value, bytes, stream);
}
static inline stow_status device_stream_create(stow_device *d, stow_stream *stream) {
  ASSERT(d != NULL && d->ops != NULL);
  return d->ops->stream_create(d, stream);
}
static inline stow_status device_stream_destroy(stow_device *d, stow_stream stream) {
  ASSERT(d != NULL && d->ops != NULL);
  return d->ops->stream_destroy(d, stream);
}
static inline stow_status device_stream_sync(stow_device *d, stow_stream stream) {
  ASSERT(d != NULL && d->ops != NULL);
  return d->ops->stream_sync(d, stream);
}
static inline stow_status device_stream_wait(stow_device *d, stow_stream stream, stow_event event) {
  ASSERT(d != NULL && d->ops != NULL);
  return d->ops->stream_wait(d, stream, event);
}
static inline stow_status device_event_create(stow_device *d, stow_event *event) {
  ASSERT(d != NULL && d->ops != NULL);
  return d->ops->event_create(d, event);
}
static inline stow_status device_event_destroy(stow_device *d, stow_event event) {
  ASSERT(d != NULL && d->ops != NULL);
  return d->ops->event_destroy(d, event);
}
static inline stow_status device_event_record(stow_device *d, stow_event event,
                                              stow_stream stream) {
  ASSERT(d != NULL && d->ops != NULL);
  return d->ops->event_record(d, event, stream);
}
static inline stow_status device_event_query(stow_device *d, stow_event event) {
  ASSERT(d != NULL && d->ops != NULL);
  return d->ops->event_query(d, event);
}
static inline stow_status device_event_wait(stow_device *d, stow_event event) {
  ASSERT(d != NULL && d->ops != NULL);
  return d->ops->event_wait(d, event);
}
static inline stow_status device_thread_enter(stow_device *d) {
  ASSERT(d != NULL && d->ops != NULL);
  return d->ops->thread_enter(d);
}

#endif
