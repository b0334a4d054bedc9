/* What the residency engine costs a launch when nothing is missing: the path that every launch of a
 * spilled program takes. The bound is 300 ns for a launch of up to 32 words. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "residency/residency.h"

#define UNIT (UINT64_C(20) << 20)
#define BASE (UINT64_C(0x7f) << 32)

enum { UNITS = 4000, LAUNCHES = 2000, WORDS_MAX = 256 };

/* A step of 2000 launches over 80 GiB, each with `blocks` words that name blocks among `count`
 * words.
 */
static void bench(size_t count, size_t blocks) {
  residency *r;
  residency_options o = {.capacity_bytes = (UNITS + 100) * UNIT};
  uint32_t unit;
  static uint64_t words[LAUNCHES][WORDS_MAX];
  uint64_t seed = 1;
  if (residency_open(&r, &o) != STOW_OK) exit(1);
  for (uint64_t i = 0; i < UNITS; i++)
    if (residency_unit_add(r, BASE + i * UNIT, UNIT, true, &unit) != STOW_OK) exit(1);
  for (uint64_t i = 0; i < UNITS * 4; i++)
    if (residency_block_add(r, BASE + i * (UNIT / 4), UNIT / 4) != STOW_OK) exit(1);
  for (size_t i = 0; i < LAUNCHES; i++)
    for (size_t k = 0; k < count; k++) {
      seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
      uint64_t block = (i * 8 + (seed >> 33) % 64) % (UNITS * 4);
      words[i][k] = k < blocks ? BASE + block * (UNIT / 4) : seed >> 40; /* sizes, strides */
    }
  uint64_t best = UINT64_MAX;
  for (int round = 0; round < 30; round++) {
    uint64_t start = clock_read_ns(CLOCK_PROCESS_CPUTIME_ID);
    for (size_t i = 0; i < LAUNCHES; i++) {
      residency_launch_info l = {.function = i % 40,
                                 .words = words[i],
                                 .word_count = count,
                                 .device_ns = 10000,
                                 .host_ns = 5000,
                                 .now_ns = start};
      if (residency_launch(r, &l) != RESIDENCY_GO) exit(1);
    }
    uint64_t took = clock_read_ns(CLOCK_PROCESS_CPUTIME_ID) - start;
    if (round > 3 && took < best) best = took;
  }
  printf("residency, launch of %3zu words, %2zu of them blocks: %4llu ns\n", count, blocks,
         (unsigned long long)(best / LAUNCHES));
  residency_close(r);
}

int main(void) {
  bench(4, 2);
  bench(8, 4);
  bench(32, 6);
  bench(32, 32);
  bench(256, 32);
  return 0;
}
