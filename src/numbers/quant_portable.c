/* The loops of numbers/quant_kernels.inc for any machine (on AArch64 that is NEON already). */
#define QUANT_KERNELS quant_kernels_portable
#include "numbers/quant_kernels.inc"
