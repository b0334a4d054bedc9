/* Shared by the heap's tests: a simulated device, an allocation that must work, and a heap that is
 * checked before it is closed. */
#ifndef TESTS_MEMORY_SIM_DEVICE_H
#define TESTS_MEMORY_SIM_DEVICE_H

#include <stowage/stowage.h>
#include <stowage/sys/device.h>

#include "harness.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static inline stow_device *sim_device_of(stow_sim_options o) {
  stow_device *d;
  CHECK_OK(stow_sim_open(&d, &o));
  return d;
}

static inline stow_device *sim_device(uint64_t vram, uint64_t host) {
  stow_sim_options o = STOW_SIM_OPTIONS_INIT;
  o.vram_bytes = vram;
  o.host_bytes = host;
  return sim_device_of(o);
}

static inline uint64_t need(stow_heap *h, uint64_t bytes, stow_stream s) {
  uint64_t p = 0;
  CHECK_OK(stow_heap_alloc(&p, h, bytes, s));
  CHECK(p != 0 && p % 512 == 0);
  return p;
}

static inline stow_heap_stats stats_of(stow_heap *h) {
  stow_heap_stats s = STOW_HEAP_STATS_INIT;
  CHECK_OK(stow_heap_get_stats(h, &s));
  return s;
}

static inline void shut(stow_heap *h, stow_device *d) {
  CHECK_OK(stow_heap_check(h));
  CHECK_OK(stow_heap_close(h));
  CHECK_OK(stow_device_close(d));
}

#endif
