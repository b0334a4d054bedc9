/* Cuda device: one open card, shared by the files of the cuda backend and nobody else.
 *
 * cuda.c opens and closes it and answers questions, cuda_pages.c has ranges and pages, cuda_work.c
 * plain allocations, copies, streams and events. */
#ifndef DEVICE_CUDA_DEVICE_H
#define DEVICE_CUDA_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>

#include <stowage/sys/device.h>

#include "base/lock.h"
#include "device/cuda_card.h"
#include "device/cuda_driver.h"
#include "device/cuda_table.h"
#include "device/physical.h"

typedef struct cuda_dev {
  stow_device head; /* first: a stow_device is the beginning of this */
  const cuda_driver *driver;
  cuda_driver *driver_owned; /* the same, where it was made for this device alone */
  physical physical;         /* on that driver; nothing counts here but the heap's pool */
  cuda_card card;
  cu_context context;      /* the card's primary one: what cudart uses too */
  _Atomic bool lost;       /* the driver said so once; nothing is asked of it again */
  stow_device_props props; /* host_… fields guarded by host_lock until host_known */

  lock table_lock;
  cuda_table table; /* guarded by table_lock */

  lock host_lock;          /* never held together with table_lock */
  _Atomic bool host_known; /* the road was found; props and host_reason are final */
  char host_reason[512];
  uint64_t host_left_bytes; /* guarded by host_lock: what the host had at host_read_ns, less what
                               was taken since */
  uint64_t host_read_ns;
} cuda_dev;

/* ---- entering the driver ---- */

/* What one call changed of the thread, to be put back when it ends. */
typedef struct cuda_scope {
  bool pushed;
  bool exchanged;
  int capture_mode;
} cuda_scope;

/* Makes the card's context current for this thread if another (or none) is, and lets the call go on
 * while a graph is being captured. The program's own context is current again after cuda_leave. */
stow_status cuda_enter(cuda_dev *d, cuda_scope *scope);
void cuda_leave(cuda_dev *d, const cuda_scope *scope);
/* Takes the context from a thread that cuda_thread_enter gave it to: the context may end now. */
void cuda_thread_leave(cuda_dev *d);

/* cuda_driver_fail, which also notes that the device is lost if that is what the code means. */
#define cuda_fail(d, code, ...)                                                                    \
  (cuda_note_lost((d), (code)), cuda_driver_fail((d)->driver, (code), __VA_ARGS__))
void cuda_note_lost(cuda_dev *d, cu_result code);

/* STOW_ERR_INVALID unless `bytes` is a multiple of the granularity and not 0, and `addr` is one. */
stow_status cuda_check_extent(const cuda_dev *d, const char *what, stow_addr addr, uint64_t bytes);

/* ---- the host tier ---- */

/* Stores the probe's answer. Called once, with host_lock held or before the device is shared. */
struct cuda_probe;
void cuda_host_set(cuda_dev *d, const struct cuda_probe *probe);
/* Finds out by which road the host is reached, if that is not known yet. */
void cuda_host_find(cuda_dev *d);
/* Takes `bytes` out of what the host can give. STOW_ERR_OUT_OF_MEMORY: it would be left too little;
 * asked first, because a host driven to its last page is not refused but killed. */
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
