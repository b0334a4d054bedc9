/* Decimal: parses decimal numbers exactly: an integer as an integer, anything else as the nearest
 * double (ties to even), the same as strtod and Python's float. The table reader calls it for every
 * field, so it is optimized for speed: see decimal.c. */
#ifndef ARRAYS_DECIMAL_H
#define ARRAYS_DECIMAL_H

#include <stddef.h>
#include <stdint.h>

#define DECIMAL_SLACK 8

typedef enum decimal_kind {
  DECIMAL_NONE,     /* not a number */
  DECIMAL_SIGNED,   /* value.i */
  DECIMAL_UNSIGNED, /* above INT64_MAX, within uint64: value.u */
  DECIMAL_BIG,      /* an integer above 64 bits, or a float above the range of a double */
  DECIMAL_FLOAT     /* value.d */
} decimal_kind;

typedef union decimal {
  int64_t i;
  uint64_t u;
  double d;
} decimal;

/* Parses [+-]digits[.digits][e[+-]digits] at `at`; *end is the first byte after it. That byte must
 * not belong to a number (a delimiter, a line end, '\0'), and DECIMAL_SLACK more bytes must be
 * readable, whatever they hold. "-0" is the float -0.0, because an integer would lose the sign. The
 * caller handles words (nan, inf). */
decimal_kind decimal_read(const char *at, const char **end, decimal *value);

/* Parses at[0, length), which must be a number as a whole; returns DECIMAL_NONE otherwise. Faster
 * than decimal_read. The same bytes must be readable after it. */
decimal_kind decimal_field(const char *at, size_t length, decimal *value);

#endif
