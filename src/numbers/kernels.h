/* Kernels: the inner loops of cast and scan, compiled once for each instruction set (kernels_*.c)
 * and chosen at run time.
 *
 * A kernel works on at most KERNEL_RUN values in aligned memory, except for those of quant. */
#ifndef NUMBERS_KERNELS_H
#define NUMBERS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "numbers/quant_kernels.h"

typedef void (*cast_kernel)(void *restrict to, const void *restrict from, size_t count);

/* Facts about one run of values; scan.c combines runs. */
typedef struct scan_part {
  double least, most; /* range of the values that are not NaN; least > most if there were none */
  int64_t least_int;  /* the same for integer types, exactly */
  uint64_t most_int;  /* as unsigned for unsigned types, as int64 for signed ones */
  uint64_t nans, infs;
  uint64_t zeros, minus_zeros; /* +0 and -0; of them -0 */
  bool whole; /* every value is an integer within int64 or uint64, and none is -0 */
  bool fits_f32, fits_f16,
      fits_bf16; /* every value survives the round trip, including -0 and NaN */
} scan_part;

enum { SCAN_WHOLE = 1, SCAN_F32 = 2, SCAN_F16 = 4, SCAN_BF16 = 8 };

/* Computes only what `wanted` asks for; the other booleans are false. */
typedef void (*scan_kernel)(scan_part *part, const void *from, size_t count, unsigned wanted);

/* Packs the values of the first *columns values that have a bit of `magnitude`, and their columns
 * from `first` on. Sets *columns to the number of values read, and adds to *signs those that have
 * other bits only: -0. Returns the number kept. */
typedef size_t (*compress_kernel)(void *values, void *indices, const void *row, size_t *columns,
                                  uint64_t first, uint64_t magnitude, uint64_t *signs);

typedef struct kernels {
  const char *name; /* "portable", "avx2", "avx512", "neon" */
  cast_kernel cast[DTYPE_COUNT][DTYPE_COUNT];
  scan_kernel scan[DTYPE_COUNT];
  /* Returns the bits that any (value + bias) has, in the width of the type; for integers. */
  uint64_t (*bits[DTYPE_COUNT])(const void *from, size_t count, uint64_t bias);
  /* Return the largest value without its sign, as bits: as an integer it orders floats, infinity
   * and NaN last. */
  uint16_t (*most_16)(const void *from, size_t count);
  uint32_t (*most_32)(const void *from, size_t count);
  /* Return whether all values are in [least, below); NaN is not. */
  bool (*within_f32)(const float *from, size_t count, float least, float below);
  bool (*within_f64)(const double *from, size_t count, double least, double below);
  /* Returns whether all values are equal; NaN equals NaN. */
  bool (*same_f32)(const float *a, const float *b, size_t count);
  /* Casts, and returns true if every value survived. */
  bool (*narrow_f64)(float *restrict to, const double *restrict from, size_t count);
  compress_kernel compress[2][2]; /* values of 4, 8 bytes; indices uint16, int32. NULL: none */
  const quant_kernels *quant;     /* compiled in separate files, quant_*.c */
} kernels;

#define KERNEL_RUN 2048

extern const kernels kernels_portable;
#if defined(__x86_64__)
extern const kernels kernels_avx2;
extern const kernels kernels_avx512;
#endif

/* Returns the best set for this machine, or the one named by $STOWAGE_KERNELS (for tests); never
 * NULL. */
const kernels *kernels_get(void);

#endif
