/* Physical: the one maker of a card's memory. Pages, plain allocations and pinned host memory that
 * programs use are created and released here and nowhere else; the only other callers of these
 * driver functions are the shim's hooks, where they pass a program's own call on.
 *
 * Whoever owns a budget plugs it in as a physical_account: the bytes are counted before the driver
 * is asked, and given back if the driver refuses. A `physical` without an account counts nothing.
 * There is no state here, so any thread may call anything; the account's functions run on the
 * caller's thread, before and after the driver's call, never inside it. */
#ifndef DEVICE_PHYSICAL_H
#define DEVICE_PHYSICAL_H

#include <stdbool.h>
#include <stdint.h>

#include <stowage/device.h>

#include "device/cuda_driver.h"

/* Every function may be NULL. `who` is the one of the `physical`. */
typedef struct physical_account {
  /* Counts `bytes`. False: there is no room for them, and nothing was counted. */
  bool (*take)(const void *who, uint64_t bytes);
  /* The driver is out of memory: frees what is only cached. True: ask the driver again. */
  bool (*make_room)(const void *who, uint64_t bytes);
  /* The driver has given what was taken. */
  void (*made)(const void *who, uint64_t bytes);
  /* It has refused with `code`: what was taken is not used. */
  void (*undo)(const void *who, uint64_t bytes, cu_result code);
  /* What was made has been released. */
  void (*give)(const void *who, uint64_t bytes);
} physical_account;

typedef struct physical {
  const cuda_driver *driver;
  const physical_account *account; /* NULL: nothing is counted */
  const void *who;
} physical;

/* The properties of a page in vram of a card. */
cu_prop physical_vram_prop(cu_device card);
/* Those of a page on the host, by the path that was found to work (cuda_probe.h). False: pages
 * cannot be on the host there. */
bool physical_host_prop(cu_prop *prop, stow_host_backing path, int numa_node);

/* Creates a page. CU_ERROR_OUT_OF_MEMORY if the account or the driver has no room;
 * CU_ERROR_NOT_SUPPORTED if the driver has no pages. */
cu_result physical_page_create(const physical *p, cu_handle *page, uint64_t bytes,
                               const cu_prop *prop, unsigned long long flags);
/* Releases a page of `bytes`. If the driver refuses, it stays counted. */
cu_result physical_page_release(const physical *p, cu_handle page, uint64_t bytes);

/* Plain allocations in vram. `counted_bytes` is what the driver really takes for `bytes`. */
cu_result physical_plain_alloc(const physical *p, cu_addr *addr, size_t bytes,
                               uint64_t counted_bytes);
cu_result physical_plain_free(const physical *p, cu_addr addr, uint64_t counted_bytes);

/* Host memory, pinned and mapped: `*addr` is where the device sees it. */
cu_result physical_pinned_alloc(const physical *p, cu_addr *addr, void **host, uint64_t bytes);
cu_result physical_pinned_free(const physical *p, void *host, uint64_t bytes);

#endif
