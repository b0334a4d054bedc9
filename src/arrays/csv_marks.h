/* Csv marks: finds which of 64 bytes end a field, end a line, or make their row unusual.
 *
 * csv_block.inc includes it once per instruction set. */
#ifndef ARRAYS_CSV_MARKS_H
#define ARRAYS_CSV_MARKS_H

#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* One bit for each of 64 bytes that equals `letter`. */
#if defined(__AVX512BW__)
static inline uint64_t marks_of(const char *at, char letter) {
  return _mm512_cmpeq_epi8_mask(_mm512_loadu_si512(at), _mm512_set1_epi8(letter));
}
#elif defined(__AVX2__)
static inline uint64_t marks_of(const char *at, char letter) {
  __m256i like = _mm256_set1_epi8(letter);
  uint32_t low =
      (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_loadu_si256((const void *)at), like));
  uint32_t high = (uint32_t)_mm256_movemask_epi8(
      _mm256_cmpeq_epi8(_mm256_loadu_si256((const void *)(at + 32)), like));
  return (uint64_t)high << 32 | low;
}
#elif defined(__SSE2__)
static inline uint64_t marks_of(const char *at, char letter) {
  uint64_t all = 0;
  for (int i = 0; i < 4; i++) {
    __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(at + 16 * i));
    all |= (uint64_t)(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(v, _mm_set1_epi8(letter)))
           << (16 * i);
  }
  return all;
}
#elif defined(__aarch64__)
static inline uint64_t marks_of(const char *at, char letter) {
  static const uint8_t weights[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  uint8x16_t weight = vld1q_u8(weights), like = vdupq_n_u8((uint8_t)letter), found[4];
  for (int i = 0; i < 4; i++)
    found[i] = vandq_u8(vceqq_u8(vld1q_u8((const uint8_t *)at + 16 * i), like), weight);
  uint8x16_t both = vpaddq_u8(vpaddq_u8(found[0], found[1]), vpaddq_u8(found[2], found[3]));
  return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(both, both)), 0);
}
#else
static inline uint64_t marks_of(const char *at, char letter) {
  uint64_t all = 0;
  for (int i = 0; i < 64; i++) all |= (uint64_t)(at[i] == letter) << i;
  return all;
}
#endif

/* Returns the position of the lowest set bit, 64 if none is set. */
static inline unsigned marks_first(uint64_t bits) {
  return bits != 0 ? (unsigned)__builtin_ctzll(bits) : 64;
}

#endif
