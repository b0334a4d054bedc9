/* Area: memory that is touched all over: batches, windows, what direct reads go into.
 *
 * Called by shelf and prefetch. Large pages, where the machine gives them, save most of the faults,
 * and a direct read into one is one transfer, not one for every 4 KiB (1.5 times as fast on a
 * virtual disk, 2026). free() gives it back. */
#ifndef DATA_AREA_H
#define DATA_AREA_H

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/checked.h"

#define AREA_LARGE_PAGE (UINT64_C(2) << 20)

/* At a multiple of 4096. Only whole large pages are asked for: never more is resident than was
 * wanted. NULL: there is none. */
static inline void *area_alloc(uint64_t bytes) {
  uint64_t large = round_down(bytes, AREA_LARGE_PAGE), unit = large > 0 ? AREA_LARGE_PAGE : 4096;
  void *memory = aligned_alloc((size_t)unit, (size_t)round_up(bytes > 0 ? bytes : 1, unit));
  if (memory != NULL && large > 0) madvise(memory, (size_t)large, MADV_HUGEPAGE);
  return memory;
}

#endif
