/* Decimal to double, three ways, each exact:
 *   up to 2^53 with a power of ten up to 22: one floating-point operation on two exact operands
 *     (Clinger 1990);
 *   up to 19 digits with a power up to 27: 5^27 fits 64 bits, so a 128-bit product or quotient with
 *     its remainder decides the rounding (most of what programs print falls here);
 *   the rest: strtod. */
#include "formats/decimal.h"

#include <locale.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define POWERS 28 /* 5^27 < 2^63 < 5^28 */

typedef unsigned __int128 wide;

static const double exact_tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* 5^k, and the reciprocal of it with its top bit set: floor((2^128 - 1) / d) - 2^64. */
static const struct {
  uint64_t five, reciprocal;
} powers[POWERS] = {
    {UINT64_C(1), UINT64_C(0xffffffffffffffff)},
    {UINT64_C(5), UINT64_C(0x9999999999999999)},
    {UINT64_C(25), UINT64_C(0x47ae147ae147ae14)},
    {UINT64_C(125), UINT64_C(0x624dd2f1a9fbe76)},
    {UINT64_C(625), UINT64_C(0xa36e2eb1c432ca57)},
    {UINT64_C(3125), UINT64_C(0x4f8b588e368f0846)},
    {UINT64_C(15625), UINT64_C(0xc6f7a0b5ed8d36b)},
    {UINT64_C(78125), UINT64_C(0xad7f29abcaf48578)},
    {UINT64_C(390625), UINT64_C(0x5798ee2308c39df9)},
    {UINT64_C(1953125), UINT64_C(0x12e0be826d694b2e)},
    {UINT64_C(9765625), UINT64_C(0xb7cdfd9d7bdbab7d)},
    {UINT64_C(48828125), UINT64_C(0x5fd7fe17964955fd)},
    {UINT64_C(244140625), UINT64_C(0x19799812dea11197)},
    {UINT64_C(1220703125), UINT64_C(0xc25c268497681c26)},
    {UINT64_C(6103515625), UINT64_C(0x6849b86a12b9b01e)},
    {UINT64_C(30517578125), UINT64_C(0x203af9ee756159b2)},
    {UINT64_C(152587890625), UINT64_C(0xcd2b297d889bc2b6)},
    {UINT64_C(762939453125), UINT64_C(0x70ef54646d496892)},
    {UINT64_C(3814697265625), UINT64_C(0x2725dd1d243aba0e)},
    {UINT64_C(19073486328125), UINT64_C(0xd83c94fb6d2ac34a)},
    {UINT64_C(95367431640625), UINT64_C(0x79ca10c9242235d5)},
    {UINT64_C(476837158203125), UINT64_C(0x2e3b40a0e9b4f7dd)},
    {UINT64_C(2384185791015625), UINT64_C(0xe392010175ee5962)},
    {UINT64_C(11920928955078125), UINT64_C(0x82db34012b25144e)},
    {UINT64_C(59604644775390625), UINT64_C(0x357c299a88ea76a5)},
    {UINT64_C(298023223876953125), UINT64_C(0xef2d0f5da7dd8aa2)},
    {UINT64_C(1490116119384765625), UINT64_C(0x8c240c4aecb13bb5)},
    {UINT64_C(7450580596923828125), UINT64_C(0x3ce9a36f23c0fc90)},
};

/* top * 2^exponent, its top bit set, plus something less than one unit if `more`. Never subnormal
 * or infinite for what comes here. */
static double round_top(uint64_t top, int exponent, bool more) {
  uint64_t kept = top >> 11, low = top & 0x7ff;
  if (low > 0x400 || (low == 0x400 && (more || (kept & 1)))) kept++;
  /* A carry out of the fraction runs into the exponent, as it should. */
  uint64_t bits = ((uint64_t)(exponent + 11 + 52 + 1023) << 52) + (kept - (UINT64_C(1) << 52));
  double d;
  memcpy(&d, &bits, sizeof d);
  return d;
}

/* digits * 10^power for power 0 to 27. */
static double multiplied(uint64_t digits, int power) {
  wide product = (wide)digits * powers[power].five;
  uint64_t high = (uint64_t)(product >> 64), low = (uint64_t)product;
  if (high == 0) {
    int zeros = __builtin_clzll(low);
    return round_top(low << zeros, power - zeros, false);
  }
  int zeros = __builtin_clzll(high);
  wide shifted = product << zeros;
  return round_top((uint64_t)(shifted >> 64), power + 64 - zeros, (uint64_t)shifted != 0);
}

/* digits / 10^power for power 1 to 27: a division of 128 bits by 64 through the reciprocal (Möller
 * and Granlund 2011, algorithm 4), exact, and its remainder. */
static double divided(uint64_t digits, int power) {
  int left_digits = __builtin_clzll(digits), left_five = __builtin_clzll(powers[power].five);
  uint64_t above = digits << left_digits, below = powers[power].five << left_five, low = 0;
  int exponent = left_five - left_digits - 64 - power;
  if (above >= below) { /* keep the quotient within 64 bits */
    low = above << 63;
    above >>= 1;
    exponent++;
  }
  wide guess = (wide)powers[power].reciprocal * above + ((wide)above << 64 | low);
  uint64_t quotient = (uint64_t)(guess >> 64) + 1;
  uint64_t rest = low - quotient * below;
  if (rest > (uint64_t)guess) {
    quotient--;
    rest += below;
  }
  if (rest >= below) {
    quotient++;
    rest -= below;
  }
  return round_top(quotient, exponent, rest != 0);
}

