/* Sparse: masks, and packing by mask, 8 values (one byte of mask) at a time. */
#include "numbers/sparse.h"

#include <string.h>

#include "numbers/half.h"

size_t sparse_mask_bytes(size_t columns) {
  return columns / 8 + (columns % 8 != 0);
}

#define MASK_NONZERO(type, keep)                                                                   \
  for (size_t i = 0; i < columns; i += 8) {                                                        \
    type v[8] = {0};                                                                               \
    memcpy(v, (const char *)values + i * sizeof(type),                                             \
           (columns - i < 8 ? columns - i : 8) * sizeof(type));                                    \
    unsigned bits = 0;                                                                             \
    for (unsigned k = 0; k < 8; k++) bits |= (unsigned)((v[k] & (type)(keep)) != 0) << k;          \
    mask[i / 8] = (uint8_t)bits;                                                                   \
    set += (size_t)__builtin_popcount(bits);                                                       \
  }

size_t sparse_mask_nonzero(const void *values, size_t width, bool is_float, size_t columns,
                           uint8_t *mask) {
  size_t set = 0;
  uint64_t keep = is_float ? UINT64_MAX >> 1 : UINT64_MAX;
  switch (width) {
  case 1: MASK_NONZERO(uint8_t, keep >> 56) break;
  case 2: MASK_NONZERO(uint16_t, keep >> 48) break;
  case 4: MASK_NONZERO(uint32_t, keep >> 32) break;
  default: MASK_NONZERO(uint64_t, keep) break;
  }
  return set;
}

size_t sparse_mask_above(const float *values, float threshold, size_t columns, uint8_t *mask) {
  size_t set = 0;
  for (size_t i = 0; i < columns; i += 8) {
    float v[8] = {0};
    size_t part = columns - i < 8 ? columns - i : 8;
    memcpy(v, values + i, part * sizeof *v);
    unsigned bits = 0;
    for (unsigned k = 0; k < 8; k++)
      bits |= (unsigned)!(float_from_bits(float_bits(v[k]) & 0x7fffffff) <= threshold) << k;
    bits &= 0xffu >> (8 - part);
    mask[i / 8] = (uint8_t)bits;
    set += (size_t)__builtin_popcount(bits);
  }
  return set;
}

/* Returns the two largest of four values, as bits. Magnitudes are ordered as integers, with NaN
 * above all. Value k is kept if fewer than two others are larger; of two equal values the first one
 * counts as larger. */
static unsigned two_of_four(const float *v) {
  uint32_t m[4];
  for (int k = 0; k < 4; k++) m[k] = float_bits(v[k]) & 0x7fffffff;
  unsigned b01 = m[1] > m[0], b02 = m[2] > m[0], b03 = m[3] > m[0];
  unsigned b12 = m[2] > m[1], b13 = m[3] > m[1], b23 = m[3] > m[2];
  unsigned keep0 = b01 + b02 + b03 < 2, keep1 = !b01 + b12 + b13 < 2;
  unsigned keep2 = !b02 + !b12 + b23 < 2, keep3 = !b03 + !b13 + !b23 < 2;
  return keep0 | keep1 << 1 | keep2 << 2 | keep3 << 3;
}

size_t sparse_mask_two_of_four(const float *values, size_t columns, uint8_t *mask) {
  size_t i = 0;
  for (; i + 8 <= columns; i += 8)
    mask[i / 8] = (uint8_t)(two_of_four(values + i) | two_of_four(values + i + 4) << 4);
  if (i < columns) mask[i / 8] = (uint8_t)two_of_four(values + i);
  return columns / 2;
}

/* Every value is written to the next output position; only a kept value advances that position. A
 * buffer keeps the writes within `out`. */
enum { RUN = 64 };
#define PACK(type)                                                                                 \
  for (size_t i = 0; i < columns; i += RUN) {                                                      \
    size_t part = columns - i < RUN ? columns - i : RUN, n = 0;                                    \
    type v[RUN], kept[RUN + 1];                                                                    \
    memcpy(v, (const char *)values + i * sizeof(type), part * sizeof(type));                       \
    for (size_t k = 0; k < part; k++) {                                                            \
      kept[n] = v[k];                                                                              \
      n += mask[(i + k) / 8] >> k % 8 & 1;                                                         \
    }                                                                                              \
    memcpy((char *)out + count * sizeof(type), kept, n * sizeof(type));                            \
    count += n;                                                                                    \
  }

size_t sparse_pack(const void *values, size_t width, size_t columns, const uint8_t *mask,
                   void *out) {
  size_t count = 0;
  switch (width) {
  case 1: PACK(uint8_t) break;
  case 2: PACK(uint16_t) break;
  case 4: PACK(uint32_t) break;
  default: PACK(uint64_t) break;
  }
  return count;
}

#define UNPACK(type)                                                                               \
  for (size_t i = 0; i < columns; i += RUN) {                                                      \
    size_t part = columns - i < RUN ? columns - i : RUN, n = 0;                                    \
    size_t left = count < in_count ? in_count - count : 0;                                         \
    type v[RUN], next[RUN + 1] = {0};                                                              \
    memcpy(next, (const char *)in + (in_count - left) * sizeof(type),                              \
           (left < RUN ? left : RUN) * sizeof(type));                                              \
    for (size_t k = 0; k < part; k++) {                                                            \
      unsigned bit = mask[(i + k) / 8] >> k % 8 & 1;                                               \
      v[k] = next[n] & (type) - (type)bit;                                                         \
      n += bit;                                                                                    \
    }                                                                                              \
    memcpy((char *)values + i * sizeof(type), v, part * sizeof(type));                             \
    count += n;                                                                                    \
  }

size_t sparse_unpack(const void *in, size_t in_count, size_t width, size_t columns,
                     const uint8_t *mask, void *values) {
  size_t count = 0;
  switch (width) {
  case 1: UNPACK(uint8_t) break;
  case 2: UNPACK(uint16_t) break;
  case 4: UNPACK(uint32_t) break;
  default: UNPACK(uint64_t) break;
  }
  return count;
}

#define APPLY(type)                                                                                \
  for (size_t i = 0; i < columns; i += 8) {                                                        \
    type v[8] = {0};                                                                               \
    size_t part = columns - i < 8 ? columns - i : 8;                                               \
    memcpy(v, (char *)values + i * sizeof(type), part * sizeof(type));                             \
    const type bits = mask[i / 8];                                                                 \
    for (unsigned k = 0; k < 8; k++) v[k] &= (type) - (type)((bits & (type)(1u << k)) != 0);       \
    memcpy((char *)values + i * sizeof(type), v, part * sizeof(type));                             \
  }

void sparse_apply(void *values, size_t width, size_t columns, const uint8_t *mask) {
  switch (width) {
  case 1: APPLY(uint8_t) break;
  case 2: APPLY(uint16_t) break;
  case 4: APPLY(uint32_t) break;
  default: APPLY(uint64_t) break;
  }
}
