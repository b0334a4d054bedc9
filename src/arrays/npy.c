/* npy: parses the one dict literal that NumPy writes, and writes it. */
#include "arrays/npy.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

static const char magic[6] = "\x93NUMPY";

/* A position in the header text. Every error names the file and the offset. */
typedef struct cursor {
  const char *start, *at, *end; /* the file's first bytes; the text ends at `end` */
  const char *name;
} cursor;

static stow_status refuse(const cursor *c, const char *why) {
  return stow_fail(STOW_ERR_FORMAT, "%s: at byte %zu of the npy header: %s", c->name,
                   (size_t)(c->at - c->start), why);
}

stow_status npy_header_bytes(uint64_t *bytes, const void *start, size_t count, const char *name) {
  const unsigned char *at = start;
  if (count < sizeof magic || memcmp(at, magic, sizeof magic) != 0)
    return stow_fail(STOW_ERR_FORMAT, "%s: not an npy file (it does not begin with \\x93NUMPY)",
                     name);
  if (count < 10)
    return stow_fail(STOW_ERR_FORMAT, "%s: the npy file ends inside its header, at byte %zu", name,
                     count);
  unsigned major = at[6], minor = at[7];
  if (major < 1 || major > 3 || minor != 0)
    return stow_fail(STOW_ERR_FORMAT,
                     "%s: npy version %u.%u is not supported (1.0, 2.0 and 3.0 are)", name, major,
                     minor);
  uint64_t length = at[8] | (uint64_t)at[9] << 8, prefix = 10;
  if (major > 1) {
    if (count < 12)
      return stow_fail(STOW_ERR_FORMAT, "%s: the npy file ends inside its header, at byte %zu",
                       name, count);
    length |= (uint64_t)at[10] << 16 | (uint64_t)at[11] << 24;
    prefix = 12;
  }
  if (length > NPY_HEADER_MAX)
    return stow_fail(STOW_ERR_FORMAT, "%s: npy header of %" PRIu64 " bytes; at most %d are allowed",
                     name, length, NPY_HEADER_MAX);
  *bytes = prefix + length;
  return STOW_OK;
}

/* ---- the dict literal ---- */

static void skip_space(cursor *c) {
  while (c->at < c->end && isspace((unsigned char)*c->at)) c->at++;
}

static bool take(cursor *c, char wanted) {
  skip_space(c);
  if (c->at == c->end || *c->at != wanted) return false;
  c->at++;
  return true;
}

static bool take_word(cursor *c, const char *word) {
  skip_space(c);
  size_t length = strlen(word);
  if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0) return false;
  c->at += length;
  return true;
}

/* Parses a quoted text without escapes: NumPy never writes escapes here. */
static stow_status take_text(cursor *c, const char **text, size_t *length) {
  skip_space(c);
  if (c->end - c->at > 1 && *c->at == 'u' && (c->at[1] == '\'' || c->at[1] == '"'))
    c->at++; /* Python 2 prefix of a Unicode string */
  if (c->at == c->end || (*c->at != '\'' && *c->at != '"'))
    return refuse(c, "expected a quoted text");
  char quote = *c->at++;
  *text = c->at;
  while (c->at < c->end && *c->at != quote && *c->at != '\\') c->at++;
  if (c->at == c->end || *c->at != quote) return refuse(c, "unclosed quote");
  *length = (size_t)(c->at++ - *text);
  return STOW_OK;
}

static stow_status take_dimension(cursor *c, uint64_t *value) {
  skip_space(c);
  if (c->at < c->end && *c->at == '-') return refuse(c, "a negative dimension");
  if (c->at == c->end || !isdigit((unsigned char)*c->at)) return refuse(c, "expected a dimension");
  *value = 0;
  for (; c->at < c->end && isdigit((unsigned char)*c->at); c->at++)
    if (!checked_mul(value, *value, 10) || !checked_add(value, *value, (uint64_t)(*c->at - '0')))
      return refuse(c, "a dimension past 2^64 - 1");
  if (*value > INT64_MAX) return refuse(c, "a dimension past 2^63 - 1");
  take(c, 'L'); /* Python 2 suffix of a long integer */
  return STOW_OK;
}

