/* The contract with a simulated device on paper, larger than the machine: every check holds,
 * although no byte exists. Its thread tests use pthread_create. */
#include <stowage/sys/device.h>

#include "harness.h"

#define CONTRACT_BYTES 0
#define CONTRACT_SOLE  1

static stow_device *contract_open(void) {
  stow_device *device = NULL;
  CHECK_OK(stow_device_open(&device, "sim:139G,host=1T,paper,costs"));
  return device;
}

#include "device/contract_pages.h"

TEST_MAIN
