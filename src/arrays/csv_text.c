/* Csv text: converts another encoding to UTF-8 and line ends of CR alone to LF, and empties skipped
 * lines and comments.
 *
 * An input in front of an input: csv reads what this one makes. A skipped line or a comment becomes
 * an empty line, which is no row, so that line numbers stay those of the file. A comment character
 * or a line end inside quotes is text. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "arrays/csv.h"
#include "base/utf8.h"

enum { UTF16_LOOK = 4096 };

typedef struct csv_text {
  input in; /* the bytes of the file, decompressed */
  csv_encoding encoding;
  uint64_t skip;
  char comment, delimiter;
  bool filters;       /* lines are changed: skipped, comments, ends of CR */
  bool cr, after_cr;  /* CR ends a line; a CR was given as LF */
  bool dropping;      /* inside such a line */
  bool begins;        /* the next byte begins a line */
  bool field_begins;  /* the next byte begins a field: a quote opens there */
  bool quoted, ended; /* inside quotes; just after the closing one */
  uint8_t made[4 * 8192];
  size_t at, have; /* of made: next byte, bytes */
} csv_text;

/* ---- encodings ---- */

/* Bytes 0x80 to 0x9f in Windows-1252; the five it does not define are control characters, as in
 * Latin-1 (encoding.spec.whatwg.org). */
static const uint16_t cp1252[32] = {0x20ac, 0x81,   0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021,
                                    0x02c6, 0x2030, 0x0160, 0x2039, 0x0152, 0x8d,   0x017d, 0x8f,
                                    0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014,
                                    0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0x9d,   0x017e, 0x0178};

static stow_status refuse(const csv_text *t, const char *why) {
  return stow_fail(STOW_ERR_FORMAT, "%s: byte %llu: %s", t->in.name,
                   (unsigned long long)input_offset(&t->in), why);
}

static uint32_t unit(const csv_text *t, const uint8_t *at) {
  return t->encoding == CSV_UTF16BE ? (uint32_t)(at[0] << 8 | at[1])
                                    : (uint32_t)(at[1] << 8 | at[0]);
}

/* Converts the next character, or pair of surrogates, of UTF-16. */
static stow_status convert_utf16(csv_text *t, const uint8_t *end, uint32_t *c, size_t *used) {
  const uint8_t *at = t->in.at;
  *used = 2;
  if (end - at < 2) return refuse(t, "UTF-16 text ends in the middle of a character");
  *c = unit(t, at);
  if (*c < 0xd800 || *c > 0xdfff) return STOW_OK;
  if (*c > 0xdbff || end - at < 4 || (unit(t, at + 2) & 0xfc00) != 0xdc00)
    return refuse(t, "not UTF-16 text (half a surrogate pair); give --encoding");
  *c = 0x10000 + ((*c & 0x3ff) << 10 | (unit(t, at + 2) & 0x3ff));
  *used = 4;
  return STOW_OK;
}

/* Fills `made` with UTF-8; nothing is left at the end. */
static stow_status convert(csv_text *t) {
  t->at = t->have = 0;
  STOW_TRY(input_fill(&t->in, 4));
  const uint8_t *end = t->in.end;
  if (t->encoding == CSV_UTF8) {
    t->have = input_left(&t->in) < sizeof t->made ? input_left(&t->in) : sizeof t->made;
    memcpy(t->made, t->in.at, t->have);
    t->in.at += t->have;
    return STOW_OK;
  }
  while (t->in.at < end && t->have + 4 <= sizeof t->made) {
    uint32_t c = *t->in.at;
    size_t used = 1;
    if (t->encoding == CSV_CP1252 && c >= 0x80 && c < 0xa0) c = cp1252[c - 0x80];
    if (t->encoding >= CSV_UTF16) {
      if (end - t->in.at < 4 && !t->in.at_eof && t->have > 0) break; /* may go on in the next */
      STOW_TRY(convert_utf16(t, end, &c, &used));
    }
    t->have += utf8_put(t->made + t->have, c);
    t->in.at += used;
  }
  return STOW_OK;
}

/* ---- lines ---- */

static bool ends_field(const csv_text *t, uint8_t byte) {
  if (t->delimiter != '\0') return byte == (uint8_t)t->delimiter;
  return byte == ',' || byte == ';' || byte == '\t' || byte == '|';
}

/* Follows the quotes, which decide whether a line end ends a line. */
static void follow(csv_text *t, uint8_t byte) {
  if (t->quoted) {
    t->quoted = byte != '"';
    t->ended = byte == '"';
    return;
  }
  if (byte == '"' && (t->field_begins || t->ended)) {
    t->quoted = true;
  } else {
    t->begins = byte == '\n';
    t->field_begins = t->begins || ends_field(t, byte);
  }
  t->ended = false;
}

/* Copies the bytes that are kept; returns how many. */
static size_t filter(csv_text *t, uint8_t *to, size_t room) {
  size_t count = 0;
  while (t->at < t->have && count < room) {
    uint8_t byte = t->made[t->at++];
    if (t->cr && !t->quoted) {
      bool rest = t->after_cr && byte == '\n'; /* of CRLF */
      t->after_cr = byte == '\r';
      if (rest) continue;
      if (t->after_cr) byte = '\n';
    }
    if (t->begins) {
      t->dropping = t->skip > 0 || (t->comment != '\0' && byte == (uint8_t)t->comment);
      t->skip -= t->skip > 0;
      t->begins = false;
      t->field_begins = true;
    }
    if (t->dropping) {
      if (byte != '\n') continue;
      t->dropping = false;
      t->begins = true;
    } else {
      follow(t, byte);
    }
    to[count++] = byte;
  }
  return count;
}

