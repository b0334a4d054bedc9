/* Safetensors: u64 length N, N bytes of JSON, then the tensors' bytes without gaps.
 *
 *   {"__metadata__":{"format":"pt"},"w":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]}}
 *
 * The parser accepts exactly this shape; every error names its byte. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/tensors.h"
#include "base/checked.h"
#include "base/json.h"
#include "base/utf8.h"

#define HEADER_MAX UINT64_C(100000000) /* the format's limit */

typedef struct cursor {
  const source *from;
  char *start, *at, *end;
} cursor;

static stow_status refuse(const cursor *c, const char *why) {
  return stow_fail(STOW_ERR_FORMAT, "%s: at byte %zu of the safetensors header: %s", c->from->name,
                   (size_t)(c->at - c->start), why);
}

static void skip_space(cursor *c) {
  while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\r' || *c->at == '\n'))
    c->at++;
}

static bool take(cursor *c, char wanted) {
  skip_space(c);
  if (c->at >= c->end || *c->at != wanted) return false;
  c->at++;
  return true;
}

static bool hex4(const char *at, const char *end, uint32_t *value) {
  *value = 0;
  if (end - at < 4) return false;
  for (int i = 0; i < 4; i++) {
    char c = at[i];
    uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                     : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                     : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                            : 16;
    if (digit == 16) return false;
    *value = *value << 4 | digit;
  }
  return true;
}

/* Decodes the escape at c->at (after the backslash) to `to`. The result is never longer than the
 * escape. */
static stow_status take_escape(cursor *c, char **to) {
  static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
  char letter = c->at < c->end ? *c->at++ : '\0';
  const char *known = letter != '\0' ? strchr(from, letter) : NULL;
  if (known != NULL) return *(*to)++ = into[known - from], STOW_OK;
  uint32_t code, low;
  if (letter != 'u' || !hex4(c->at, c->end, &code))
    return refuse(c, "an escape that JSON does not have");
  c->at += 4;
  if (code >= 0xdc00 && code < 0xe000) return refuse(c, "half of a surrogate pair");
  if (code >= 0xd800 && code < 0xdc00) {
    if (c->end - c->at < 6 || c->at[0] != '\\' || c->at[1] != 'u' ||
        !hex4(c->at + 2, c->end, &low) || low < 0xdc00 || low >= 0xe000)
      return refuse(c, "half of a surrogate pair");
    c->at += 6;
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  }
  *to += utf8_put(*to, code);
  return STOW_OK;
}

/* Parses a text and decodes it in place. */
static stow_status take_text(cursor *c, char **text, size_t *length) {
  if (!take(c, '"')) return refuse(c, "expected a text");
  char *to = c->at;
  *text = c->at;
  for (;;) {
    if (c->at >= c->end) return refuse(c, "unclosed text");
    unsigned char letter = (unsigned char)*c->at;
    if (letter == '"') break;
    if (letter < 0x20) return refuse(c, "a control character in a text");
    if (letter == '\\') {
      c->at++;
      STOW_TRY(take_escape(c, &to));
      continue;
    }
    uint32_t point;
    size_t bytes = utf8_take((unsigned char *)c->at, (size_t)(c->end - c->at), &point);
    if (bytes == 0) return refuse(c, "bytes that are not UTF-8");
    memmove(to, c->at, bytes);
    to += bytes;
    c->at += bytes;
  }
  c->at++;
  *length = (size_t)(to - *text);
  return STOW_OK;
}

