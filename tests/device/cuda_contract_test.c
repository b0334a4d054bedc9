/* The contract over the cuda backend on a stand-in driver. Its thread tests use pthread_create. */
#include "cuda_standin_use.h"

#undef MIB /* contract.h has its own */
#define CONTRACT_BYTES 1
#define CONTRACT_SOLE  0 /* the host tier is this machine's memory, which others use */

static stow_device *contract_open(void) {
  return standin_open("0");
}

#include "device/contract_pages.h"

TEST_MAIN
