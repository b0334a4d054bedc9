/* Stream: see stream.h. */
#include "data/stream.h"

#include <stdlib.h>

void stream_begin(stream *s, const char *beside, size_t most_held) {
  *s = (stream){.beside = beside, .most = most_held, .file = {.fd = -1}};
}

void stream_end(stream *s) {
  free(s->held);
  scratch_close(&s->file);
  s->held = NULL;
}

static stow_status flush(stream *s) {
  if (s->file.fd < 0) STOW_TRY(scratch_open(&s->file, s->beside));
  STOW_TRY(scratch_write(&s->file, s->filed, s->held, s->used));
  s->filed += s->used;
  s->used = 0;
  return STOW_OK;
}

stow_status stream_room(stream *s, size_t count, void **room) {
  if (s->used + count > s->capacity && s->used + count > s->most && s->used > 0) STOW_TRY(flush(s));
  if (s->used + count > s->capacity) {
    size_t capacity = s->capacity * 2 > s->used + count ? s->capacity * 2 : s->used + count;
    if (capacity > s->most && s->used + count <= s->most) capacity = s->most;
    char *more = realloc(s->held, capacity);
    if (more == NULL)
      return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory for %zu KiB", s->beside,
                       capacity >> 10);
    s->held = more;
    s->capacity = capacity;
  }
  *room = s->held + s->used;
  return STOW_OK;
}

stow_status stream_each(const stream *s, size_t piece,
                        stow_status (*take)(void *context, const void *bytes, size_t count),
                        void *context) {
  stow_status status = STOW_OK;
  char *bytes = s->filed > 0 ? malloc(piece) : NULL;
  if (s->filed > 0 && bytes == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", s->beside);
  for (uint64_t at = 0; at < s->filed && status == STOW_OK;) {
    size_t count = s->filed - at < piece ? (size_t)(s->filed - at) : piece;
    status = scratch_read(&s->file, at, bytes, count);
    if (status == STOW_OK) status = take(context, bytes, count);
    at += count;
  }
  free(bytes);
  for (size_t at = 0; at < s->used && status == STOW_OK;) {
    size_t count = s->used - at < piece ? s->used - at : piece;
    status = take(context, s->held + at, count);
    at += count;
  }
  return status;
}
