/* Cuda host: how a device reaches host memory, and how much of it is left. */
#include <stdio.h>

#include <stowage/size.h>

#include "base/clock.h"
#include "base/hostmem.h"
#include "base/log.h"
#include "device/cuda_device.h"
#include "device/cuda_probe.h"

/* How long a reading of the host's free memory is valid while pages are created. */
#define HOST_READING_NS (UINT64_C(100) * 1000 * 1000)

void cuda_host_set(cuda_dev *d, const cuda_probe *probe) {
  hostmem host;
  d->props.host_backing = probe->backing;
  d->props.host_numa_node = probe->numa_node;
  d->props.host_bytes = 0;
  if (probe->backing != STOW_HOST_NONE && hostmem_read(&host) == STOW_OK)
    d->props.host_bytes = host.total_bytes;
  snprintf(d->host_reason, sizeof d->host_reason, "%s", probe->reason);
  atomic_store_explicit(&d->host_known, true, memory_order_release);
}

void cuda_host_find(cuda_dev *d) {
  if (atomic_load_explicit(&d->host_known, memory_order_acquire)) return;
  lock_acquire(&d->host_lock);
  bool found = !atomic_load_explicit(&d->host_known, memory_order_acquire);
  if (found) {
    cuda_probe probe;
    cuda_probe_device(&probe, d->driver, d->id.handle, false);
    cuda_host_set(d, &probe);
  }
  lock_release(&d->host_lock);
  if (found)
    stow_log_line(STOW_LOG_INFO, "device %s: host tier %s: %s", d->props.uuid,
                  cuda_backing_name(d->props.host_backing), d->host_reason);
}

stow_status cuda_host_take(cuda_dev *d, uint64_t bytes, const char *what) {
  lock_acquire(&d->host_lock);
  uint64_t now = clock_ns();
  hostmem host;
  stow_status status = STOW_OK;
  if (now - d->host_read_ns > HOST_READING_NS || d->host_left_bytes < bytes) {
    status = hostmem_read(&host);
    if (status == STOW_OK) {
      d->host_left_bytes = host.usable_bytes;
      d->host_read_ns = now;
    }
  }
  uint64_t left = d->host_left_bytes;
  if (status == STOW_OK && left >= bytes) d->host_left_bytes -= bytes;
  lock_release(&d->host_lock);
  STOW_TRY(status);
  if (left >= bytes) return STOW_OK;
  char size[STOW_SIZE_TEXT_MAX], have[STOW_SIZE_TEXT_MAX];
  return stow_fail(
      STOW_ERR_OUT_OF_MEMORY,
      "%s %s on the host: only %s is left there; free some, or raise the container's memory limit",
      what, stow_size_format(size, bytes), stow_size_format(have, left));
}
