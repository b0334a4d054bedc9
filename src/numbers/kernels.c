/* Kernels: which set this machine gets. */
#include "numbers/kernels.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const kernels *choose(void) {
  const kernels *sets[4] = {&kernels_portable};
  int count = 1;
#if defined(__x86_64__)
  __builtin_cpu_init();
  /* Every machine with AVX2 has F16C; not every compiler can ask for F16C by name. */
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    sets[count++] = &kernels_avx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
      sets[count++] = &kernels_avx512;
  }
#endif
  const char *wanted = getenv("STOWAGE_KERNELS");
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
