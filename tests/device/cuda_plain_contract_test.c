/* The contract over the cuda backend on a driver without pages. Its thread tests use
 * pthread_create. */
#include "cuda_standin_use.h"

#undef MIB /* contract.h has its own */
#define CONTRACT_BYTES 1
#define CONTRACT_SOLE  0

static stow_device *contract_open(void) {
  setenv("STANDIN_NO_VMM", "1", 1);
  return standin_open("0");
}

#include "device/contract.h"

TEST_MAIN
