/* Crc32 by folding: 64 bytes at a time are carried forward by carry-less products with powers of x
 * modulo the polynomial (Gopal and others, "Fast CRC computation using PCLMULQDQ", Intel 2009),
 * then reduced. What does not fill 64 bytes is zlib's. */
#include "formats/crc32.h"

#include <limits.h>
#include <zlib.h>

static uint32_t plain(uint32_t crc, const uint8_t *at, size_t count) {
  for (size_t part; count > 0; at += part, count -= part) {
    part = count < UINT_MAX / 2 ? count : UINT_MAX / 2;
    crc = (uint32_t)crc32(crc, at, (uInt)part);
  }
  return crc;
}

#if defined(__x86_64__)
#include <immintrin.h>

#include "base/cpu.h"

#define FOLDING __attribute__((target("pclmul,sse4.1")))

/* `x` carried forward to `next` by the two powers in `k`. */
FOLDING static inline __m128i fold(__m128i x, __m128i k, __m128i next) {
  __m128i low = _mm_clmulepi64_si128(x, k, 0x00), high = _mm_clmulepi64_si128(x, k, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* `count` is a multiple of 16 and at least 64. */
FOLDING static uint32_t folded(uint32_t crc, const uint8_t *at, size_t count) {
  /* x^(512+64), x^512; x^(128+64), x^128; x^64; the polynomial and its reciprocal: bits reversed.
   */
  const __m128i by512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
  const __m128i by128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
  const __m128i by64 = _mm_set_epi64x(0, 0x163cd6124);
  const __m128i poly = _mm_set_epi64x(0x1f7011641, 0x1db710641);
  const __m128i mask = _mm_setr_epi32(~0, 0, ~0, 0);
  const __m128i *in = (const __m128i *)(const void *)at;
  __m128i a = _mm_xor_si128(_mm_loadu_si128(in), _mm_cvtsi32_si128((int)crc));
  __m128i b = _mm_loadu_si128(in + 1), c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
  for (in += 4, count -= 64; count >= 64; in += 4, count -= 64) {
    a = fold(a, by512, _mm_loadu_si128(in));
    b = fold(b, by512, _mm_loadu_si128(in + 1));
    c = fold(c, by512, _mm_loadu_si128(in + 2));
    d = fold(d, by512, _mm_loadu_si128(in + 3));
  }
  a = fold(fold(fold(a, by128, b), by128, c), by128, d);
  for (; count >= 16; in++, count -= 16) a = fold(a, by128, _mm_loadu_si128(in));
  /* 128 bits to 64, to 32 (Barrett). */
  __m128i x = _mm_xor_si128(_mm_clmulepi64_si128(a, by128, 0x10), _mm_srli_si128(a, 8));
  x = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(x, mask), by64, 0x00), _mm_srli_si128(x, 4));
  __m128i t = _mm_clmulepi64_si128(_mm_and_si128(x, mask), poly, 0x10);
  t = _mm_clmulepi64_si128(_mm_and_si128(t, mask), poly, 0x00);
  return (uint32_t)_mm_extract_epi32(_mm_xor_si128(x, t), 1);
}

uint32_t crc32_add(uint32_t crc, const void *bytes, size_t count) {
  const uint8_t *at = bytes;
  if (count >= 64 && cpu_has(CPU_PCLMUL) && cpu_has(CPU_SSE41)) {
    size_t whole = count & ~(size_t)15;
    crc = ~folded(~crc, at, whole);
    at += whole;
    count -= whole;
  }
  return count > 0 ? plain(crc, at, count) : crc;
}
#else
uint32_t crc32_add(uint32_t crc, const void *bytes, size_t count) {
  return count > 0 ? plain(crc, bytes, count) : crc;
}
#endif
