/* Cpu: what this processor can do, asked of itself.
 *
 * Called by the files that have a second, faster form for newer processors. The compilers' own
 * question (__builtin_cpu_supports) needs a runtime that not every compiler brings along. On other
 * machines than x86-64 every answer is no. */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include <stdbool.h>

typedef enum cpu_feature {
  CPU_PCLMUL,
  CPU_FMA,
  CPU_SSE41,
  CPU_F16C,
  CPU_AVX2,
  CPU_BMI2,
  CPU_AVX512F,
  CPU_AVX512DQ,
  CPU_AVX512BW,
  CPU_AVX512VL,
  CPU_AVX512CD,
  CPU_FEATURE_COUNT
} cpu_feature;

/* The processor has it, and the system keeps the registers it needs. */
bool cpu_has(cpu_feature feature);

#endif
