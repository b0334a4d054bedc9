/* Driver cost: the table of measured times. */
#include "base/driver_cost.h"

#define SIZES 5
static const int64_t size_mib[SIZES] = {2, 16, 64, 256, 1024};
static const int64_t table_ns[DRIVER_CALLS][SIZES] = {
    [DRIVER_RESERVE] = {800, 800, 3000, 3400, 5400},
    [DRIVER_CREATE] = {10700, 10200, 11700, 16000, 85500},
    [DRIVER_MAP] = {1000, 900, 1100, 1200, 1900},
    [DRIVER_ACCESS] = {24600, 25400, 49700, 55200, 93800},
    [DRIVER_UNMAP] = {17100, 17200, 25500, 26400, 39600},
    [DRIVER_RELEASE] = {11200, 23100, 54400, 145700, 519400},
    [DRIVER_ALLOC] = {40200, 41100, 57400, 59200, 184100},
    [DRIVER_FREE] = {33700, 46300, 70000, 181800, 560500},
};

uint64_t driver_cost_ns(driver_call call, uint64_t bytes) {
  const int64_t *row = table_ns[call];
  int64_t kib = (int64_t)(bytes >> 10);
  const int64_t last = size_mib[SIZES - 1] * 1024;
  if (kib <= size_mib[0] * 1024) return (uint64_t)row[0];
  if (kib > last) return (uint64_t)((double)row[SIZES - 1] * (double)kib / (double)last);
  int i = 1;
  while (kib > size_mib[i] * 1024) i++;
  int64_t from = size_mib[i - 1] * 1024, to = size_mib[i] * 1024;
  return (uint64_t)(row[i - 1] + (row[i] - row[i - 1]) * (kib - from) / (to - from));
}
