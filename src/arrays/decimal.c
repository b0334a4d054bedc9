/* Decimal to double in three ways, each exact:
 *
 *   up to 2^53 and powers of ten up to 22: one floating-point operation on two exact operands
 *     (Clinger 1990)
 *   up to 19 digits and powers up to 27: 5^27 fits in 64 bits, so a 128-bit product with it or
 *     with its reciprocal decides the rounding; covers most of what programs print
 *   anything else: strtod */
#include "arrays/decimal.h"

#include <float.h>
#include <locale.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/decimal_parts.h"

const double decimal_tens[DECIMAL_TENS] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                           1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                           1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

const decimal_power decimal_powers[DECIMAL_POWERS] = {
    {UINT64_C(1), UINT64_C(0x8000000000000000), UINT64_C(0x0000000000000001)},
    {UINT64_C(5), UINT64_C(0xcccccccccccccccc), UINT64_C(0xcccccccccccccccd)},
    {UINT64_C(25), UINT64_C(0xa3d70a3d70a3d70a), UINT64_C(0x3d70a3d70a3d70a4)},
    {UINT64_C(125), UINT64_C(0x83126e978d4fdf3b), UINT64_C(0x645a1cac083126ea)},
    {UINT64_C(625), UINT64_C(0xd1b71758e219652b), UINT64_C(0xd3c36113404ea4a9)},
    {UINT64_C(3125), UINT64_C(0xa7c5ac471b478423), UINT64_C(0x0fcf80dc33721d54)},
    {UINT64_C(15625), UINT64_C(0x8637bd05af6c69b5), UINT64_C(0xa63f9a49c2c1b110)},
    {UINT64_C(78125), UINT64_C(0xd6bf94d5e57a42bc), UINT64_C(0x3d32907604691b4d)},
    {UINT64_C(390625), UINT64_C(0xabcc77118461cefc), UINT64_C(0xfdc20d2b36ba7c3e)},
    {UINT64_C(1953125), UINT64_C(0x89705f4136b4a597), UINT64_C(0x31680a88f8953031)},
    {UINT64_C(9765625), UINT64_C(0xdbe6fecebdedd5be), UINT64_C(0xb573440e5a884d1c)},
    {UINT64_C(48828125), UINT64_C(0xafebff0bcb24aafe), UINT64_C(0xf78f69a51539d749)},
    {UINT64_C(244140625), UINT64_C(0x8cbccc096f5088cb), UINT64_C(0xf93f87b7442e45d4)},
    {UINT64_C(1220703125), UINT64_C(0xe12e13424bb40e13), UINT64_C(0x2865a5f206b06fba)},
    {UINT64_C(6103515625), UINT64_C(0xb424dc35095cd80f), UINT64_C(0x538484c19ef38c95)},
    {UINT64_C(30517578125), UINT64_C(0x901d7cf73ab0acd9), UINT64_C(0x0f9d37014bf60a11)},
    {UINT64_C(152587890625), UINT64_C(0xe69594bec44de15b), UINT64_C(0x4c2ebe687989a9b4)},
    {UINT64_C(762939453125), UINT64_C(0xb877aa3236a4b449), UINT64_C(0x09befeb9fad487c3)},
    {UINT64_C(3814697265625), UINT64_C(0x9392ee8e921d5d07), UINT64_C(0x3aff322e62439fd0)},
    {UINT64_C(19073486328125), UINT64_C(0xec1e4a7db69561a5), UINT64_C(0x2b31e9e3d06c32e6)},
    {UINT64_C(95367431640625), UINT64_C(0xbce5086492111aea), UINT64_C(0x88f4bb1ca6bcf585)},
    {UINT64_C(476837158203125), UINT64_C(0x971da05074da7bee), UINT64_C(0xd3f6fc16ebca5e04)},
    {UINT64_C(2384185791015625), UINT64_C(0xf1c90080baf72cb1), UINT64_C(0x5324c68b12dd6339)},
    {UINT64_C(11920928955078125), UINT64_C(0xc16d9a0095928a27), UINT64_C(0x75b7053c0f178294)},
    {UINT64_C(59604644775390625), UINT64_C(0x9abe14cd44753b52), UINT64_C(0xc4926a9672793543)},
    {UINT64_C(298023223876953125), UINT64_C(0xf79687aed3eec551), UINT64_C(0x3a83ddbd83f52205)},
    {UINT64_C(1490116119384765625), UINT64_C(0xc612062576589dda), UINT64_C(0x95364afe032a819e)},
    {UINT64_C(7450580596923828125), UINT64_C(0x9e74d1b791e07e48), UINT64_C(0x775ea264cf55347e)},
};

