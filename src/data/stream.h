/* Stream: bytes that come one after another and are wanted again in that order: in memory up to a
 * bound, behind that in a scratch file.
 *
 * Called by shrink, which does not know how many values it keeps before it has seen them all. */
#ifndef DATA_STREAM_H
#define DATA_STREAM_H

#include "data/scratch.h"

typedef struct stream {
  const char *beside; /* where a scratch file may stand */
  char *held;         /* the last of them, not in the file */
  size_t used, capacity, most;
  scratch file;
  uint64_t filed; /* bytes in the file */
} stream;

void stream_begin(stream *s, const char *beside, size_t most_held);
void stream_end(stream *s);
/* Room for `count` more bytes, which the caller fills; stream_took says how many he did. */
stow_status stream_room(stream *s, size_t count, void **room);
static inline void stream_took(stream *s, size_t count) {
  s->used += count;
}
static inline uint64_t stream_bytes(const stream *s) {
  return s->filed + s->used;
}
/* Hands all of it, in order, to `take` in pieces of at most `piece` bytes. */
stow_status stream_each(const stream *s, size_t piece,
                        stow_status (*take)(void *context, const void *bytes, size_t count),
                        void *context);

#endif
