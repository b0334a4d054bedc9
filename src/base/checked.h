/* Checked arithmetic for every size that comes from outside. Each function returns true if the
 * result did not overflow. */
#ifndef BASE_CHECKED_H
#define BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

static inline bool checked_add(uint64_t *out, uint64_t a, uint64_t b) {
  return !__builtin_add_overflow(a, b, out);
}

static inline bool checked_mul(uint64_t *out, uint64_t a, uint64_t b) {
  return !__builtin_mul_overflow(a, b, out);
}

static inline bool is_power_of_two(uint64_t n) {
  return n != 0 && (n & (n - 1)) == 0;
}

/* Rounds `n` up to a multiple of `unit`, a power of two. Returns false if the result exceeds
 * 2^64-1. */
static inline bool checked_round_up(uint64_t *out, uint64_t n, uint64_t unit) {
  if (!checked_add(out, n, unit - 1)) return false;
  *out &= ~(unit - 1);
  return true;
}

/* The same for callers that know it cannot overflow. */
static inline uint64_t round_up(uint64_t n, uint64_t unit) {
  return (n + unit - 1) & ~(unit - 1);
}

static inline uint64_t round_down(uint64_t n, uint64_t unit) {
  return n & ~(unit - 1);
}

#endif
