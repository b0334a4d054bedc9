/* Cuda device: one open device, shared only by the files of the cuda backend.
 *
 * cuda.c opens and closes it and answers queries, cuda_pages.c has ranges and pages, cuda_work.c
 * plain allocations, copies, streams and events. */
#ifndef DEVICE_CUDA_DEVICE_H
#define DEVICE_CUDA_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>

#include <stowage/sys/device.h>

#include "base/lock.h"
#include "device/cuda_device_id.h"
#include "device/cuda_driver.h"
#include "device/cuda_table.h"
#include "device/physical.h"

typedef struct cuda_dev {
  stow_device head; /* first member: a pointer to it is a stow_device */
  const cuda_driver *driver;
  cuda_driver *driver_owned; /* the same pointer, if the driver was created for this device only */
  physical physical;         /* allocates on that driver; without an account */
  cuda_device_id id;
  cu_context context;      /* the primary context, shared with cudart */
  _Atomic bool lost;       /* the driver reported the loss once; it is not called again */
  stow_device_props props; /* host_… fields guarded by host_lock until host_known */

  lock table_lock;
  cuda_table table; /* guarded by table_lock */

  lock host_lock;          /* never held together with table_lock */
  _Atomic bool host_known; /* the backing was found; props and host_reason are final */
  char host_reason[512];
  uint64_t host_left_bytes; /* guarded by host_lock: the host's free memory at host_read_ns, minus
                             * what was taken since */
  uint64_t host_read_ns;
} cuda_dev;

/* ---- entering the driver ---- */

/* What a call changed in the thread; restored at the end of the call. */
typedef struct cuda_scope {
  bool pushed;
  bool exchanged;
  int capture_mode;
} cuda_scope;

/* Makes the device's context current for this thread if needed, and allows calls during graph
 * capture. cuda_leave restores the program's own context. */
stow_status cuda_enter(cuda_dev *d, cuda_scope *scope);
void cuda_leave(cuda_dev *d, const cuda_scope *scope);
/* Removes the context from a thread that cuda_thread_enter gave it to: the context may be destroyed
 * now. */
void cuda_thread_leave(cuda_dev *d);

/* cuda_driver_fail that also marks the device as lost if the code means that. */
#define cuda_fail(d, code, ...)                                                                    \
  (cuda_note_lost((d), (code)), cuda_driver_fail((d)->driver, (code), __VA_ARGS__))
void cuda_note_lost(cuda_dev *d, cu_result code);

/* Returns STOW_ERR_INVALID unless `bytes` is a nonzero multiple of the granularity and `addr` is a
 * multiple. */
stow_status cuda_check_extent(const cuda_dev *d, const char *what, stow_addr addr, uint64_t bytes);

/* ---- the host tier ---- */

/* Stores the probe's result. Called once, with host_lock held or before the device is shared. */
struct cuda_probe;
void cuda_host_set(cuda_dev *d, const struct cuda_probe *probe);
/* Finds out how the device reaches host memory, if not known yet. */
void cuda_host_find(cuda_dev *d);
/* Reserves `bytes` of the host's free memory. Returns STOW_ERR_OUT_OF_MEMORY if too little would be
 * left. This check comes first, because the kernel kills a process that exhausts host memory. */
stow_status cuda_host_take(cuda_dev *d, uint64_t bytes, const char *what);

/* ---- entries ---- */

stow_status cuda_reserve(stow_device *, stow_addr *, uint64_t, uint64_t);
stow_status cuda_unreserve(stow_device *, stow_addr, uint64_t);
stow_status cuda_page_create(stow_device *, stow_page *, uint64_t, stow_tier);
stow_status cuda_page_release(stow_device *, stow_page);
stow_status cuda_map(stow_device *, stow_addr, uint64_t, stow_page);
stow_status cuda_unmap(stow_device *, stow_addr, uint64_t);
stow_status cuda_access(stow_device *, stow_addr, uint64_t);

stow_status cuda_plain_alloc(stow_device *, stow_addr *, uint64_t, stow_tier);
stow_status cuda_plain_free(stow_device *, stow_addr);
stow_status cuda_copy(stow_device *, stow_addr, stow_addr, uint64_t, stow_stream);
stow_status cuda_fill(stow_device *, stow_addr, uint8_t, uint64_t, stow_stream);
stow_status cuda_stream_create(stow_device *, stow_stream *);
stow_status cuda_stream_destroy(stow_device *, stow_stream);
stow_status cuda_stream_sync(stow_device *, stow_stream);
stow_status cuda_stream_wait(stow_device *, stow_stream, stow_event);
stow_status cuda_event_create(stow_device *, stow_event *);
stow_status cuda_event_destroy(stow_device *, stow_event);
stow_status cuda_event_record(stow_device *, stow_event, stow_stream);
stow_status cuda_event_query(stow_device *, stow_event);
stow_status cuda_event_wait(stow_device *, stow_event);
stow_status cuda_thread_enter(stow_device *);

#endif
