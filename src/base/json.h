/* JSON writer: writes values into a buffer and handles commas and escapes. Used by every `--json`.
 *
 *   json_begin_object(&j); json_key(&j, "name"); json_text(&j, name); json_end_object(&j);
 *
 * Text is UTF-8; invalid bytes become U+FFFD, so the output always parses. Code points that
 * text_safe rejects (base/text.h) are escaped, so the output is safe on a terminal. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

typedef struct json {
  buffer *out;
  int depth;
  bool comma;  /* this container already has a value */
  bool pretty; /* one member per line, two spaces per level */
  bool after_key;
} json;

#define JSON_PRETTY(b)  ((json){.out = (b), .pretty = true})
#define JSON_COMPACT(b) ((json){.out = (b)})

void json_begin_object(json *j);
void json_end_object(json *j);
void json_begin_array(json *j);
void json_end_array(json *j);
void json_key(json *j, const char *key);
void json_text(json *j, const char *text); /* NULL writes null */
void json_text_n(json *j, const char *text, size_t count);
void json_u64(json *j, uint64_t value);
void json_i64(json *j, int64_t value);
void json_double(json *j, double value); /* the shortest text that parses to the same value; NaN and
                                            infinities write null */
void json_bool(json *j, bool value);
void json_null(json *j);
/* Writes `text`, which is one whole JSON value already. */
void json_raw(json *j, const char *text, size_t count);

/* Writes a key and its number; null if the number is not known. */
void json_number(json *j, const char *key, uint64_t value);
void json_number_or_null(json *j, const char *key, bool known, uint64_t value);

#endif
