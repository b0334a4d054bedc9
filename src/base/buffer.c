/* Buffer: doubling growth, bound checked before anything is asked of malloc. */
#include "base/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buffer_free(buffer *b) {
  free(b->data);
  *b = (buffer){.max = b->max};
}

void buffer_clear(buffer *b) {
  b->length = 0;
  b->status = STOW_OK;
  if (b->data != NULL) b->data[0] = '\0';
}

static stow_status make_room(buffer *b, size_t count) {
  if (b->status != STOW_OK) return b->status;
  if (count > b->max - b->length) {
    b->status = stow_fail(STOW_ERR_BUDGET, "a buffer would pass its bound of %zu bytes", b->max);
    return b->status;
  }
  size_t need = b->length + count + 1;
  if (need <= b->capacity) return STOW_OK;
  size_t capacity = b->capacity < 64 ? 64 : b->capacity;
  while (capacity < need) capacity *= 2;
  char *data = realloc(b->data, capacity);
  if (data == NULL) {
    b->status =
        stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a buffer of %zu bytes", capacity);
    return b->status;
  }
  b->data = data;
  b->capacity = capacity;
  return STOW_OK;
}

void *buffer_extend(buffer *b, size_t count) {
  if (make_room(b, count) != STOW_OK) return NULL;
  void *at = b->data + b->length;
  b->length += count;
  b->data[b->length] = '\0';
  return at;
}

stow_status buffer_append(buffer *b, const void *bytes, size_t count) {
  void *at = buffer_extend(b, count);
  if (at == NULL) return b->status;
  if (count > 0) memcpy(at, bytes, count);
  return STOW_OK;
}

stow_status buffer_join(buffer *b, const buffer *from) {
  if (from->status == STOW_OK) return buffer_append(b, from->data, from->length);
  if (b->status == STOW_OK) b->status = from->status;
  return b->status;
}

stow_status buffer_text(buffer *b, const char *text) {
  return buffer_append(b, text, strlen(text));
}

stow_status buffer_char(buffer *b, char c) {
  return buffer_append(b, &c, 1);
}

stow_status buffer_printf(buffer *b, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, args);
  va_end(args);
  char *at = length < 0 ? NULL : buffer_extend(b, (size_t)length);
  if (at != NULL) vsnprintf(at, (size_t)length + 1, format, again);
  va_end(again);
  if (length < 0 && b->status == STOW_OK)
    b->status = stow_fail(STOW_ERR_INVALID, "a text could not be formatted");
  return b->status;
}
