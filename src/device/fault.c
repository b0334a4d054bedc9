/* The fault device: forwards every call to the device it wraps, and fails the selected ones.
 *
 * For tests of the code above the device interface, where any device call may fail. A call that
 * fails here never reaches the inner device. */
#include "device/fault.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/lock.h"

typedef struct plan {
  uint64_t calls, failed;
  uint64_t at; /* the call to fail, counted from opening; 0: none */
  bool every;  /* also fail all later calls */
  stow_status status;
} plan;

typedef struct fault {
  stow_device base;
  lock lock; /* guards plans; not held during the inner call */
  stow_device *inner;
  plan plans[STOW_FAULT_KIND_COUNT];
} fault;

static const char *const kind_names[STOW_FAULT_KIND_COUNT] = {
    [STOW_FAULT_ANY] = "any",
    [STOW_FAULT_RESERVE] = "reserve",
    [STOW_FAULT_PAGE_CREATE] = "page create",
    [STOW_FAULT_MAP] = "map",
    [STOW_FAULT_UNMAP] = "unmap",
    [STOW_FAULT_ACCESS] = "access",
    [STOW_FAULT_PAGE_RELEASE] = "page release",
    [STOW_FAULT_UNRESERVE] = "unreserve",
    [STOW_FAULT_PLAIN] = "plain block",
    [STOW_FAULT_COPY] = "copy",
    [STOW_FAULT_STREAM] = "stream",
    [STOW_FAULT_EVENT] = "event",
    [STOW_FAULT_MEMORY] = "memory",
};

static fault *fault_of(const stow_device *device) {
  return (fault *)(uintptr_t)device;
}

/* Returns whether this call of `p` must fail. */
static bool plan_step(plan *p) {
  p->calls++;
  return p->at != 0 && (p->every ? p->calls >= p->at : p->calls == p->at);
}

/* Counts a call under its kind and under "any". Returns STOW_OK if it may proceed. */
static stow_status fault_step(stow_device *device, stow_fault_kind kind) {
  ASSERT((unsigned)kind < STOW_FAULT_KIND_COUNT);
  fault *f = fault_of(device);
  lock_acquire(&f->lock);
  bool by_kind = plan_step(&f->plans[kind]), by_any = plan_step(&f->plans[STOW_FAULT_ANY]);
  stow_status status = by_kind  ? f->plans[kind].status
                       : by_any ? f->plans[STOW_FAULT_ANY].status
                                : STOW_OK;
  uint64_t call = f->plans[kind].calls;
  if (by_kind || by_any) {
    f->plans[kind].failed++;
    f->plans[STOW_FAULT_ANY].failed++;
  }
  lock_release(&f->lock);
  if (status == STOW_OK || status == STOW_ERR_NOT_READY) return status;
  return stow_fail(status, "%s call %llu was failed on purpose (%s) by the fault device",
                   kind_names[kind], (unsigned long long)call, stow_status_name(status));
}

/* ---- the entries ---- */

static stow_status fault_close(stow_device *device) {
  stow_device *inner = fault_of(device)->inner;
  free(device);
  return inner->ops->close(inner);
}

static stow_status fault_props(const stow_device *device, stow_device_props *props) {
  const stow_device *inner = fault_of(device)->inner;
  return inner->ops->props(inner, props);
}

static const char *fault_error_text(const stow_device *device, int code) {
  const stow_device *inner = fault_of(device)->inner;
  return inner->ops->error_text(inner, code);
}

static stow_status fault_thread_enter(stow_device *device) {
  return device_thread_enter(fault_of(device)->inner);
}

/* An entry that counts and forwards: PASS(name, kind, (types and names), (names)). */
#define PASS(name, kind, parameters, arguments)                                                    \
  static stow_status fault_##name parameters {                                                     \
    STOW_TRY(fault_step(d, kind));                                                                 \
    stow_device *inner = fault_of(d)->inner;                                                       \
    return inner->ops->name arguments;                                                             \
  }

PASS(memory, STOW_FAULT_MEMORY,
     (stow_device * d, stow_tier tier, uint64_t *free_bytes, uint64_t *total_bytes),
     (inner, tier, free_bytes, total_bytes))
PASS(reserve, STOW_FAULT_RESERVE,
     (stow_device * d, stow_addr *addr, uint64_t bytes, uint64_t align),
     (inner, addr, bytes, align))
PASS(unreserve, STOW_FAULT_UNRESERVE, (stow_device * d, stow_addr addr, uint64_t bytes),
     (inner, addr, bytes))
PASS(page_create, STOW_FAULT_PAGE_CREATE,
     (stow_device * d, stow_page *page, uint64_t bytes, stow_tier tier), (inner, page, bytes, tier))
PASS(page_release, STOW_FAULT_PAGE_RELEASE, (stow_device * d, stow_page page), (inner, page))
PASS(map, STOW_FAULT_MAP, (stow_device * d, stow_addr addr, uint64_t bytes, stow_page page),
     (inner, addr, bytes, page))
PASS(unmap, STOW_FAULT_UNMAP, (stow_device * d, stow_addr addr, uint64_t bytes),
     (inner, addr, bytes))
PASS(access, STOW_FAULT_ACCESS, (stow_device * d, stow_addr addr, uint64_t bytes),
     (inner, addr, bytes))
