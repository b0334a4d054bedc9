/* Runs the contract on a GPU: the same suite as for the simulated device. Runs in this process,
 * because a driver does not survive a fork. */
#include <stowage/sys/device.h>

#include "harness.h"

#define CONTRACT_BYTES 1
#define CONTRACT_SOLE  0 /* other processes may use the device */

static stow_device *contract_open(void) {
  int count = 0;
  CHECK_OK(stow_device_count(&count));
  if (count == 0) SKIP("no device: the driver shows none");
  stow_device *device = NULL;
  CHECK_OK(stow_device_open(&device, "0"));
  return device;
}

#include "device/contract_pages.h"

int main(int argc, char **argv) {
  char here[] = "--here", *words[64] = {argv[0], here};
  int count = 2;
  for (int i = 1; i < argc && count < 64; i++) words[count++] = argv[i];
  return harness_main(count, words);
}
