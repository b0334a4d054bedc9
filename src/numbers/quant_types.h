/* Quant types: what quant.h and its kernels share. */
#ifndef NUMBERS_QUANT_TYPES_H
#define NUMBERS_QUANT_TYPES_H

#include <stdint.h>

/* Block formats of GGUF. */
typedef enum quant_kind { QUANT_Q8_0, QUANT_Q4_0, QUANT_Q4_K, QUANT_Q6_K } quant_kind;
#define QUANT_KINDS 4

/* Formats of one byte for each value and one scale for a row or a tensor. */
typedef enum quant_channel { QUANT_INT8, QUANT_FP8 } quant_channel;

/* What a conversion lost. Starts as {0}; parts can be added in any order by the caller. */
typedef struct quant_error {
  double sum_squares;       /* over the values before */
  double sum_error_squares; /* over the differences, after - before */
  double max_error;         /* the largest |after - before| */
  uint64_t values;          /* all values seen */
  uint64_t clipped;         /* finite before, not finite after; left out of the sums */
  uint64_t not_finite;      /* NaN or infinity before; left out of the sums */
} quant_error;

#endif