static stow_status read_text(void *user, uint8_t *to, size_t room, size_t *got) {
  csv_text *t = user;
  *got = 0;
  while (*got == 0) {
    if (t->at == t->have) STOW_TRY(convert(t));
    if (t->have == 0) return STOW_OK;
    if (t->filters) {
      *got = filter(t, to, room);
      continue;
    }
    *got = t->have - t->at < room ? t->have - t->at : room;
    memcpy(to, t->made + t->at, *got);
    t->at += *got;
  }
  return STOW_OK;
}

/* ---- opening ---- */

/* Takes a byte order mark, which says what the text is. */
static stow_status take_mark(input *in, csv_encoding *encoding) {
  const uint8_t *at = in->at;
  size_t left = input_left(in);
  if (left >= 3 && memcmp(at, "\xef\xbb\xbf", 3) == 0) {
    *encoding = CSV_UTF8;
    return input_skip(in, 3);
  }
  if (left < 2 || (memcmp(at, "\xff\xfe", 2) != 0 && memcmp(at, "\xfe\xff", 2) != 0)) {
    if (*encoding == CSV_UTF16) *encoding = CSV_UTF16LE;
    return STOW_OK;
  }
  if (*encoding == CSV_LATIN1 || *encoding == CSV_CP1252)
    return STOW_OK; /* they have these bytes */
  *encoding = at[0] == 0xff ? CSV_UTF16LE : CSV_UTF16BE;
  return input_skip(in, 2);
}

/* Puts a copy of `like` in front of the input. */
static stow_status wrap(input *in, const csv_text *like) {
  csv_text *t = malloc(sizeof *t);
  if (t != NULL) {
    *t = *like;
    t->begins = t->field_begins = true;
  }
  return input_wrap(in, t, read_text);
}

/* Rejects text of one byte per character that was called UTF-16: it has lines as bytes, but none as
 * UTF-16. Zero bytes are in almost any UTF-16 text. */
static stow_status check_utf16(input *in, csv_encoding encoding) {
  STOW_TRY(input_fill(in, UTF16_LOOK));
  size_t count = input_left(in) < UTF16_LOOK ? input_left(in) : UTF16_LOOK;
  const uint8_t *at = in->at;
  bool bytes = memchr(at, '\n', count) != NULL || memchr(at, '\r', count) != NULL;
  if (!bytes || memchr(at, '\0', count) != NULL) return STOW_OK;
  bool big = encoding == CSV_UTF16BE;
  for (size_t i = 0; i + 1 < count; i += 2) {
    unsigned c = big ? (unsigned)(at[i] << 8 | at[i + 1]) : (unsigned)(at[i + 1] << 8 | at[i]);
    if (c == '\n' || c == '\r' || c == 0x2028 || c == 0x2029) return STOW_OK;
  }
  return stow_fail(STOW_ERR_FORMAT,
                   "%s: not UTF-16 text: no byte of it is zero, and it has line ends of one byte; "
                   "omit --encoding",
                   in->name);
}

stow_status csv_text_decode(input *in, const csv_options *o) {
  csv_text like = {.encoding = o->encoding};
  STOW_TRY(input_fill(in, 4));
  STOW_TRY(take_mark(in, &like.encoding));
  if (like.encoding >= CSV_UTF16) STOW_TRY(check_utf16(in, like.encoding));
  return like.encoding == CSV_UTF8 ? STOW_OK : wrap(in, &like);
}

bool csv_text_has_cr(const input *in, const csv_options *o) {
  csv_text t = {.delimiter = o->delimiter, .field_begins = true};
  for (const uint8_t *at = in->at; at < in->end; at++) {
    if (!t.quoted && *at == '\r' && at + 1 < in->end) return at[1] != '\n';
    if (!t.quoted && *at == '\n') return false;
    follow(&t, *at);
  }
  return false;
}

stow_status csv_text_lines(input *in, const csv_options *o, bool cr) {
  csv_text like = {.skip = o->skip, .comment = o->comment, .delimiter = o->delimiter, .cr = cr};
  like.filters = cr || o->skip > 0 || o->comment != '\0';
  return like.filters ? wrap(in, &like) : STOW_OK;
}

stow_status csv_encoding_parse(csv_encoding *encoding, const char *name) {
  static const struct {
    const char *name;
    csv_encoding is;
  } known[] = {
      {"utf-8", CSV_UTF8},        {"utf8", CSV_UTF8},         {"utf-8-sig", CSV_UTF8},
      {"ascii", CSV_UTF8},        {"latin-1", CSV_LATIN1},    {"latin1", CSV_LATIN1},
      {"iso-8859-1", CSV_LATIN1}, {"cp1252", CSV_CP1252},     {"windows-1252", CSV_CP1252},
      {"utf-16", CSV_UTF16},      {"utf16", CSV_UTF16},       {"utf-16-le", CSV_UTF16LE},
      {"utf-16le", CSV_UTF16LE},  {"utf-16-be", CSV_UTF16BE}, {"utf-16be", CSV_UTF16BE},
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcasecmp(name, known[i].name) == 0) return *encoding = known[i].is, STOW_OK;
  return stow_fail(STOW_ERR_INVALID,
                   "encoding \"%.40s\": must be utf-8, utf-16, utf-16-le, utf-16-be, latin-1 or "
                   "cp1252; convert other files with iconv -t utf-8",
                   name);
}
