/* JSON writer. Errors stay in the buffer (buffer.status): check it once, at the end. */
#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/utf8.h"

static void newline(json *j) {
  if (!j->pretty) return;
  buffer_char(j->out, '\n');
  for (int i = 0; i < j->depth; i++) buffer_text(j->out, "  ");
}

static void before_value(json *j) {
  if (j->after_key) {
    j->after_key = false;
    return;
  }
  if (j->comma) buffer_char(j->out, ',');
  if (j->depth > 0) newline(j);
  j->comma = true;
}

static void begin(json *j, char open) {
  before_value(j);
  buffer_char(j->out, open);
  j->depth++;
  j->comma = false;
}

static void end(json *j, char close) {
  j->depth--;
  if (j->comma) newline(j);
  buffer_char(j->out, close);
  j->comma = true;
}

void json_begin_object(json *j) {
  begin(j, '{');
}

void json_end_object(json *j) {
  end(j, '}');
}

void json_begin_array(json *j) {
  begin(j, '[');
}

void json_end_array(json *j) {
  end(j, ']');
}

static void quoted(json *j, const char *text, size_t count) {
  const unsigned char *at = (const unsigned char *)text, *stop = at + count;
  buffer_char(j->out, '"');
  while (at < stop) {
    uint32_t point;
    size_t length = utf8_take(at, (size_t)(stop - at), &point);
    if (length == 0) {
      buffer_text(j->out, "\\ufffd");
      at++;
    } else if (*at == '"' || *at == '\\') {
      buffer_char(j->out, '\\');
      buffer_char(j->out, (char)*at++);
    } else if (!text_safe(point)) { /* the same value, escaped for terminals */
      if (point < 0x10000)
        buffer_printf(j->out, "\\u%04x", (unsigned)point);
      else
        buffer_printf(j->out, "\\u%04x\\u%04x", 0xd7c0u + (unsigned)(point >> 10),
                      0xdc00u | (unsigned)(point & 0x3ff));
      at += length;
    } else {
      buffer_append(j->out, at, length);
      at += length;
    }
  }
  buffer_char(j->out, '"');
}

void json_key(json *j, const char *key) {
  if (j->comma) buffer_char(j->out, ',');
  newline(j);
  quoted(j, key, strlen(key));
  buffer_text(j->out, j->pretty ? ": " : ":");
  j->comma = true;
  j->after_key = true;
}

void json_text_n(json *j, const char *text, size_t count) {
  before_value(j);
  quoted(j, text, count);
}

void json_text(json *j, const char *text) {
  if (text == NULL)
    json_null(j);
  else
    json_text_n(j, text, strlen(text));
}

void json_u64(json *j, uint64_t value) {
  before_value(j);
  buffer_printf(j->out, "%" PRIu64, value);
}

void json_i64(json *j, int64_t value) {
  before_value(j);
  buffer_printf(j->out, "%" PRId64, value);
}

void json_double(json *j, double value) {
  if (!isfinite(value)) {
    json_null(j);
    return;
  }
  before_value(j);
  char text[32];
  for (int digits = 6; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, value);
    if (strtod(text, NULL) == value) break;
  }
  buffer_text(j->out, text);
}

void json_bool(json *j, bool value) {
  before_value(j);
  buffer_text(j->out, value ? "true" : "false");
}

void json_null(json *j) {
  before_value(j);
  buffer_text(j->out, "null");
}

void json_raw(json *j, const char *text, size_t count) {
  before_value(j);
  buffer_append(j->out, text, count);
}

void json_number(json *j, const char *key, uint64_t value) {
  json_number_or_null(j, key, true, value);
}

void json_number_or_null(json *j, const char *key, bool known, uint64_t value) {
  json_key(j, key);
  if (known)
    json_u64(j, value);
  else
    json_null(j);
}
