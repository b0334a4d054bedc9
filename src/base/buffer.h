/* Buffer: bytes that grow, up to a bound given at the start.
 *
 * A failed append leaves the contents as they were and the buffer marked; appends after it do
 * nothing, so a writer checks once, at the end. */
#ifndef BASE_BUFFER_H
#define BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct buffer {
  char *data; /* `length` bytes and one '\0' after them; NULL while nothing was appended */
  size_t length;
  size_t capacity;
  size_t max;         /* never holds more than this many bytes */
  stow_status status; /* STOW_OK, or why an append failed */
} buffer;

#define BUFFER_INIT       ((buffer){.max = SIZE_MAX / 2})
#define BUFFER_BOUNDED(n) ((buffer){.max = (n)})

void buffer_free(buffer *b);
stow_status buffer_append(buffer *b, const void *bytes, size_t count);
stow_status buffer_text(buffer *b, const char *text);
stow_status buffer_char(buffer *b, char c);
stow_status buffer_printf(buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Room for `count` more bytes, uninitialised, already counted in length; NULL if it cannot be had.
 */
void *buffer_extend(buffer *b, size_t count);
/* Appends what `from` holds. If `from` failed, `b` fails with the same status: a part of an output
 * that could not be written never goes missing silently. */
stow_status buffer_join(buffer *b, const buffer *from);
/* Empties it, keeping the memory and clearing the mark. */
void buffer_clear(buffer *b);

#endif