static stow_status take_number(cursor *c, uint64_t *value) {
  skip_space(c);
  if (c->at >= c->end || *c->at < '0' || *c->at > '9') return refuse(c, "expected a whole number");
  if (*c->at == '0' && c->at + 1 < c->end && c->at[1] >= '0' && c->at[1] <= '9')
    return refuse(c, "a number with a leading zero");
  for (*value = 0; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
    if (!checked_mul(value, *value, 10) || !checked_add(value, *value, (uint64_t)(*c->at - '0')))
      return refuse(c, "a number exceeds 64 bits");
  if (c->at < c->end && (*c->at == '.' || *c->at == 'e' || *c->at == 'E'))
    return refuse(c, "expected a whole number");
  return STOW_OK;
}

static stow_status take_numbers(cursor *c, uint64_t *values, size_t max, size_t *count) {
  if (!take(c, '[')) return refuse(c, "expected a list of numbers");
  *count = 0;
  if (take(c, ']')) return STOW_OK;
  do {
    if (*count == max) return refuse(c, "a list is too long");
    STOW_TRY(take_number(c, &values[(*count)++]));
  } while (take(c, ','));
  return take(c, ']') ? STOW_OK : refuse(c, "expected ',' or ']'");
}

static stow_status take_type(cursor *c, tensor *one) {
  char *text;
  size_t length;
  STOW_TRY(take_text(c, &text, &length));
  tensor_type stored = tensor_type_of_safetensors(text, length);
  if (stored == TENSOR_NONE) return refuse(c, "unknown type");
  tensors_set_type(one, stored);
  return STOW_OK;
}

static stow_status take_tensor(cursor *c, tensor *one, uint64_t data_at) {
  uint64_t range[2] = {0};
  unsigned seen = 0;
  size_t count;
  if (!take(c, '{')) return refuse(c, "expected a tensor's description");
  do {
    char *key;
    size_t length;
    STOW_TRY(take_text(c, &key, &length));
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    unsigned which = 0;
    while (which < 3 && !(strlen(keys[which]) == length && memcmp(keys[which], key, length) == 0))
      which++;
    if (which == 3) return refuse(c, "unknown key; only dtype, shape and data_offsets are allowed");
    if (seen & 1u << which) return refuse(c, "duplicate key");
    seen |= 1u << which;
    if (!take(c, ':')) return refuse(c, "expected ':'");
    if (which == 0) STOW_TRY(take_type(c, one));
    if (which == 1) {
      STOW_TRY(take_numbers(c, one->shape, TENSOR_DIMS_MAX, &count));
      one->dims = (uint32_t)count;
    }
    if (which == 2) {
      STOW_TRY(take_numbers(c, range, 2, &count));
      if (count != 2 || range[0] > range[1]) return refuse(c, "the offsets are not a range");
    }
  } while (take(c, ','));
  if (!take(c, '}')) return refuse(c, "expected ',' or '}'");
  if (seen != 7) return refuse(c, "dtype, shape or data_offsets is missing");
  STOW_TRY(tensors_count(one, c->from));
  const tensor_type_info *info = tensor_type_get(one->stored);
  if (one->count % info->block != 0) return refuse(c, "a tensor does not fill whole bytes");
  if (!checked_mul(&one->bytes, one->count / info->block, info->bytes) ||
      one->bytes != range[1] - range[0])
    return refuse(c, "a tensor's shape and offsets disagree");
  if (!checked_add(&one->offset, data_at, range[0]))
    return refuse(c, "an offset is past the end of the file");
  return STOW_OK;
}

/* Keeps the object, written again in compact form. */
static stow_status take_metadata(cursor *c, tensors *t) {
  char *text;
  size_t length;
  if (!take(c, '{')) return refuse(c, "__metadata__ is not an object");
  if (take(c, '}')) return STOW_OK;
  buffer copy = BUFFER_BOUNDED(t->max_bytes);
  json j = JSON_COMPACT(&copy);
  stow_status status = STOW_OK;
  json_begin_object(&j);
  do {
    status = take_text(c, &text, &length);
    if (status == STOW_OK && !take(c, ':')) status = refuse(c, "expected ':'");
    if (status != STOW_OK) break;
    json_text_n(&j, text, length);
    buffer_char(&copy, ':');
    j.comma = false;
    status = take_text(c, &text, &length);
    if (status == STOW_OK) json_text_n(&j, text, length);
  } while (status == STOW_OK && take(c, ','));
  json_end_object(&j);
  if (status == STOW_OK && !take(c, '}')) status = refuse(c, "expected ',' or '}'");
  if (status == STOW_OK) status = copy.status;
  if (status == STOW_OK) {
    t->metadata = copy.data;
    t->used_bytes += copy.length;
  } else {
    buffer_free(&copy);
  }
  return status;
}

/* Says how much the list of tensors needs: as much for the rest of the header as for its beginning.
 */
static stow_status refuse_size(const cursor *c, const tensors *t) {
  double share = (double)(c->end - c->start) / (double)(c->at - c->start);
  uint64_t need = (uint64_t)((double)t->used_bytes * share), most = t->max_bytes;
  return stow_fail(
      STOW_ERR_BUDGET,
      "%s: its list of tensors needs about %" PRIu64 " KiB, but the budget has %" PRIu64
      " KiB for it; raise --memory %" PRIu64 " times",
      c->from->name, need >> 10, most >> 10, most > 0 ? (need + need / 8) / most + 1 : need);
}

static stow_status take_all(cursor *c, tensors *t, uint64_t data_at) {
  bool metadata = false;
  if (c->at >= c->end || *c->at != '{') return refuse(c, "the header does not begin with '{'");
  c->at++;
  if (!take(c, '}')) {
    do {
      char *name;
      size_t length;
      STOW_TRY(take_text(c, &name, &length));
      if (!take(c, ':')) return refuse(c, "expected ':'");
      if (length == 12 && memcmp(name, "__metadata__", 12) == 0) {
        if (metadata) return refuse(c, "duplicate key");
        metadata = true;
        STOW_TRY(take_metadata(c, t));
      } else {
        tensor *one = NULL;
        stow_status status = tensors_add(t, c->from, name, length, &one);
        if (status == STOW_ERR_BUDGET) return refuse_size(c, t);
        STOW_TRY(status);
        STOW_TRY(take_tensor(c, one, data_at));
      }
    } while (take(c, ','));
    if (!take(c, '}')) return refuse(c, "expected ',' or '}'");
  }
  skip_space(c);
  return c->at == c->end ? STOW_OK : refuse(c, "text after the end of the header");
}

/* Checks that every byte belongs to a tensor: the tensors do not overlap, so their sizes must add
 * up to the buffer. */
static stow_status check_full(const tensors *t, const source *from, uint64_t data_at) {
  uint64_t sum = data_at;
  for (size_t i = 0; i < t->count; i++) sum += t->list[i].bytes;
  if (sum == from->bytes) return STOW_OK;
  return stow_fail(STOW_ERR_FORMAT,
                   "%s: the tensors take %" PRIu64 " bytes, but the file has %" PRIu64
                   ": it has unused bytes or is truncated",
                   from->name, sum, from->bytes);
}

stow_status safetensors_read(tensors *t, source *from, uint64_t max_bytes) {
  *t = (tensors){.max_bytes = max_bytes / 2};
  uint8_t start[8];
  if (from->bytes < 8) return stow_fail(STOW_ERR_FORMAT, "%s: too short for a header", from->name);
  STOW_TRY(source_read(from, 0, start, 8));
  uint64_t length = source_u64(start);
  if (length > HEADER_MAX || length > from->bytes - 8)
    return stow_fail(STOW_ERR_FORMAT,
                     "%s: the safetensors header has %" PRIu64
                     " bytes; the format allows 100000000 and the file has %" PRIu64,
                     from->name, length, from->bytes - 8);
  uint64_t room = max_bytes / 2;
  if (length > room)
    return stow_fail(STOW_ERR_BUDGET,
                     "%s: the header needs %" PRIu64 " KiB, but the budget has %" PRIu64
                     " KiB for it; raise --memory %" PRIu64 " times",
                     from->name, length >> 10, room >> 10, room > 0 ? length / room + 1 : length);
  char *text = malloc((size_t)length + 1);
  if (text == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", from->name);
  cursor c = {from, text, text, text + length};
  text[length] = '\0';
  stow_status status = source_read(from, 8, text, (size_t)length);
  if (status == STOW_OK) status = take_all(&c, t, 8 + length);
  free(text);
  if (status == STOW_OK) status = tensors_check(t, from);
  if (status == STOW_OK) status = check_full(t, from, 8 + length);
  if (status != STOW_OK) tensors_free(t);
  return status;
}
