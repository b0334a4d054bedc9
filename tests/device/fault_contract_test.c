/* The contract over a fault device with no fault armed: it adds nothing and loses nothing. Its
 * thread tests use pthread_create. */
#include <stowage/sys/device.h>

#include "harness.h"

#define CONTRACT_BYTES 1
#define CONTRACT_SOLE  1

static stow_device *contract_open(void) {
  stow_device *inner = NULL, *device = NULL;
  CHECK_OK(stow_device_open(&inner, "sim:1G,host=1G"));
  CHECK_OK(stow_fault_open(&device, inner));
  return device;
}

#include "device/contract_pages.h"

TEST_MAIN