/* Rounds top * 2^exponent, whose top bit is set, plus less than one unit if `more`. The result is
 * never subnormal or infinite for the values passed here. */
static double round_top(uint64_t top, int exponent, bool more) {
  uint64_t kept = top >> 11, low = top & 0x7ff;
  if (low > 0x400 || (low == 0x400 && (more || (kept & 1)))) kept++;
  /* A carry out of the fraction correctly increments the exponent. */
  uint64_t bits = ((uint64_t)(exponent + 11 + 52 + 1023) << 52) + (kept - (UINT64_C(1) << 52));
  double d;
  memcpy(&d, &bits, sizeof d);
  return d;
}

/* Returns digits * 10^power for power 0 to 27. */
static double multiplied(uint64_t digits, int power) {
  decimal_wide product = (decimal_wide)digits * decimal_powers[power].five;
  uint64_t high = (uint64_t)(product >> 64), low = (uint64_t)product;
  if (high == 0) {
    int zeros = __builtin_clzll(low);
    return round_top(low << zeros, power - zeros, false);
  }
  int zeros = __builtin_clzll(high);
  decimal_wide shifted = product << zeros;
  return round_top((uint64_t)(shifted >> 64), power + 64 - zeros, (uint64_t)shifted != 0);
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
    return power < 0 ? (double)digits / decimal_tens[-power] : (double)digits * decimal_tens[power];
  if (power >= 0) return multiplied(digits, (int)power);
  uint64_t bits = decimal_divided(digits, (int)-power);
  double d;
  memcpy(&d, &bits, sizeof d);
  return d;
}

static inline bool is_digit(char c) {
  return (unsigned char)(c - '0') < 10;
}

/* Reads the exponent after 'e'; `at` stays on the 'e' if no digits follow. */
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

/* Tests whether eight bytes are digits and computes their value, with a few operations on one word.
 * The first digit is in the lowest byte: all supported machines are little-endian. */
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

/* Reads all digits at `at` into *digits, which wraps past 64 bits: the caller counts them. */
static inline const char *take_digits(const char *at, uint64_t *digits) {
  uint64_t word, value = *digits;
  for (; memcpy(&word, at, 8), eight_digits(word); at += 8)
    value = value * 100000000 + eight_value(word);
  for (; is_digit(*at); at++) value = value * 10 + (uint64_t)(*at - '0');
  *digits = value;
  return at;
}

/* Returns whether the `count` digits from `at` on (with perhaps a point) exceed 64 bits. Leading
 * zeros do not count, and some 20-digit numbers still fit. */
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
  if (d > DBL_MAX) return DECIMAL_BIG;
  uint64_t bits;
  memcpy(&bits, &d, sizeof bits);
  value->u = bits | (uint64_t)minus << 63;
  return DECIMAL_FLOAT;
}

/* ---- a field of known length ---- */

#define TEXT_ZEROS UINT64_C(0x3030303030303030)

static const uint64_t whole_tens[20] = {UINT64_C(1),
                                        UINT64_C(10),
                                        UINT64_C(100),
                                        UINT64_C(1000),
                                        UINT64_C(10000),
                                        UINT64_C(100000),
                                        UINT64_C(1000000),
                                        UINT64_C(10000000),
                                        UINT64_C(100000000),
                                        UINT64_C(1000000000),
                                        UINT64_C(10000000000),
                                        UINT64_C(100000000000),
                                        UINT64_C(1000000000000),
                                        UINT64_C(10000000000000),
                                        UINT64_C(100000000000000),
                                        UINT64_C(1000000000000000),
                                        UINT64_C(10000000000000000),
                                        UINT64_C(100000000000000000),
                                        UINT64_C(1000000000000000000),
                                        UINT64_C(10000000000000000000)};

