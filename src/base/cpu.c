/* Cpu: CPUID leaves 1 and 7, and XCR0 for what the system saves (Intel SDM, volume 2A, CPUID;
 * volume 1, chapter 13). Read once; all cores that Linux shows have the same features. */
#include "base/cpu.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>

#define ASKED (UINT32_C(1) << 31)

static uint64_t saved_registers(void) {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

static uint32_t bit(uint32_t word, int at, cpu_feature feature) {
  return (word >> at & 1) << feature;
}

static uint32_t detect(void) {
  uint32_t a, b, c, d, has = ASKED;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return has;
  uint64_t saved = c >> 27 & 1 ? saved_registers() : 0;
  has |= bit(c, 1, CPU_PCLMUL) | bit(c, 19, CPU_SSE41);
  if ((saved & 6) != 6) return has; /* XMM and YMM */
  has |= bit(c, 12, CPU_FMA) | bit(c, 29, CPU_F16C);
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return has;
  has |= bit(b, 5, CPU_AVX2) | bit(b, 8, CPU_BMI2);
  if ((saved & 0xe0) != 0xe0) return has; /* masks, ZMM */
  return has | bit(b, 16, CPU_AVX512F) | bit(b, 17, CPU_AVX512DQ) | bit(b, 30, CPU_AVX512BW) |
         bit(b, 31, CPU_AVX512VL) | bit(b, 28, CPU_AVX512CD);
}

bool cpu_has(cpu_feature feature) {
  static _Atomic uint32_t known; /* every writer writes the same value */
  uint32_t has = atomic_load_explicit(&known, memory_order_relaxed);
  if (has == 0) {
    has = detect();
    atomic_store_explicit(&known, has, memory_order_relaxed);
  }
  return has >> feature & 1;
}
#else
bool cpu_has(cpu_feature feature) {
  (void)feature;
  return false;
}
#endif

int cpu_count(void) {
  /* More processors than a cpu_set_t holds: fall back to the online ones. */
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return (int)sysconf(_SC_NPROCESSORS_ONLN);
}
