/* Float8: the two 8-bit float types of safetensors and PyTorch, from and to float32.
 *
 * e4m3fn: 4 exponent and 3 fraction bits, no infinity, one NaN (0x7f, 0xff), largest value 448.
 * e5m2: 5 exponent and 2 fraction bits, infinity and NaN as in IEEE 754, largest value 57344.
 *
 * Rounds to nearest, ties to even. Out of range becomes NaN in e4m3fn and infinity in e5m2. Each
 * NaN becomes 0x7f with its sign. PyTorch gives the same bytes. cast.h has the wider types. */
#ifndef NUMBERS_FLOAT8_H
#define NUMBERS_FLOAT8_H

#include <stddef.h>
#include <stdint.h>

#include "numbers/half.h"

typedef enum float8_kind { FLOAT8_E4M3, FLOAT8_E5M2 } float8_kind;

/* Convert `count` values. Floats are aligned to 4 bytes; the buffers do not overlap. */
void float8_from_floats(float8_kind kind, const float *values, size_t count, void *out);
void float8_to_floats(float8_kind kind, const void *in, size_t count, float *values);

/* The definitions, one value at a time. Tests compare the vector code with them.
 *
 * A value below the smallest normal number of the type is rounded by adding a power of two whose
 * last bit has the weight of the last subnormal bit: the sum's low bits are the result. */
static inline uint8_t float8_e4m3_from_float(float x) {
  uint32_t bits = float_bits(x), sign = bits >> 24 & 0x80, mag = bits & 0x7fffffff;
  if (mag > 0x43e80000) return (uint8_t)(sign | 0x7f); /* above 464, the tie past 448; NaN */
  if (mag < 0x3c800000)                                /* below 2^-6 */
    return (uint8_t)(sign | (float_bits(float_from_bits(mag) + 0x1p14f) - float_bits(0x1p14f)));
  return (uint8_t)(sign | ((mag + 0x7ffff + (mag >> 20 & 1) - 0x3c000000) >> 20));
}

static inline uint8_t float8_e5m2_from_float(float x) {
  uint32_t bits = float_bits(x), sign = bits >> 24 & 0x80, mag = bits & 0x7fffffff;
  if (mag > 0x7f800000) return (uint8_t)(sign | 0x7f);
  if (mag >= 0x47700000) return (uint8_t)(sign | 0x7c); /* 61440 and up round to infinity */
  if (mag < 0x38800000)                                 /* below 2^-14 */
    return (uint8_t)(sign | (float_bits(float_from_bits(mag) + 0x1p7f) - float_bits(0x1p7f)));
  return (uint8_t)(sign | ((mag + 0xfffff + (mag >> 21 & 1) - 0x38000000) >> 21));
}

static inline float float8_e4m3_to_float(uint8_t v) {
  uint32_t sign = (uint32_t)(v & 0x80) << 24, mag = v & 0x7f;
  if (mag == 0x7f) return float_from_bits(sign | 0x7fc00000);
  if (mag < 8) return float_from_bits(sign | float_bits((float)mag * 0x1p-9f)); /* subnormal */
  return float_from_bits(sign | ((mag << 20) + 0x3c000000));
}

static inline float float8_e5m2_to_float(uint8_t v) {
  return half_to_float((uint16_t)(v << 8));
}

#endif
