/* SHA-256 (FIPS 180-4) and base64 (RFC 4648). */
#include "report/digest.h"

#include <string.h>

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int by) {
  return x >> by | x << (32 - by);
}

static uint32_t big_endian(const uint8_t *b) {
  return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static void sha256_block(uint32_t state[8], const uint8_t block[64]) {
  uint32_t w[64], s[8];
  for (int i = 0; i < 16; i++) w[i] = big_endian(block + 4 * i);
  for (int i = 16; i < 64; i++) {
    uint32_t a = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
    uint32_t b = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + a + w[i - 7] + b;
  }
  memcpy(s, state, sizeof s);
  for (int i = 0; i < 64; i++) {
    uint32_t e = rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25);
    uint32_t one = s[7] + e + ((s[4] & s[5]) ^ (~s[4] & s[6])) + round_constants[i] + w[i];
    uint32_t a = rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22);
    uint32_t two = a + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
    memmove(s + 1, s, 7 * sizeof *s);
    s[4] += one;
    s[0] = one + two;
  }
  for (int i = 0; i < 8; i++) state[i] += s[i];
}

void digest_sha256(uint8_t digest[DIGEST_BYTES], const void *bytes, size_t count) {
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const uint8_t *at = bytes;
  size_t left = count;
  for (; left >= 64; left -= 64, at += 64) sha256_block(state, at);
  uint8_t tail[128] = {0};
  if (left > 0) memcpy(tail, at, left);
  tail[left] = 0x80;
  size_t padded = left < 56 ? 64 : 128;
  uint64_t bits = (uint64_t)count * 8;
  for (int i = 0; i < 8; i++) tail[padded - 1 - (size_t)i] = (uint8_t)(bits >> (8 * i));
  for (size_t i = 0; i < padded; i += 64) sha256_block(state, tail + i);
  for (int i = 0; i < DIGEST_BYTES; i++) digest[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
}

stow_status digest_base64(buffer *out, const void *bytes, size_t count) {
  static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const uint8_t *at = bytes;
  char *to = buffer_extend(out, (count + 2) / 3 * 4);
  if (to == NULL) return out->status;
  for (; count >= 3; count -= 3, at += 3) {
    uint32_t v = (uint32_t)at[0] << 16 | (uint32_t)at[1] << 8 | at[2];
    for (int i = 3; i >= 0; i--) *to++ = alphabet[v >> (6 * i) & 63];
  }
  if (count > 0) {
    uint32_t v = (uint32_t)at[0] << 16 | (count > 1 ? (uint32_t)at[1] << 8 : 0);
    *to++ = alphabet[v >> 18];
    *to++ = alphabet[v >> 12 & 63];
    *to++ = count > 1 ? alphabet[v >> 6 & 63] : '=';
    *to++ = '=';
  }
  return STOW_OK;
}
