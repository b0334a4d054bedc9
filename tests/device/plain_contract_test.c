/* The contract with a simulated device without pages, like a driver without them: plain blocks
 * work, everything else reports why not. Its thread tests use pthread_create. */
#include <stowage/sys/device.h>

#include "harness.h"

#define CONTRACT_BYTES 1
#define CONTRACT_SOLE  1

static stow_device *contract_open(void) {
  stow_device *device = NULL;
  CHECK_OK(stow_device_open(&device, "sim:1G,host=1G,no-vmm"));
  return device;
}

#include "device/contract.h"

TEST(without_pages_every_page_call_says_so)
{
  stow_device *d = contract_open();
  stow_addr addr = 0;
  stow_page page = 0;
  CHECK_STATUS(device_reserve(d, &addr, 2 * MIB, 0), STOW_ERR_UNSUPPORTED);
  CHECK_MESSAGE("use plain blocks");
  CHECK_STATUS(device_unreserve(d, 2 * MIB, 2 * MIB), STOW_ERR_UNSUPPORTED);
  CHECK_STATUS(device_page_create(d, &page, 2 * MIB, STOW_TIER_VRAM), STOW_ERR_UNSUPPORTED);
  CHECK_STATUS(device_page_create(d, &page, 2 * MIB, STOW_TIER_HOST), STOW_ERR_UNSUPPORTED);
  CHECK_STATUS(device_page_release(d, 1), STOW_ERR_UNSUPPORTED);
  CHECK_STATUS(device_map(d, 2 * MIB, 2 * MIB, 1), STOW_ERR_UNSUPPORTED);
  CHECK_STATUS(device_unmap(d, 2 * MIB, 2 * MIB), STOW_ERR_UNSUPPORTED);
  CHECK_STATUS(device_access(d, 2 * MIB, 2 * MIB), STOW_ERR_UNSUPPORTED);
  contract_close(d);
}

TEST_MAIN