static stow_status take_shape(cursor *c, npy_header *h) {
  if (!take(c, '(')) return refuse(c, "the shape is not a tuple");
  bool comma = true;
  for (h->dims = 0; !take(c, ')');) {
    if (!comma) return refuse(c, "expected ',' or ')' in the shape");
    if (h->dims == NPY_DIMS_MAX) return refuse(c, "more than 64 dimensions");
    STOW_TRY(take_dimension(c, &h->shape[h->dims++]));
    comma = take(c, ',');
  }
  if (h->dims == 1 && !comma) return refuse(c, "the shape is a number, not a tuple");
  return STOW_OK;
}

static dtype number_type(char kind, uint64_t width) {
  switch (kind) {
  case 'b': return width == 1 ? DTYPE_BOOL : DTYPE_NONE;
  case 'i':
    return width == 1   ? DTYPE_I8
           : width == 2 ? DTYPE_I16
           : width == 4 ? DTYPE_I32
           : width == 8 ? DTYPE_I64
                        : DTYPE_NONE;
  case 'u':
    return width == 1   ? DTYPE_U8
           : width == 2 ? DTYPE_U16
           : width == 4 ? DTYPE_U32
           : width == 8 ? DTYPE_U64
                        : DTYPE_NONE;
  case 'f':
    return width == 2 ? DTYPE_F16 : width == 4 ? DTYPE_F32 : width == 8 ? DTYPE_F64 : DTYPE_NONE;
  }
  return DTYPE_NONE;
}

/* Maps a type name or code that other writers use ("float32", "d") to NumPy's descr; NULL if
 * unknown. */
static const char *named_type(const char *text, size_t length) {
  static const struct {
    const char *name, *code, *descr;
  } types[] = {
      {"bool", "?", "b1"},      {"int8", "b", "i1"},        {"uint8", "B", "u1"},
      {"int16", "h", "i2"},     {"uint16", "H", "u2"},      {"int32", "i", "i4"},
      {"uint32", "I", "u4"},    {"int64", "q", "i8"},       {"uint64", "Q", "u8"},
      {"float16", "e", "f2"},   {"float32", "f", "f4"},     {"float64", "d", "f8"},
      {"complex64", "F", "c8"}, {"complex128", "D", "c16"},
  };
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if ((strlen(types[i].name) == length && memcmp(types[i].name, text, length) == 0) ||
        (length == 1 && types[i].code[0] == text[0]))
      return types[i].descr;
  return NULL;
}

/* Parses "<f4", "|S10", "<U3", "<M8[ns]", "|V2": byte order, kind, width, and a unit for times.
 * NumPy always writes the order, but also accepts a type without it, in the machine's order. */
static stow_status read_descr(cursor *c, npy_header *h, const char *text, size_t length) {
  bool ordered = length > 0 && text[0] != '\0' && strchr("<>|=", text[0]) != NULL;
  const char *bare = text + ordered;
  size_t bare_length = length - ordered;
  const char *named = named_type(bare, bare_length);
  if (named != NULL) bare = named, bare_length = strlen(named);
  if (bare_length == 0 || bare_length > 60) return refuse(c, "unknown type");
  char order = ordered ? text[0] : '=';
  if (order == '=' || order == '|') order = strchr("SaVO", bare[0]) != NULL ? '|' : '<';
  length = (size_t)snprintf(h->descr, sizeof h->descr, "%c%.*s", order, (int)bare_length, bare);
  if (length != bare_length + 1) return refuse(c, "a NUL byte in the type");
  text = h->descr;
  char kind = text[1];
  if (kind == 'O')
    return stow_fail(
        STOW_ERR_FORMAT,
        "%s: the array holds Python objects (a pickle, which could run code); save it again with a "
        "numeric type",
        c->name);
  if (strchr("biufcSUVmMa", kind) == NULL || kind == '\0') return refuse(c, "unknown kind of type");
  uint64_t width = 0;
  size_t i = 2;
  for (; i < length && isdigit((unsigned char)text[i]); i++) {
    if (width > INT32_MAX) return refuse(c, "the type is wider than 2^31 bytes");
    width = width * 10 + (uint64_t)(text[i] - '0');
  }
  if (i == 2) return refuse(c, "the type has no width");
  bool unit =
      (kind == 'm' || kind == 'M') && i < length && text[i] == '[' && text[length - 1] == ']';
  if (i != length && !unit) return refuse(c, "text after the type");
  h->item_bytes = kind == 'U' ? width * 4 : width;
  h->type = number_type(kind, width);
  bool odd_width = (kind == 'b' || kind == 'i' || kind == 'u') && h->type == DTYPE_NONE;
  bool odd_float = kind == 'f' && h->type == DTYPE_NONE && width != 16 && width != 12;
  bool odd_complex = kind == 'c' && width != 8 && width != 16 && width != 24 && width != 32;
  bool odd_time = (kind == 'm' || kind == 'M') && width != 8;
  if (odd_width || odd_float || odd_complex || odd_time) return refuse(c, "unknown type");
  h->big_endian = text[0] == '>' && h->item_bytes > 1;
  return STOW_OK;
}

