/* The kernels of numbers/kernels.inc for x86-64 with AVX512. */
#if defined(__x86_64__)
#define KERNELS_NAME  kernels_avx512
#define KERNELS_TEXT  "avx512"
#define KERNELS_QUANT quant_kernels_avx512
#include "numbers/kernels.inc"
#endif