/* Returns the first `count` (0 to 8) of the eight bytes at `at`, padded with zeros in front: the
 * value is unchanged. Shifts twice, because a shift by 64 is undefined. */
static inline uint64_t digits_at(const char *at, size_t count) {
  uint64_t word;
  memcpy(&word, at, sizeof word);
  unsigned used = 8 * (unsigned)count, free = 64 - used;
  return word << free / 2 << (free - free / 2) | TEXT_ZEROS >> used / 2 >> (used - used / 2);
}

static inline bool all_digits(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  /* Each byte is 0x30 to 0x39: its high half is 3, also after adding 6. */
  uint64_t high = UINT64_C(0xf0f0f0f0f0f0f0f0), six = UINT64_C(0x0606060606060606);
  uint64_t unlike = (a ^ TEXT_ZEROS) | (b ^ TEXT_ZEROS) | (c ^ TEXT_ZEROS) | (d ^ TEXT_ZEROS) |
                    ((a + six) ^ TEXT_ZEROS) | ((b + six) ^ TEXT_ZEROS) | ((c + six) ^ TEXT_ZEROS) |
                    ((d + six) ^ TEXT_ZEROS);
  return (unlike & high) == 0;
}

static decimal_kind any_field(const char *at, size_t length, decimal *value) {
  const char *end;
  decimal_kind kind = decimal_read(at, &end, value);
  return end == at + length ? kind : DECIMAL_NONE;
}

/* Parses up to 16 digits at `first`; leaves everything else to any_field. */
static inline decimal_kind integer_field(const char *at, size_t length, const char *first, size_t n,
                                         decimal *value) {
  size_t low = n < 8 ? n : 8, high = n - low;
  uint64_t b = digits_at(first + high, low), a = digits_at(first, high);
  if (!all_digits(a, b, b, b)) return any_field(at, length, value);
  int64_t digits = (int64_t)(eight_value(a) * 100000000 + eight_value(b));
  int64_t minus = first != at;
  if (minus && digits == 0) return value->d = -0.0, DECIMAL_FLOAT;
  value->i = (digits ^ -minus) + minus;
  return DECIMAL_SIGNED;
}

decimal_kind decimal_field(const char *at, size_t length, decimal *value) {
  size_t minus = *at == '-', n = length - minus;
  const char *first = at + minus;
  if (n - 1 >= 24) return any_field(at, length, value);
  uint64_t word;
  memcpy(&word, first, sizeof word);
  /* The first point among the eight bytes: the lowest byte that becomes zero. */
  uint64_t unlike = word ^ UINT64_C(0x2e2e2e2e2e2e2e2e);
  uint64_t points =
      (unlike - UINT64_C(0x0101010101010101)) & ~unlike & UINT64_C(0x8080808080808080);
  size_t whole = points != 0 ? (size_t)__builtin_ctzll(points) / 8 : 8;
  if (whole >= n || points == 0)
    return n <= 16 ? integer_field(at, length, first, n, value) : any_field(at, length, value);
  size_t fraction = n - whole - 1;
  const char *behind = first + whole + 1;
  if (fraction - 1 >= 19) return any_field(at, length, value);
  uint64_t i = digits_at(first, whole), a = TEXT_ZEROS, b = TEXT_ZEROS, c;
  if (fraction <= 8) {
    c = digits_at(behind, fraction);
  } else { /* the last eight, up to eight before them, and the rest */
    size_t rest = fraction > 16 ? fraction - 16 : 0;
    c = digits_at(behind + fraction - 8, 8);
    b = digits_at(behind + rest, fraction - 8 - rest);
    a = digits_at(behind, rest);
  }
  uint64_t units = eight_value(i);
  if (!all_digits(i, a, b, c) || (whole + fraction > 19 && units != 0))
    return any_field(at, length, value);
  uint64_t digits = units * whole_tens[fraction] +
                    (eight_value(a) * 100000000 + eight_value(b)) * 100000000 + eight_value(c);
  /* No branch on the sign: the signs of data are unpredictable. */
  value->u = (digits != 0 ? decimal_divided(digits, (int)fraction) : 0) | (uint64_t)minus << 63;
  return DECIMAL_FLOAT;
}