/* Reads the descr. A structured type is a list of ('name', 'descr'[, shape]), nested. Even its size
 * depends on all of NumPy's layout rules, so it is rejected with the reason. */
static stow_status take_descr(cursor *c, npy_header *h) {
  skip_space(c);
  if (c->at < c->end && (*c->at == '[' || *c->at == '('))
    return stow_fail(STOW_ERR_FORMAT,
                     "%s: a structured array (several named fields in one) cannot be read; save "
                     "each field as an array of its own",
                     c->name);
  const char *text;
  size_t length;
  STOW_TRY(take_text(c, &text, &length));
  return read_descr(c, h, text, length);
}

static stow_status take_entry(cursor *c, npy_header *h, unsigned *seen) {
  const char *key;
  size_t length;
  STOW_TRY(take_text(c, &key, &length));
  static const char *const keys[] = {"descr", "fortran_order", "shape"};
  unsigned which = 0;
  while (which < 3 && !(strlen(keys[which]) == length && memcmp(keys[which], key, length) == 0))
    which++;
  if (which == 3) return refuse(c, "unknown key; only descr, fortran_order and shape are allowed");
  if (*seen & 1u << which) return refuse(c, "duplicate key");
  *seen |= 1u << which;
  if (!take(c, ':')) return refuse(c, "expected ':'");
  if (which == 0) return take_descr(c, h);
  if (which == 2) return take_shape(c, h);
  h->fortran_order = take_word(c, "True");
  if (!h->fortran_order && !take_word(c, "False"))
    return refuse(c, "fortran_order is neither True nor False");
  return STOW_OK;
}

static stow_status take_dict(cursor *c, npy_header *h) {
  unsigned seen = 0;
  if (!take(c, '{')) return refuse(c, "the header is not a dict");
  for (bool comma = true; !take(c, '}'); comma = take(c, ',')) {
    if (!comma) return refuse(c, "expected ',' or '}'");
    STOW_TRY(take_entry(c, h, &seen));
  }
  if (seen != 7) return refuse(c, "descr, fortran_order or shape is missing");
  skip_space(c);
  return c->at == c->end ? STOW_OK : refuse(c, "text after the dict");
}

stow_status npy_read_header(npy_header *header, const void *start, size_t count,
                            uint64_t file_bytes, const char *name) {
  uint64_t bytes;
  STOW_TRY(npy_header_bytes(&bytes, start, count, name));
  if (bytes > count || bytes > file_bytes)
    return stow_fail(STOW_ERR_FORMAT,
                     "%s: the npy file ends inside its header of %" PRIu64 " bytes", name, bytes);
  *header = (npy_header){.data_offset = bytes};
  unsigned major = ((const unsigned char *)start)[6];
  cursor c = {start, (const char *)start + (major > 1 ? 12 : 10), (const char *)start + bytes,
              name};
  STOW_TRY(take_dict(&c, header));

  /* A zero makes the array empty, but NumPy requires that the other dimensions do not overflow
   * either. */
  uint64_t elements = 1;
  header->count = 1;
  for (uint32_t i = 0; i < header->dims; i++) {
    header->count *= header->shape[i]; /* correct if `elements` below does not overflow */
    if (header->shape[i] != 0 && !checked_mul(&elements, elements, header->shape[i]))
      return refuse(&c, "the number of elements exceeds 64 bits");
  }
  uint64_t total;
  if (!checked_mul(&total, elements, header->item_bytes == 0 ? 1 : header->item_bytes) ||
      total > INT64_MAX)
    return refuse(&c, "the number of bytes exceeds 63 bits");
  header->data_bytes = header->count * header->item_bytes;
  if (file_bytes != UINT64_MAX && header->data_bytes > file_bytes - bytes)
    return stow_fail(STOW_ERR_FORMAT,
                     "%s: the header declares %" PRIu64
                     " bytes of values, but the file has %" PRIu64
                     " (truncated? copy or write it again)",
                     name, header->data_bytes, file_bytes - bytes);
  if (header->item_bytes == 0 && header->count > (UINT64_C(1) << 32))
    return refuse(&c, "more than 2^32 values of zero bytes");
  return STOW_OK;
}

