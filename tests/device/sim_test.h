/* Shared by the tests of the simulated device: a small device, mapped memory on it, counts. */
#ifndef SIM_TEST_H
#define SIM_TEST_H

#include <stdlib.h>
#include <unistd.h>

#include <stowage/sys/device.h>

#include "device/device.h"
#include "harness.h"

#define MIB  (UINT64_C(1) << 20)
#define GIB  (UINT64_C(1) << 30)
#define PAGE (UINT64_C(2) << 20)

static inline stow_device *open_device(const char *name) {
  stow_device *device = NULL;
  CHECK_OK(stow_device_open(&device, name));
  return device;
}

/* A page of `bytes`, mapped with access in its own range. */
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
  stow_sim_counts counts = STOW_SIM_COUNTS_INIT;
  CHECK_OK(stow_sim_get_counts(d, &counts));
  return counts;
}

/* Returns the `field`th number (from 0) on the first line of a small file; 0 if it cannot be
 * read. */
static inline uint64_t file_number(const char *path, int field) {
  char line[256] = "", *at = line;
  FILE *file = fopen(path, "r");
  if (file == NULL) return 0;
  if (fgets(line, sizeof line, file) == NULL) line[0] = '\0';
  fclose(file);
  for (; field > 0; field--) strtoull(at, &at, 10);
  return strtoull(at, NULL, 10);
}

/* Returns the RAM that this process holds. */
static inline uint64_t resident_bytes(void) {
  uint64_t pages = file_number("/proc/self/statm", 1);
  CHECK(pages > 0);
  return pages * (uint64_t)getpagesize();
}

#endif
