/* The table of measured times. */
#include "replay/policies/cost.h"

#define POINTS 5

static const double mib[POINTS] = {2, 16, 64, 256, 1024};
static const double table_us[COST_CALLS][POINTS] = {
    [COST_ALLOC] = {40.2, 41.1, 57.4, 59.2, 184.1},
    [COST_FREE] = {33.7, 46.3, 70.0, 181.8, 560.5},
    [COST_CREATE] = {10.7, 10.2, 11.7, 16.0, 85.5},
    [COST_MAP] = {1.0, 0.9, 1.1, 1.2, 1.9},
    [COST_ACCESS] = {24.6, 25.4, 49.7, 55.2, 93.8},
    [COST_UNMAP] = {17.1, 17.2, 25.5, 26.4, 39.6},
    [COST_RELEASE] = {11.2, 23.1, 54.4, 145.7, 519.4},
    [COST_ASYNC_ALLOC] = {2.1, 2.0, 2.9, 3.8, 6.4},
    [COST_ASYNC_FREE] = {0.7, 0.7, 0.9, 1.3, 1.9},
};

uint64_t cost_ns(cost_call call, uint64_t bytes) {
  const double *us = table_us[call];
  double size = (double)bytes / (1 << 20);
  if (size <= mib[0]) return (uint64_t)(us[0] * 1000);
  for (int i = 1; i < POINTS; i++)
    if (size <= mib[i]) {
      double part = (size - mib[i - 1]) / (mib[i] - mib[i - 1]);
      return (uint64_t)((us[i - 1] + part * (us[i] - us[i - 1])) * 1000);
    }
  return (uint64_t)(us[POINTS - 1] * size / mib[POINTS - 1] * 1000);
}
