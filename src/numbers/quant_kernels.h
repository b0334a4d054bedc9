/* Quant kernels: the loops of quant.h and float8.h, compiled once for each instruction set
 * (quant_portable.c, quant_avx2.c, quant_avx512.c). kernels_get()->quant is the set in use. */
#ifndef NUMBERS_QUANT_KERNELS_H
#define NUMBERS_QUANT_KERNELS_H

#include <stddef.h>

#include "numbers/quant_types.h"

/* One byte for each value. The float8 types ignore `scale`. */
typedef void (*byte_encode_kernel)(float scale, const float *restrict values, size_t count,
                                   void *restrict out);
typedef void (*byte_decode_kernel)(float scale, const void *restrict in, size_t count,
                                   float *restrict values);

/* The functions have the contracts of those in quant.h and float8.h that call them. */
typedef struct quant_kernels {
  void (*encode[QUANT_KINDS])(const float *values, size_t count, void *out);
  void (*decode[QUANT_KINDS])(const void *in, size_t count, float *restrict values);
  void (*error_add)(quant_error *error, const float *before, const float *after, size_t count);
  float (*channel_most)(float so_far, const float *values, size_t count);
  byte_encode_kernel channel_encode[2], float8_encode[2];
  byte_decode_kernel channel_decode[2], float8_decode[2];
} quant_kernels;

extern const quant_kernels quant_kernels_portable;
#if defined(__x86_64__)
extern const quant_kernels quant_kernels_avx2;
extern const quant_kernels quant_kernels_avx512;
#endif

#endif
