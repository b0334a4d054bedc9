/* The loops of numbers/quant_kernels.inc for x86-64 with AVX512. */
#if defined(__x86_64__)
#define QUANT_KERNELS quant_kernels_avx512
#include "numbers/quant_kernels.inc"
#endif