PASS(plain_alloc, STOW_FAULT_PLAIN,
     (stow_device * d, stow_addr *addr, uint64_t bytes, stow_tier tier), (inner, addr, bytes, tier))
PASS(plain_free, STOW_FAULT_PLAIN, (stow_device * d, stow_addr addr), (inner, addr))
PASS(copy, STOW_FAULT_COPY,
     (stow_device * d, stow_addr to, stow_addr from, uint64_t bytes, stow_stream stream),
     (inner, to, from, bytes, stream))
PASS(fill, STOW_FAULT_COPY,
     (stow_device * d, stow_addr to, uint8_t value, uint64_t bytes, stow_stream stream),
     (inner, to, value, bytes, stream))
PASS(stream_create, STOW_FAULT_STREAM, (stow_device * d, stow_stream *stream), (inner, stream))
PASS(stream_destroy, STOW_FAULT_STREAM, (stow_device * d, stow_stream stream), (inner, stream))
PASS(stream_sync, STOW_FAULT_STREAM, (stow_device * d, stow_stream stream), (inner, stream))
PASS(stream_wait, STOW_FAULT_STREAM, (stow_device * d, stow_stream stream, stow_event event),
     (inner, stream, event))
PASS(event_create, STOW_FAULT_EVENT, (stow_device * d, stow_event *event), (inner, event))
PASS(event_destroy, STOW_FAULT_EVENT, (stow_device * d, stow_event event), (inner, event))
PASS(event_record, STOW_FAULT_EVENT, (stow_device * d, stow_event event, stow_stream stream),
     (inner, event, stream))
PASS(event_query, STOW_FAULT_EVENT, (stow_device * d, stow_event event), (inner, event))
PASS(event_wait, STOW_FAULT_EVENT, (stow_device * d, stow_event event), (inner, event))

static const stow_device_ops fault_ops = {
    .struct_bytes = sizeof(stow_device_ops),
    .close = fault_close,
    .props = fault_props,
    .memory = fault_memory,
    .reserve = fault_reserve,
    .unreserve = fault_unreserve,
    .page_create = fault_page_create,
    .page_release = fault_page_release,
    .map = fault_map,
    .unmap = fault_unmap,
    .access = fault_access,
    .plain_alloc = fault_plain_alloc,
    .plain_free = fault_plain_free,
    .copy = fault_copy,
    .fill = fault_fill,
    .stream_create = fault_stream_create,
    .stream_destroy = fault_stream_destroy,
    .stream_sync = fault_stream_sync,
    .stream_wait = fault_stream_wait,
    .event_create = fault_event_create,
    .event_destroy = fault_event_destroy,
    .event_record = fault_event_record,
    .event_query = fault_event_query,
    .event_wait = fault_event_wait,
    .thread_enter = fault_thread_enter,
    .error_text = fault_error_text,
};

/* ---- opening and arming ---- */

stow_device *fault_inner(stow_device *device) {
  return device->ops == &fault_ops ? fault_of(device)->inner : NULL;
}

stow_status stow_fault_open(stow_device **device, stow_device *inner) {
  if (device == NULL || inner == NULL)
    return stow_fail(STOW_ERR_INVALID, "fault device: the device or the result pointer is NULL");
  *device = NULL;
  STOW_TRY(device_check(inner));
  fault *f = calloc(1, sizeof *f);
  if (f == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a fault device");
  f->base.ops = &fault_ops;
  f->inner = inner;
  lock_init(&f->lock, LOCK_DEVICE);
  *device = &f->base;
  return STOW_OK;
}

static stow_status check_fault(const stow_device *device, stow_fault_kind kind) {
  if (device == NULL || device->ops != &fault_ops)
    return stow_fail(STOW_ERR_INVALID, "not a fault device; wrap it with stow_fault_open first");
  if ((unsigned)kind >= STOW_FAULT_KIND_COUNT)
    return stow_fail(STOW_ERR_INVALID, "%d is not a kind of call; use 0 to %d", (int)kind,
                     STOW_FAULT_KIND_COUNT - 1);
  return STOW_OK;
}

stow_status stow_fault_arm(stow_device *device, stow_fault_kind kind, uint64_t nth, bool every,
                           stow_status status) {
  STOW_TRY(check_fault(device, kind));
  if (nth != 0 && status == STOW_OK)
    return stow_fail(STOW_ERR_INVALID, "a call cannot fail with ok; give an error status");
  fault *f = fault_of(device);
  lock_acquire(&f->lock);
  plan *p = &f->plans[kind];
  p->at = nth == 0 ? 0 : nth > UINT64_MAX - p->calls ? UINT64_MAX : p->calls + nth;
  p->every = every;
  p->status = status;
  lock_release(&f->lock);
  return STOW_OK;
}

stow_status stow_fault_count(stow_device *device, stow_fault_kind kind, uint64_t *calls,
                             uint64_t *failed) {
  STOW_TRY(check_fault(device, kind));
  fault *f = fault_of(device);
  lock_acquire(&f->lock);
  if (calls != NULL) *calls = f->plans[kind].calls;
  if (failed != NULL) *failed = f->plans[kind].failed;
  lock_release(&f->lock);
  return STOW_OK;
}
