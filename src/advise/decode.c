/* Decode: one pass over the bytes. What is neither UTF-8 nor UTF-16 is passed on as it is, except
 * for the no-break space of Windows' own encodings. A web page's entities become characters. */
#include "advise/decode.h"

#include <string.h>

#define LOOKED   512  /* bytes that show whether a text without a mark is UTF-16 */
#define NO_BREAK 0xa0 /* in Latin-1, in Windows' encodings and in Unicode */
#define BOM      0xfeff
#define REPLACED 0xfffd

static bool is_mark(scan_text t, unsigned char first, unsigned char second) {
  return t.end - t.at >= 2 && (unsigned char)t.at[0] == first && (unsigned char)t.at[1] == second;
}

/* Returns whether the byte is printable ASCII or white space, as most of a log is. */
static bool is_plain(unsigned char c) {
  return (c >= ' ' && c < 0x7f) || c == '\n' || c == '\r' || c == '\t';
}

/* Returns whether at least half of the pairs are an ASCII character and a zero byte, which is
 * second (or first if `big`), and none is two zero bytes, as in tables of a binary file. */
static bool has_pairs(scan_text t, bool big) {
  size_t count = (size_t)(t.end - t.at) < LOOKED ? (size_t)(t.end - t.at) : LOOKED, pairs = 0;
  for (size_t i = 0; i + 1 < count; i += 2) {
    unsigned char zero = (unsigned char)t.at[i + !big], other = (unsigned char)t.at[i + big];
    if (zero == 0 && other == 0) return false;
    pairs += zero == 0 && is_plain(other);
  }
  return count >= 4 && pairs * 4 >= count;
}

bool decode_is_utf16(scan_text raw) {
  return is_mark(raw, 0xff, 0xfe) || is_mark(raw, 0xfe, 0xff) || has_pairs(raw, false) ||
         has_pairs(raw, true);
}

static bool is_space(uint32_t c) {
  return c == NO_BREAK || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

/* Returns whether nothing is shown for it: soft hyphens, joiners, marks of direction and of byte
 * order. */
static bool is_invisible(uint32_t c) {
  return c == 0 || c == 0xad || (c >= 0x200b && c <= 0x200f) || (c >= 0x202a && c <= 0x202e) ||
         (c >= 0x2060 && c <= 0x2064) || c == BOM;
}

static void append(buffer *out, uint32_t c) {
  if (is_space(c)) c = ' ';
  if (c == 0x85 || c == 0x2028 || c == 0x2029) c = '\n';
  if (is_invisible(c)) return;
  if (c < 0x80) {
    buffer_char(out, (char)c);
    return;
  }
  if (c >= 0x10000) {
    buffer_char(out, (char)(0xf0 | c >> 18));
    buffer_char(out, (char)(0x80 | (c >> 12 & 0x3f)));
  } else if (c >= 0x800) {
    buffer_char(out, (char)(0xe0 | c >> 12));
  }
  if (c >= 0x800)
    buffer_char(out, (char)(0x80 | (c >> 6 & 0x3f)));
  else
    buffer_char(out, (char)(0xc0 | c >> 6));
  buffer_char(out, (char)(0x80 | (c & 0x3f)));
}

static void append_utf16(buffer *out, scan_text t) {
  bool big = is_mark(t, 0xfe, 0xff) || (!is_mark(t, 0xff, 0xfe) && !has_pairs(t, false));
  uint32_t high = 0; /* the first half of a pair of surrogates */
  for (; t.end - t.at >= 2; t.at += 2) {
    uint32_t c = (uint32_t)(unsigned char)t.at[!big] << 8 | (unsigned char)t.at[big];
    bool low = c >= 0xdc00 && c < 0xe000;
    if (high != 0 && low)
      c = 0x10000 + ((high - 0xd800) << 10) + (c - 0xdc00);
    else if (high != 0 || low)
      append(out, REPLACED);
    high = c >= 0xd800 && c < 0xdc00 ? c : 0;
    if (high == 0 && !(c >= 0xdc00 && c < 0xe000)) append(out, c);
  }
}

/* Returns the length of the UTF-8 character at `at`, 0 if there is none; *c receives it. */
static size_t character_at(scan_text t, uint32_t *c) {
  unsigned char first = (unsigned char)*t.at;
  size_t length = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (length == 0 || (size_t)(t.end - t.at) < length) return 0;
  *c = first & (0x7fu >> length);
  for (size_t i = 1; i < length; i++) {
    unsigned char next = (unsigned char)t.at[i];
    if ((next & 0xc0) != 0x80) return 0;
    *c = *c << 6 | (next & 0x3f);
  }
  return length;
}

/* Characters that the source of a web page writes as names or numbers. */
static const struct {
  const char *name;
  char character;
} entities[] = {{"&quot;", '"'},  {"&#34;", '"'},   {"&#x22;", '"'}, {"&lt;", '<'},
                {"&#60;", '<'},   {"&gt;", '>'},    {"&#62;", '>'},  {"&#39;", '\''},
                {"&#x27;", '\''}, {"&apos;", '\''}, {"&nbsp;", ' '}, {"&amp;", '&'}};

/* Returns the length of the entity at `at`, 0 if there is none; *c receives its character. */
static size_t entity_at(scan_text t, const char *at, char *c) {
  if (*at != '&') return 0;
  for (size_t i = 0; i < sizeof entities / sizeof *entities; i++)
    if (scan_starts((scan_text){at, t.end}, entities[i].name)) {
      *c = entities[i].character;
      return strlen(entities[i].name);
    }
  return 0;
}

static void append_utf8(buffer *out, scan_text t) {
  while (t.at < t.end) {
    char c = '\0';
    size_t named = entity_at(t, t.at, &c);
    if (named > 0) {
      buffer_char(out, c);
      t.at += named;
      continue;
    }
    const char *plain = t.at++;
    if ((unsigned char)*plain >= 0x80) t.at = plain;
    while (t.at < t.end && (unsigned char)*t.at < 0x80 && *t.at != '&') t.at++;
    if (t.at > plain) buffer_append(out, plain, (size_t)(t.at - plain));
    if (t.at >= t.end) return;
    if (*t.at == '&') continue;
    uint32_t wide = 0;
    size_t length = character_at(t, &wide);
    if (length > 0)
      append(out, wide);
    else
      buffer_char(out, (unsigned char)*t.at == NO_BREAK ? ' ' : *t.at);
    t.at += length > 0 ? length : 1;
  }
}

bool decode_text(buffer *out, scan_text raw) {
  bool wide = decode_is_utf16(raw), other = wide;
  char c;
  for (const char *p = raw.at; p < raw.end && !other; p++)
    other = (unsigned char)*p >= 0x80 || entity_at(raw, p, &c) > 0;
  if (!other) return false;
  if (wide)
    append_utf16(out, raw);
  else
    append_utf8(out, raw);
  return out->status == STOW_OK && out->data != NULL;
}
