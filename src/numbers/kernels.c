/* Kernels: selects the set for this machine. */
#include "numbers/kernels.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/variables.h"

static const kernels *choose(void) {
  const kernels *sets[4] = {&kernels_portable};
  int count = 1;
#if defined(__x86_64__)
  if (cpu_has(CPU_AVX2) && cpu_has(CPU_FMA) && cpu_has(CPU_F16C)) {
    sets[count++] = &kernels_avx2;
    if (cpu_has(CPU_AVX512F) && cpu_has(CPU_AVX512BW) && cpu_has(CPU_AVX512DQ) &&
        cpu_has(CPU_AVX512VL))
      sets[count++] = &kernels_avx512;
  }
#endif
  const char *wanted = getenv(ENV_KERNELS);
  for (int i = 0; wanted != NULL && i < count; i++)
    if (strcmp(sets[i]->name, wanted) == 0) return sets[i];
  return sets[count - 1];
}

const kernels *kernels_get(void) {
  static _Atomic(const kernels *) chosen;
  const kernels *set = atomic_load_explicit(&chosen, memory_order_relaxed);
  if (set == NULL) {
    set = choose();
    atomic_store_explicit(&chosen, set, memory_order_relaxed);
  }
  return set;
}
