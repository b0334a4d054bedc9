/* Notebook: a scan over the JSON strings. A string that a colon follows is a key, any other belongs
 * to the key before it; no tree is built, so a cut-off or broken file still gives what it has. */
#include "advise/notebook.h"

#include <string.h>

static const char *past_spaces(scan_text t, const char *at) {
  while (at < t.end && (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r')) at++;
  return at;
}

bool notebook_is(scan_text text) {
  const char *at = past_spaces(text, text.at);
  return at < text.end && *at == '{' && scan_has(text, "\"cells\"") &&
         scan_has(text, "\"outputs\"");
}

/* Returns the four hexadecimal digits at `at`; UINT32_MAX if there are none. */
static uint32_t hex4(scan_text t, const char *at) {
  uint32_t value = 0;
  if (t.end - at < 4) return UINT32_MAX;
  for (int i = 0; i < 4; i++) {
    char c = at[i];
    uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                     : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                     : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                            : UINT32_MAX;
    if (digit == UINT32_MAX) return UINT32_MAX;
    value = value * 16 + digit;
  }
  return value;
}

/* Appends one character as UTF-8; half of a pair becomes a question mark. */
static void append_character(buffer *out, uint32_t c) {
  if (c < 0x80) {
    buffer_char(out, (char)c);
  } else if (c < 0x800) {
    buffer_char(out, (char)(0xc0 | c >> 6));
    buffer_char(out, (char)(0x80 | (c & 0x3f)));
  } else if (c >= 0xd800 && c < 0xe000) {
    buffer_char(out, '?');
  } else {
    buffer_char(out, (char)(0xe0 | c >> 12));
    buffer_char(out, (char)(0x80 | (c >> 6 & 0x3f)));
    buffer_char(out, (char)(0x80 | (c & 0x3f)));
  }
}

/* Appends the string between two quotation marks without its escapes. */
static void append_string(buffer *out, scan_text s) {
  for (const char *at = s.at; at < s.end;) {
    const char *plain = at;
    while (at < s.end && *at != '\\') at++;
    if (at > plain) buffer_append(out, plain, (size_t)(at - plain));
    if (at + 1 >= s.end) return;
    char c = at[1];
    at += 2;
    if (c == 'u') {
      uint32_t value = hex4(s, at);
      if (value == UINT32_MAX) continue;
      append_character(out, value);
      at += 4;
    } else {
      buffer_char(out, c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c);
    }
  }
}

static bool is(scan_text s, const char *word) {
  return (size_t)(s.end - s.at) == strlen(word) && memcmp(s.at, word, strlen(word)) == 0;
}

static void append_line(buffer *out, scan_text s) {
  append_string(out, s);
  if (out->length > 0 && out->data[out->length - 1] != '\n') buffer_char(out, '\n');
}

/* Removes the next string from `text`; *key: a colon follows it. Returns false at the end. */
static bool next_string(scan_text *text, scan_text *s, bool *key) {
  const char *at = text->at;
  while (at < text->end && *at != '"') at++;
  if (at >= text->end) return false;
  *s = (scan_text){at + 1, at + 1};
  while (s->end < text->end && *s->end != '"') s->end += *s->end == '\\' ? 2 : 1;
  if (s->end > text->end) s->end = text->end;
  text->at = s->end < text->end ? s->end + 1 : text->end;
  const char *after = past_spaces(*text, text->at);
  *key = after < text->end && *after == ':';
  return true;
}

/* The value of an error comes before its traceback in the file and may be cut; the traceback ends
 * with all of it. So the value is appended after the traceback. */
stow_status notebook_outputs(buffer *out, scan_text text) {
  bool keep = false, value = false, key;
  scan_text pending = {text.at, text.at}, s; /* the last value */
  while (next_string(&text, &s, &key)) {
    if (key) {
      value = is(s, "evalue");
      keep = is(s, "traceback") || is(s, "text");
      if (value || is(s, "text") || is(s, "source")) {
        append_line(out, pending);
        pending.at = pending.end;
      }
    } else if (value)
      pending = s;
    else if (keep)
      append_line(out, s);
  }
  append_line(out, pending);
  return out->status;
}

stow_status notebook_source(buffer *out, scan_text text, bool *failed) {
  scan_text rest = text, cell = {text.at, text.at}, last = cell, s;
  bool type = false, error = false, source = false, key;
  *failed = false;
  for (bool more = true; more;) {
    const char *before = rest.at;
    more = next_string(&rest, &s, &key);
    if (more && !key && type) error = error || is(s, "error");
    if (more && !key) continue;
    type = more && is(s, "output_type");
    if (more && !is(s, "cell_type")) continue;
    cell.end = before; /* a cell begins with its type */
    if (error) last = cell;
    *failed = *failed || error;
    cell.at = before;
    error = false;
  }
  while (next_string(&last, &s, &key)) {
    if (key)
      source = is(s, "source");
    else if (source)
      append_line(out, s);
  }
  return out->status;
}
