/* Varint: unsigned numbers with seven bits per byte, low bits first (LEB128); signed numbers are
 * zigzag-encoded first. Used by .stow files and protobuf. */
#ifndef TRACE_VARINT_H
#define TRACE_VARINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VARINT_MAX 10

static inline size_t varint_put(uint8_t *to, uint64_t value) {
  size_t n = 0;
  for (; value >= 0x80; value >>= 7) to[n++] = (uint8_t)(value | 0x80);
  to[n++] = (uint8_t)value;
  return n;
}

/* Reads a number and advances *at. Returns false if it does not end before `end` or exceeds 64
 * bits. */
static inline bool varint_get(const uint8_t **at, const uint8_t *end, uint64_t *value) {
  uint64_t sum = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (*at == end) return false;
    uint8_t byte = *(*at)++;
    if (shift == 63 && byte > 1) return false;
    sum |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) {
      *value = sum;
      return true;
    }
  }
  return false;
}

/* Differences wrap around, so any two 64-bit numbers have one. */
static inline uint64_t zigzag(uint64_t difference) {
  return difference << 1 ^ (uint64_t)((int64_t)difference >> 63);
}
static inline uint64_t unzigzag(uint64_t folded) {
  return folded >> 1 ^ (0 - (folded & 1));
}

#endif
