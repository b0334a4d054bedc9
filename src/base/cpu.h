/* Cpu: the features of this processor, read with CPUID, and how many processors may be used.
 *
 * Used by files with a faster implementation for newer processors. __builtin_cpu_supports needs a
 * runtime that some compilers lack. On machines other than x86-64 no feature is present. */
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

/* Returns true if the processor has the feature and the system saves its registers. */
bool cpu_has(cpu_feature feature);

/* Returns how many processors this thread may run on. */
int cpu_count(void);

#endif
