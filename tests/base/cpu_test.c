/* Cpu: the same results as the compiler's own runtime. */
#include "base/cpu.h"

#include "harness.h"

#if defined(__x86_64__)
TEST(answers_are_those_of_the_compilers_runtime)
{
  __builtin_cpu_init();
  CHECK(cpu_has(CPU_PCLMUL) == (__builtin_cpu_supports("pclmul") != 0));
  CHECK(cpu_has(CPU_FMA) == (__builtin_cpu_supports("fma") != 0));
  CHECK(cpu_has(CPU_SSE41) == (__builtin_cpu_supports("sse4.1") != 0));
  CHECK(cpu_has(CPU_AVX2) == (__builtin_cpu_supports("avx2") != 0));
  CHECK(cpu_has(CPU_BMI2) == (__builtin_cpu_supports("bmi2") != 0));
  CHECK(cpu_has(CPU_AVX512F) == (__builtin_cpu_supports("avx512f") != 0));
  CHECK(cpu_has(CPU_AVX512DQ) == (__builtin_cpu_supports("avx512dq") != 0));
  CHECK(cpu_has(CPU_AVX512BW) == (__builtin_cpu_supports("avx512bw") != 0));
  CHECK(cpu_has(CPU_AVX512VL) == (__builtin_cpu_supports("avx512vl") != 0));
  CHECK(cpu_has(CPU_AVX512CD) == (__builtin_cpu_supports("avx512cd") != 0));
}
#else
TEST(there_is_nothing_to_ask)
{
  for (int i = 0; i < CPU_FEATURE_COUNT; i++) CHECK(!cpu_has((cpu_feature)i));
}
#endif

TEST_MAIN