static locale_t plain_locale;
static pthread_once_t plain_once = PTHREAD_ONCE_INIT;

static void make_plain(void) {
  plain_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static double any(const char *at) {
  pthread_once(&plain_once, make_plain);
  return plain_locale != (locale_t)0 ? strtod_l(at, NULL, plain_locale) : strtod(at, NULL);
}

static double to_double(const char *at, uint64_t digits, int64_t power, bool cut) {
  if (cut || power < -27 || power > 27) return any(at);
  if (digits == 0) return 0;
  if (digits <= UINT64_C(1) << 53 && power >= -22 && power <= 22)
    return power < 0 ? (double)digits / exact_tens[-power] : (double)digits * exact_tens[power];
  return power < 0 ? divided(digits, (int)-power) : multiplied(digits, (int)power);
}

static inline bool is_digit(char c) {
  return (unsigned char)(c - '0') < 10;
}

/* The exponent behind 'e'; `at` stays on the 'e' where no digits follow. */
static const char *read_exponent(const char *at, int64_t *power) {
  const char *digit = at + 1;
  bool minus = *digit == '-';
  if (*digit == '-' || *digit == '+') digit++;
  if (!is_digit(*digit)) return at;
  int64_t exponent = 0;
  for (; is_digit(*digit); digit++)
    if (exponent < 100000) exponent = exponent * 10 + (*digit - '0');
  *power += minus ? -exponent : exponent;
  return digit;
}

static decimal_kind integer(decimal *value, uint64_t digits, bool minus) {
  if (!minus && digits > INT64_MAX) return value->u = digits, DECIMAL_UNSIGNED;
  if (minus && digits == 0) return value->d = -0.0, DECIMAL_FLOAT;
  if (minus && digits > (uint64_t)INT64_MAX + 1) return DECIMAL_BIG;
  value->i = minus ? (int64_t)(0 - digits) : (int64_t)digits;
  return DECIMAL_SIGNED;
}

/* Are the eight bytes digits, and what is their value? Both with a few operations on one word; the
 * first digit stands in the lowest byte (both machines we build for are little-endian). */
static inline bool eight_digits(uint64_t word) {
  return ((word & UINT64_C(0xf0f0f0f0f0f0f0f0)) |
          (((word + UINT64_C(0x0606060606060606)) & UINT64_C(0xf0f0f0f0f0f0f0f0)) >> 4)) ==
         UINT64_C(0x3333333333333333);
}

static inline uint64_t eight_value(uint64_t word) {
  word = (word & UINT64_C(0x0f0f0f0f0f0f0f0f)) * 2561 >> 8;
  word = (word & UINT64_C(0x00ff00ff00ff00ff)) * 6553601 >> 16;
  return (word & UINT64_C(0x0000ffff0000ffff)) * UINT64_C(42949672960001) >> 32;
}

/* Takes all digits at `at` into *digits, which wraps past 64 bits: the caller counts them. */
static inline const char *take_digits(const char *at, uint64_t *digits) {
  uint64_t word, value = *digits;
  for (; memcpy(&word, at, 8), eight_digits(word); at += 8)
    value = value * 100000000 + eight_value(word);
  for (; is_digit(*at); at++) value = value * 10 + (uint64_t)(*at - '0');
  *digits = value;
  return at;
}

/* Do the `count` digits (and perhaps a point) from `at` on pass 64 bits? Zeros in front count for
 * nothing, and of 20 digits some still fit. */
static bool passes_64_bits(const char *at, int64_t count) {
  uint64_t value = 0;
  for (; count > 0; at++) {
    if (*at == '.') continue;
    count--;
    if (__builtin_mul_overflow(value, 10, &value) ||
        __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
      return true;
  }
  return false;
}

decimal_kind decimal_read(const char *at, const char **end, decimal *value) {
  const char *start = at;
  bool minus = *at == '-';
  if (*at == '-' || *at == '+') at++;
  const char *first = at;
  uint64_t digits = 0;
  at = take_digits(at, &digits);
  int64_t whole = at - first, fraction = 0, power = 0;
  bool point = *at == '.', letter = false;
  if (point) {
    const char *behind = ++at;
    at = take_digits(at, &digits);
    fraction = at - behind;
    power = -fraction;
  }
  if (whole + fraction == 0) return *end = start, DECIMAL_NONE;
  bool cut = whole + fraction > 19 && passes_64_bits(first, whole + fraction);
  if (*at == 'e' || *at == 'E') {
    const char *behind = read_exponent(at, &power);
    letter = behind != at;
    at = behind;
  }
  *end = at;
  if (!point && !letter) return cut ? DECIMAL_BIG : integer(value, digits, minus);
  double d = to_double(first, digits, power, cut);
  value->d = minus ? -d : d;
  return DECIMAL_FLOAT;
}
