/* Physical: the only place that allocates a device's memory. Pages, plain allocations and pinned
 * host memory are created and released here; the only other callers of these driver functions are
 * the shim's hooks that forward a program's own call.
 *
 * The owner of a budget provides a physical_account: bytes are counted before the driver is called,
 * and uncounted if the driver refuses. A `physical` without an account counts nothing. It has no
 * state, so any thread may call anything. The account's functions run on the caller's thread,
 * before and after the driver's call. */
#ifndef DEVICE_PHYSICAL_H
#define DEVICE_PHYSICAL_H

#include <stdbool.h>
#include <stdint.h>

#include <stowage/device.h>

#include "device/cuda_driver.h"

/* Every function may be NULL. `who` is the one in the `physical`. */
typedef struct physical_account {
  /* Counts `bytes`. Returns false, counting nothing, if they do not fit. */
  bool (*charge)(const void *who, uint64_t bytes);
  /* The driver is out of memory: frees cached memory. Returns true to call the driver again. */
  bool (*make_room)(const void *who, uint64_t bytes);
  /* Called when the driver has allocated the counted bytes. */
  void (*made)(const void *who, uint64_t bytes);
  /* Called when the driver failed with `code`: the counted bytes are not used. */
  void (*undo)(const void *who, uint64_t bytes, cu_result code);
  /* Called when the memory was released. */
  void (*uncharge)(const void *who, uint64_t bytes);
} physical_account;

typedef struct physical {
  const cuda_driver *driver;
  const physical_account *account; /* NULL: nothing is counted */
  const void *who;
} physical;

/* Returns the properties of a page in a device's vram. */
cu_prop physical_vram_prop(cu_device device);
/* Returns the properties of a page on the host, for the backing that was found to work
 * (cuda_probe.h). Returns false if host pages are impossible there. */
bool physical_host_prop(cu_prop *prop, stow_host_backing path, int numa_node);

/* Creates a page. Returns CU_ERROR_OUT_OF_MEMORY if the account or the driver is full;
 * CU_ERROR_NOT_SUPPORTED if the driver has no pages. */
cu_result physical_page_create(const physical *p, cu_handle *page, uint64_t bytes,
                               const cu_prop *prop, unsigned long long flags);
/* Releases a page of `bytes`. If the driver refuses, it stays counted. */
cu_result physical_page_release(const physical *p, cu_handle page, uint64_t bytes);

/* Allocate and free plain memory in vram. `counted_bytes` is what the driver really uses for
 * `bytes`. */
cu_result physical_plain_alloc(const physical *p, cu_addr *addr, size_t bytes,
                               uint64_t counted_bytes);
cu_result physical_plain_free(const physical *p, cu_addr addr, uint64_t counted_bytes);

/* Allocate and free pinned and mapped host memory: the device sees it at `*addr`. */
cu_result physical_pinned_alloc(const physical *p, cu_addr *addr, void **host, uint64_t bytes);
cu_result physical_pinned_free(const physical *p, void *host, uint64_t bytes);

#endif
