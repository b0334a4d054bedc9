/* Decimal parts: shared by decimal.c and the csv loops. */
#ifndef ARRAYS_DECIMAL_PARTS_H
#define ARRAYS_DECIMAL_PARTS_H

#include <stdint.h>

#define DECIMAL_POWERS 28 /* 5^27 < 2^63 < 5^28 */

typedef unsigned __int128 decimal_wide;

/* 5^k, and 1/5^k rounded up to 128 bits, the top one set. */
typedef struct decimal_power {
  uint64_t five, high, low;
} decimal_power;

extern const decimal_power decimal_powers[DECIMAL_POWERS];

#define DECIMAL_TENS 23 /* 10^22 is the largest power that a double holds exactly */

extern const double decimal_tens[DECIMAL_TENS];

/* Returns digits / 10^power for power 1 to 27 and digits > 0, by multiplying with the reciprocal
 * (Lemire 2021, "Number parsing at a gigabyte per second", section 5). 64 bits of the reciprocal
 * decide all but one in 512 random inputs, but only half of the doubles printed with 18 or more
 * digits; 128 bits decide every input within these powers. Ties are possible only up to 10^4. Apart
 * from that, no branch depends on the digits. */
static inline uint64_t decimal_divided(uint64_t digits, int power) {
  int zeros = __builtin_clzll(digits);
  digits <<= zeros;
  decimal_wide product = (decimal_wide)digits * decimal_powers[power].high;
  uint64_t high = (uint64_t)(product >> 64), low = (uint64_t)product;
  uint64_t more = (uint64_t)(((decimal_wide)digits * decimal_powers[power].low) >> 64);
  low += more;
  high += low < more;
  int upper = (int)(high >> 63), shift = upper + 9;
  uint64_t kept = high >> shift;
  if (low <= 1 && power <= 4 && (kept & 3) == 1 && kept << shift == high) kept--;
  kept = (kept + (kept & 1)) >> 1;
  /* floor(power * log2(10)), exact far beyond these powers. */
  int exponent = ((217706 * -power) >> 16) + 63 + upper - zeros + 1023;
  return ((uint64_t)exponent << 52) + (kept - (UINT64_C(1) << 52));
}

#endif
