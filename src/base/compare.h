/* Comparison functions for qsort, of values that several folders sort. */
#ifndef BASE_COMPARE_H
#define BASE_COMPARE_H

#include <stdint.h>

/* Orders uint64_t, the smallest first. */
static inline int compare_u64(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

#endif
