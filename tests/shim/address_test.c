/* Addresses: where ranges are reserved, and what happens if they cannot be there. */
#include "shim/address.h"

#include "harness.h"
#include "shim/gate.h"
#include "shim/host_tier.h"
#include "shim/shim.h"

static bool spills, records, refuses;
static cu_addr wanted; /* by the last call */

bool host_tier_on(void) {
  return spills;
}

bool gate_here(void) {
  return records;
}

static cu_result reserve(cu_addr *addr, size_t bytes, size_t align, cu_addr hint,
                         unsigned long long flags) {
  (void)bytes;
  CHECK(flags == 0);
  if (align > 0) CHECK_U64(hint % align, 0);
  if (hint != 0 && refuses) return CU_ERROR_INVALID_VALUE;
  wanted = hint;
  *addr = hint != 0 ? hint : 0x302000000;
  return CU_OK;
}

static const cuda_driver driver = {.cuMemAddressReserve = reserve};
const cuda_driver *shim_driver(void) {
  return &driver;
}

/* The halves of an address are not numbers that launches often have. */
static bool is_unlikely(cu_addr addr) {
  return addr >> 32 > 20000 && addr >> 47 == 0;
}

TEST(ranges_are_at_unlikely_addresses_with_a_spill)
{
  cu_addr a, b, c;
  CHECK(address_reserve(&a, 1 << 21, 0) == CU_OK);
  CHECK_U64(a, 0x302000000); /* without one, where the driver wants them */
  spills = true;
  CHECK(address_reserve(&a, (size_t)10 << 30, 0) == CU_OK);
  CHECK(address_reserve(&b, 1 << 21, (size_t)4 << 30) == CU_OK);
  CHECK(address_reserve(&c, 1 << 21, 1 << 21) == CU_OK);
  CHECK(is_unlikely(a) && is_unlikely(b) && is_unlikely(c));
  CHECK(b >= a + ((uint64_t)10 << 30) && c >= b + (1 << 21));
}

TEST(ranges_of_recorded_launches_are_there_too)
{
  cu_addr a;
  spills = refuses = false;
  records = true;
  CHECK(address_reserve(&a, 1 << 21, 0) == CU_OK);
  CHECK(is_unlikely(a));
  records = false;
}

TEST(a_driver_that_refuses_chooses_itself)
{
  cu_addr a;
  spills = refuses = true;
  CHECK(address_reserve(&a, 1 << 21, 0) == CU_OK);
  CHECK_U64(wanted, 0);
  CHECK_U64(a, 0x302000000);
}

TEST(addresses_may_run_out)
{
  cu_addr a, last = 0;
  spills = true;
  CHECK(address_reserve(&a, SIZE_MAX / 2, 0) == CU_OK);
  CHECK_U64(wanted, 0);
  for (int i = 0; i < 100; i++) { /* 1 TiB each */
    CHECK(address_reserve(&a, (size_t)1 << 40, 0) == CU_OK);
    CHECK(wanted == 0 || (is_unlikely(a) && a > last));
    if (wanted != 0) last = a;
  }
  CHECK_U64(wanted, 0);
  CHECK(address_reserve(&a, 1 << 21, 0) == CU_OK);
  CHECK(a == 0x302000000 || a > last);
}

TEST_MAIN
