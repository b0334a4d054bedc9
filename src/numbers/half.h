/* Half: float16 and bfloat16 from and to wider floats, one value at a time, exactly as IEEE 754
 * says.
 *
 * Round to nearest, ties to even; overflow becomes infinity; a NaN stays a NaN (made quiet, its top
 * payload bits kept); subnormals are exact. These functions are the definition: tests compare the
 * vector code in cast.c with them bit for bit. */
#ifndef NUMBERS_HALF_H
#define NUMBERS_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float float_from_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* Converts float32 to float16. */
static inline uint16_t half_from_float(float x) {
  uint32_t bits = float_bits(x), sign = bits >> 16 & 0x8000, mag = bits & 0x7fffffff;
  if (mag > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (mag >> 13 & 0x3ff)); /* NaN */
  if (mag >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and up round to infinity */
  if (mag >= 0x38800000) {                                 /* normal: 2^-14 and up */
    uint32_t rounded = mag + 0xfff + (mag >> 13 & 1);
    return (uint16_t)(sign | ((rounded - 0x38000000) >> 13));
  }
  if (mag < 0x33000000) return (uint16_t)sign; /* below half the smallest subnormal */
  uint32_t shift = 126 - (mag >> 23), whole = (mag & 0x7fffff) | 0x800000;
  uint32_t kept = whole >> shift, rest = whole & ((1u << shift) - 1), tie = 1u << (shift - 1);
  kept += rest > tie || (rest == tie && (kept & 1));
  return (uint16_t)(sign | kept);
}

static inline float half_to_float(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 0x1f, fraction = h & 0x3ff;
  if (exponent == 0x1f) /* infinity, or a NaN, made quiet */
    return float_from_bits(sign | 0x7f800000 | fraction << 13 | (fraction ? 0x400000 : 0));
  if (exponent != 0) return float_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
  float tiny = (float)fraction * 0x1p-24f;
  return float_from_bits(sign | float_bits(tiny));
}

/* Converts float64 to float32, rounded to odd: the truncated value with its last bit set if any
 * bits were cut. Rounding that to float16 or bfloat16 gives the same result as rounding the double
 * once. */
static inline float float_round_to_odd(double x) {
  float y = (float)x;
  if (x != x || (double)y == x) return y;
  uint32_t bits = float_bits(y);
  double back = (double)y;
  bits -= (back < 0 ? -back : back) > (x < 0 ? -x : x);
  return float_from_bits(bits | 1);
}

static inline uint16_t half_from_double(double x) {
  return half_from_float(float_round_to_odd(x));
}

/* Converts float32 to bfloat16. */
static inline uint16_t bfloat_from_float(float x) {
  uint32_t bits = float_bits(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline uint16_t bfloat_from_double(double x) {
  return bfloat_from_float(float_round_to_odd(x));
}

static inline float bfloat_to_float(uint16_t b) {
  return float_from_bits((uint32_t)b << 16);
}

#endif
