/* The kernels of numbers/kernels.inc for x86-64 with AVX2. */
#if defined(__x86_64__)
#define KERNELS_NAME  kernels_avx2
#define KERNELS_TEXT  "avx2"
#define KERNELS_QUANT quant_kernels_avx2
#include "numbers/kernels.inc"
#endif
