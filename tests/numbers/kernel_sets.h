/* Kernel sets: those that this processor can run, for tests that compare them. */
#ifndef TESTS_NUMBERS_KERNEL_SETS_H
#define TESTS_NUMBERS_KERNEL_SETS_H

#include "base/cpu.h"
#include "numbers/kernels.h"

static const kernels *sets[3];
static int set_count;

/* Fills `sets`, the portable one first. */
static void find_sets(void) {
  sets[set_count++] = &kernels_portable;
#if defined(__x86_64__)
  if (cpu_has(CPU_AVX2) && cpu_has(CPU_FMA) && cpu_has(CPU_F16C)) {
    sets[set_count++] = &kernels_avx2;
    if (cpu_has(CPU_AVX512F) && cpu_has(CPU_AVX512BW) && cpu_has(CPU_AVX512DQ) &&
        cpu_has(CPU_AVX512VL))
      sets[set_count++] = &kernels_avx512;
  }
#endif
}

#endif
