/* Address: see address.h. */
#include "shim/address.h"

#include <stdatomic.h>

#include "base/assert.h"
#include "base/checked.h"
#include "shim/gate.h"
#include "shim/host_tier.h"
#include "shim/shim.h"

/* Upper halves from 27549 to 28671. Programs, stacks and libraries are elsewhere. */
#define FIRST ((uint64_t)0x6b9d << 32)
#define END   ((uint64_t)0x7000 << 32)
#define STEP  ((uint64_t)1 << 30)

/* Returns an address that no other range was reserved at; 0: there is none left. */
static cu_addr unlikely(size_t bytes, size_t align) {
  static _Atomic uint64_t next = FIRST;
  uint64_t step = align > STEP ? align : STEP;
  if (bytes > END - FIRST || align > END - FIRST) return 0;
  uint64_t size = round_up(bytes, step) + step; /* its start may have to be aligned */
  uint64_t at = atomic_fetch_add(&next, size);
  ASSERT(at >= FIRST);
  if (at > END - size) {
    atomic_fetch_sub(&next, size);
    return 0;
  }
  return round_up(at, step);
}

cu_result address_reserve(cu_addr *addr, size_t bytes, size_t align) {
  ASSERT(addr != NULL);
  const cuda_driver *driver = shim_driver();
  cu_addr hint = host_tier_on() || gate_here() ? unlikely(bytes, align) : 0;
  if (hint != 0 && driver->cuMemAddressReserve(addr, bytes, align, hint, 0) == CU_OK) return CU_OK;
  return driver->cuMemAddressReserve(addr, bytes, align, 0, 0);
}
