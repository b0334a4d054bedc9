/* Address: where the program's memory is.
 *
 * Launches name memory by the words of their parameters (launch.h), and two small numbers side by
 * side are a word too: {0, 4} reads as 0x400000000. The driver may reserve ranges there: JAX's pool
 * began at 0x302000000, and every matrix product then named a part of it that it did not use. So
 * with a spill, and if launches are recorded, ranges are reserved where the upper half of an
 * address is an unlikely number. */
#ifndef SHIM_ADDRESS_H
#define SHIM_ADDRESS_H

#include "device/cuda_driver.h"

/* Reserves a range, as the driver's function does. */
cu_result address_reserve(cu_addr *addr, size_t bytes, size_t align);

#endif
