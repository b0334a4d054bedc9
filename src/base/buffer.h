/* Buffer: bytes that grow up to a fixed limit.
 *
 * A failed append leaves the contents unchanged and marks the buffer. Later appends do nothing, so
 * a writer checks the status once, at the end. */
#ifndef BASE_BUFFER_H
#define BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct buffer {
  char *data; /* `length` bytes and a '\0'; NULL until the first append */
  size_t length;
  size_t capacity;
  size_t max;         /* the limit */
  stow_status status; /* STOW_OK, or why an append failed */
} buffer;

#define BUFFER_INIT       ((buffer){.max = SIZE_MAX / 2})
#define BUFFER_BOUNDED(n) ((buffer){.max = (n)})

void buffer_free(buffer *b);
stow_status buffer_append(buffer *b, const void *bytes, size_t count);
stow_status buffer_text(buffer *b, const char *text);
stow_status buffer_char(buffer *b, char c);
stow_status buffer_printf(buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds `count` uninitialised bytes to the length and returns a pointer to them, or NULL if the
 * append fails.
 */
void *buffer_extend(buffer *b, size_t count);
/* Appends the contents of `from`. If `from` failed, `b` fails with the same status, so that no part
 * of an output is lost silently. */
stow_status buffer_join(buffer *b, const buffer *from);
/* Empties the buffer and clears its status; keeps the memory. */
void buffer_clear(buffer *b);

#endif
