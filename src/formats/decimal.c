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

#define F(n) UINT64_C(n)
static const uint64_t fives[POWERS] = {
    F(1),
    F(5),
    F(25),
    F(125),
    F(625),
    F(3125),
    F(15625),
    F(78125),
    F(390625),
    F(1953125),
    F(9765625),
    F(48828125),
    F(244140625),
    F(1220703125),
    F(6103515625),
    F(30517578125),
    F(152587890625),
    F(762939453125),
    F(3814697265625),
    F(19073486328125),
    F(95367431640625),
    F(476837158203125),
    F(2384185791015625),
    F(11920928955078125),
    F(59604644775390625),
    F(298023223876953125),
    F(1490116119384765625),
    F(7450580596923828125),
};
#undef F

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
  wide product = (wide)digits * fives[power];
  uint64_t high = (uint64_t)(product >> 64), low = (uint64_t)product;
  if (high == 0) {
    int zeros = __builtin_clzll(low);
    return round_top(low << zeros, power - zeros, false);
  }
  int zeros = __builtin_clzll(high);
  wide shifted = product << zeros;
  return round_top((uint64_t)(shifted >> 64), power + 64 - zeros, (uint64_t)shifted != 0);
}

/* digits / 10^power for power 1 to 27. */
static double divided(uint64_t digits, int power) {
  int left_digits = __builtin_clzll(digits), left_five = __builtin_clzll(fives[power]);
  uint64_t above = digits << left_digits, below = fives[power] << left_five;
  int exponent = left_five - left_digits - 64 - power;
  wide dividend = (wide)above << 64;
  if (above >= below) { /* keep the quotient within 64 bits */
    dividend >>= 1;
    exponent++;
  }
  uint64_t quotient = (uint64_t)(dividend / below);
  return round_top(quotient, exponent, dividend % below != 0);
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

decimal_kind decimal_read(const char *at, const char **end, decimal *value) {
  const char *start = at;
  bool minus = *at == '-';
  if (*at == '-' || *at == '+') at++;
  const char *unsigned_start = at, *first = at;
  uint64_t digits = 0;
  bool cut = false; /* digits past 64 bits: only strtod can tell */
  for (; is_digit(*at); at++)
    if (__builtin_mul_overflow(digits, 10, &digits) ||
        __builtin_add_overflow(digits, (uint64_t)(*at - '0'), &digits))
      cut = true;
  int64_t whole = at - first, fraction = 0, power = 0;
  if (*at == '.') {
    const char *point = ++at;
    for (; is_digit(*at); at++)
      if (__builtin_mul_overflow(digits, 10, &digits) ||
          __builtin_add_overflow(digits, (uint64_t)(*at - '0'), &digits))
        cut = true;
    fraction = at - point;
    power = -fraction;
    if (whole + fraction == 0) return *end = start, DECIMAL_NONE;
  } else if (whole == 0) {
    return *end = start, DECIMAL_NONE;
  } else if (*at != 'e' && *at != 'E') {
    *end = at;
    return cut ? DECIMAL_BIG : integer(value, digits, minus);
  }
  if (*at == 'e' || *at == 'E') {
    const char *behind = read_exponent(at, &power);
    if (behind == at && fraction == 0 && at[-1] != '.') { /* "12e": digits with a letter behind */
      *end = at;
      return cut ? DECIMAL_BIG : integer(value, digits, minus);
    }
    at = behind;
  }
  *end = at;
  double d = to_double(unsigned_start, digits, power, cut);
  value->d = minus ? -d : d;
  return DECIMAL_FLOAT;
}
