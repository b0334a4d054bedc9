/* Fingerprint: a 128-bit hash of a page's contents, computed on the device.
 *
 * Two pages with the same fingerprint hold the same bytes, as far as chance allows (one in 2^128).
 * So a page whose fingerprint equals that of its host copy can be dropped without a copy, whatever
 * wrote to it. The kernel is PTX that every driver compiles; it reads at the speed of vram. */
#ifndef SHIM_FINGERPRINT_H
#define SHIM_FINGERPRINT_H

#include <stdbool.h>
#include <stdint.h>

#include "device/cuda_driver.h"

typedef struct fingerprint {
  uint64_t a, b;
} fingerprint;

enum { FINGERPRINT_PAGES_MAX = 256 }; /* per batch */

/* The kernel and its buffers in the current context. */
typedef struct fingerprinter {
  void *function;
  uint64_t *addresses; /* pinned; FINGERPRINT_PAGES_MAX */
  uint64_t (*sums)[2]; /* pinned; FINGERPRINT_PAGES_MAX times the blocks of a page */
  cu_addr device_addresses, device_sums;
} fingerprinter;

/* Opens it. Returns false if this driver cannot run the kernel. */
bool fingerprint_open(fingerprinter *f);

/* Starts hashing `count` pages of `bytes` (a multiple of 16) on a stream. The caller has put their
 * addresses into f->addresses[first…]. */
cu_result fingerprint_start(const fingerprinter *f, uint32_t first, uint32_t count, uint64_t bytes,
                            cu_stream stream);
/* Returns the result, once the stream has passed that point. */
fingerprint fingerprint_read(const fingerprinter *f, uint32_t page);

#endif
