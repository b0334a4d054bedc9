/* The kernels of numbers/kernels.inc for any machine (on AArch64 that is NEON already). */
#define KERNELS_NAME  kernels_portable
#define KERNELS_TEXT  "portable"
#define KERNELS_QUANT quant_kernels_portable
#include "numbers/kernels.inc"
