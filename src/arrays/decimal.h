/* Decimal: numbers as people write them, read exactly: an integer as an integer, anything else as
 * the nearest double (ties to even), the same as strtod and Python's float. Called by the reader of
 * tables, once for every field, so it is built for speed: see decimal.c. */
#ifndef ARRAYS_DECIMAL_H
#define ARRAYS_DECIMAL_H

#include <stddef.h>
#include <stdint.h>

#define DECIMAL_SLACK 8

typedef enum decimal_kind {
  DECIMAL_NONE,     /* no number stands here */
  DECIMAL_SIGNED,   /* value.i */
  DECIMAL_UNSIGNED, /* past int64, within uint64: value.u */
  DECIMAL_BIG,      /* an integer past 64 bits, a float past what a double holds */
  DECIMAL_FLOAT     /* value.d */
} decimal_kind;

typedef union decimal {
  int64_t i;
  uint64_t u;
  double d;
} decimal;

/* Reads [+-]digits[.digits][e[+-]digits] at `at`; *end is the first byte behind it. The bytes must
 * be followed by one that belongs to no number (a delimiter, a line end, '\0'), and DECIMAL_SLACK
 * bytes behind that one must be readable, whatever they are. "-0" is the float
 * -0.0: an integer would lose its sign. Words (nan, inf) are the caller's. */
decimal_kind decimal_read(const char *at, const char **end, decimal *value);

/* The same where the whole of at[0, length) must be the number, and faster for it; DECIMAL_NONE
 * where it is not. What stands behind it is as above. */
decimal_kind decimal_field(const char *at, size_t length, decimal *value);

#endif
