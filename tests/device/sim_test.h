/* What the tests of the simulated card share: a small card, mapped memory on it, counts. */
#ifndef SIM_TEST_H
#define SIM_TEST_H

#include <stowage/sys/device.h>

#include "device/device.h"
#include "harness.h"

#define MIB  (UINT64_C(1) << 20)
#define GIB  (UINT64_C(1) << 30)
#define PAGE (UINT64_C(2) << 20)

static inline stow_device *open_card(const char *name) {
  stow_device *device = NULL;
  CHECK_OK(stow_device_open(&device, name));
  return device;
}

/* A page of `bytes`, mapped with access in a range of its own. */
typedef struct block {
  stow_addr addr;
  stow_page page;
  uint64_t bytes;
} block;

static inline block block_make(stow_device *d, uint64_t bytes, stow_tier tier) {
  block b = {.bytes = bytes};
  CHECK_OK(device_reserve(d, &b.addr, bytes, 0));
  CHECK_OK(device_page_create(d, &b.page, bytes, tier));
  CHECK_OK(device_map(d, b.addr, bytes, b.page));
  CHECK_OK(device_access(d, b.addr, bytes));
  return b;
}

static inline void block_end(stow_device *d, block b) {
  CHECK_OK(device_unmap(d, b.addr, b.bytes));
  CHECK_OK(device_page_release(d, b.page));
  CHECK_OK(device_unreserve(d, b.addr, b.bytes));
}

static inline stow_sim_counts counts_of(stow_device *d) {
  stow_sim_counts counts;
  CHECK_OK(stow_sim_get_counts(d, &counts));
  return counts;
}

#endif
