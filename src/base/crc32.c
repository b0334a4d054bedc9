/* CRC-32 (the polynomial of zip and zlib), without a library.
 *
 * Large inputs on x86-64: each round folds 64 bytes by carry-less multiplication with powers of x
 * modulo the polynomial (Gopal and others, "Fast CRC computation using PCLMULQDQ", Intel 2009).
 * Everything else: eight bytes per round with tables ("slicing by eight"), 8 KiB built at the first
 * call. */
#include "base/crc32.h"

#include <pthread.h>

#define POLYNOMIAL UINT32_C(0xedb88320) /* bits reversed */

static uint32_t table[8][256];
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static void table_build(void) {
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
    table[0][i] = crc;
  }
  for (uint32_t i = 0; i < 256; i++)
    for (int k = 1; k < 8; k++)
      table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 0xff];
}

static uint32_t load32(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint32_t plain(uint32_t crc, const uint8_t *at, size_t count) {
  pthread_once(&table_once, table_build);
  crc = ~crc;
  for (; count >= 8; at += 8, count -= 8) {
    uint32_t low = crc ^ load32(at), high = load32(at + 4);
    crc = table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^ table[5][low >> 16 & 0xff] ^
          table[4][low >> 24] ^ table[3][high & 0xff] ^ table[2][high >> 8 & 0xff] ^
          table[1][high >> 16 & 0xff] ^ table[0][high >> 24];
  }
  for (; count > 0; at++, count--) crc = crc >> 8 ^ table[0][(crc ^ *at) & 0xff];
  return ~crc;
}

#if defined(__x86_64__)
#include <immintrin.h>

#include "base/cpu.h"

#define FOLDING __attribute__((target("pclmul,sse4.1")))

/* Carries `x` forward to `next` by the two powers in `k`. */
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
