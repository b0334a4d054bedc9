/* The contract over the simulated device with real bytes. Its thread tests use pthread_create. */
#include <stowage/sys/device.h>

#include "harness.h"

#define CONTRACT_BYTES 1
#define CONTRACT_SOLE  1

static stow_device *contract_open(void) {
  stow_device *device = NULL;
  CHECK_OK(stow_device_open(&device, "sim:1G,host=1G"));
  return device;
}

#include "device/contract_pages.h"

TEST_MAIN
