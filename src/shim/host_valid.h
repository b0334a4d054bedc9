/* Host valid: which ranges of device memory have an equal copy in host memory.
 *
 * A program that loads frozen weights from a file says so with stow_shim_host_valid (hooks.h). The
 * residency can then fill a page's host copy from there, instead of copying the page out over the
 * bus. A mark is a hint, not a promise: the program may have written to the range, or the file may
 * have changed. So the residency must compare fingerprints before it uses a filled page.
 *
 * Thread-safe; may be called with pages_lock held. */
#ifndef SHIM_HOST_VALID_H
#define SHIM_HOST_VALID_H

#include <stdbool.h>
#include <stdint.h>

#include "device/cuda_driver.h"

/* Records that [addr, addr + bytes) equals the memory at `host`, which stays readable until the
 * mark is removed. Replaces older marks in the range; NULL removes them. Without host memory,
 * forgets all marks and returns false. */
bool host_valid_mark(cu_addr addr, uint64_t bytes, const void *host);
/* Returns how many bytes of the range are marked. Cheap if nothing is. */
uint64_t host_valid_bytes(cu_addr addr, uint64_t bytes);
/* Copies the marked parts of the range to `to`, each at its offset. Calls `gap` for each part that
 * is not marked, or whose memory cannot be read any more (a file that was truncated). No mark is
 * removed meanwhile. Returns the number of bytes copied. */
typedef void host_valid_gap(void *user, uint64_t offset, uint64_t bytes);
uint64_t host_valid_copy(cu_addr addr, uint64_t bytes, void *to, host_valid_gap *gap, void *user);

#endif
