/* Utf8: decodes UTF-8 one character at a time and accepts only valid ones (RFC 3629: the shortest
 * form, no surrogates, up to U+10FFFF). Used before text goes to readers that reject anything else.
 * Encodes a character. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Returns the length in bytes of the character at `at` and stores its code point; 0 if it is
 * invalid or longer than `left`.
 */
static inline size_t utf8_take(const unsigned char *at, size_t left, uint32_t *point) {
  if (left == 0) return 0;
  size_t count = at[0] < 0x80 ? 1 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
  if ((at[0] >= 0x80 && at[0] < 0xc2) || at[0] > 0xf4 || count > left) return 0;
  *point = count == 1 ? at[0] : at[0] & (0x7fu >> count);
  for (size_t i = 1; i < count; i++) {
    if ((at[i] & 0xc0) != 0x80) return 0;
    *point = *point << 6 | (at[i] & 0x3fu);
  }
  bool longer = (count == 3 && *point < 0x800) || (count == 4 && *point < 0x10000);
  return longer || *point > 0x10ffff || (*point >= 0xd800 && *point < 0xe000) ? 0 : count;
}

/* Writes a code point up to U+10FFFF. Returns its length in bytes. */
static inline size_t utf8_put(void *to, uint32_t point) {
  static const uint8_t first[] = {0, 0, 0xc0, 0xe0, 0xf0};
  uint8_t *at = to;
  size_t count = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
  for (size_t i = count - 1; i > 0; i--, point >>= 6) at[i] = (uint8_t)(0x80 | (point & 0x3f));
  at[0] = (uint8_t)(first[count] | point);
  return count;
}

/* Returns how many of the first `length` bytes of `text` are complete characters. */
static inline size_t utf8_prefix(const char *text, size_t length) {
  size_t at = 0, step;
  uint32_t point;
  /* Most texts are ASCII. */
  for (uint64_t word; length - at >= sizeof word; at += sizeof word) {
    memcpy(&word, text + at, sizeof word);
    if ((word & UINT64_C(0x8080808080808080)) != 0) break;
  }
  while (at < length &&
         (step = utf8_take((const unsigned char *)text + at, length - at, &point)) > 0)
    at += step;
  return at;
}

#endif