/* ---- writing ---- */

const char *npy_descr(dtype type) {
  static const char *const names[DTYPE_COUNT] = {
      [DTYPE_BOOL] = "|b1", [DTYPE_I8] = "|i1",  [DTYPE_U8] = "|u1",  [DTYPE_I16] = "<i2",
      [DTYPE_U16] = "<u2",  [DTYPE_I32] = "<i4", [DTYPE_U32] = "<u4", [DTYPE_I64] = "<i8",
      [DTYPE_U64] = "<u8",  [DTYPE_F16] = "<f2", [DTYPE_F32] = "<f4", [DTYPE_F64] = "<f8"};
  return type > DTYPE_NONE && type < DTYPE_COUNT ? names[type] : NULL;
}

stow_status npy_write_header(buffer *out, dtype type, bool fortran_order, const uint64_t *shape,
                             uint32_t dims) {
  const char *descr = npy_descr(type);
  if (descr == NULL)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "npy files cannot hold %s; use safetensors or another type", dtype_name(type));
  return npy_write_header_as(out, descr, fortran_order, shape, dims);
}

stow_status npy_write_header_as(buffer *out, const char *descr, bool fortran_order,
                                const uint64_t *shape, uint32_t dims) {
  if (descr == NULL)
    return stow_fail(STOW_ERR_UNSUPPORTED, "npy_write_header_as: a type without a name in npy");
  buffer text = BUFFER_INIT;
  buffer_printf(&text, "{'descr': '%s', 'fortran_order': %s, 'shape': (", descr,
                fortran_order ? "True" : "False");
  for (uint32_t i = 0; i < dims; i++)
    buffer_printf(&text, "%s%" PRIu64, i > 0 ? ", " : "", shape[i]);
  buffer_text(&text, dims == 1 ? ",), }" : "), }");
  /* NumPy pads the first dimension to 21 digits so that it can grow in place. */
  if (dims > 0) {
    char digits[24];
    int used = snprintf(digits, sizeof digits, "%" PRIu64, shape[fortran_order ? dims - 1 : 0]);
    for (int i = used; i < 21; i++) buffer_char(&text, ' ');
  }
  size_t prefix = text.length + 1 + 64 > UINT16_MAX ? 12 : 10;
  size_t pad = 64 - (prefix + text.length + 1) % 64;
  for (size_t i = 0; i < pad; i++) buffer_char(&text, ' ');
  buffer_char(&text, '\n');
  if (text.status == STOW_OK) {
    unsigned char head[12] = {0x93, 'N', 'U', 'M', 'P', 'Y', prefix == 12 ? 2 : 1, 0};
    for (size_t i = 0; i < prefix - 8; i++) head[8 + i] = (unsigned char)(text.length >> (8 * i));
    buffer_append(out, head, prefix);
    buffer_append(out, text.data, text.length);
  }
  stow_status status = text.status != STOW_OK ? text.status : out->status;
  buffer_free(&text);
  return status;
}

const char *npy_other(const void *start, size_t count) {
  static const char key[] = "'descr':";
  const char *text = start, *end = text + count;
  if (count < sizeof magic || memcmp(text, magic, sizeof magic) != 0) return NULL;
  const char *at = memmem(text, count, key, sizeof key - 1);
  if (at == NULL) return NULL;
  for (at += sizeof key - 1; at < end && *at == ' ';) at++;
  if (at < end && (*at == '[' || *at == '(')) return "structured";
  return end - at > 2 && *at == '\'' && at[2] == 'O' ? "objects" : NULL;
}
