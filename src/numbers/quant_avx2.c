/* The loops of numbers/quant_kernels.inc for x86-64 with AVX2. */
#if defined(__x86_64__)
#define QUANT_KERNELS quant_kernels_avx2
#include "numbers/quant_kernels.inc"
#endif
