/* Stream: bytes that are written in order and later read in that order: in memory up to a bound,
 * then in a scratch file that several streams share.
 *
 * Called by shrink, which does not know how many values it keeps before it has seen them all. If
 * the scratch file has a name, another process can continue streams that were flushed. */
#ifndef DATA_STREAM_H
#define DATA_STREAM_H

#include <pthread.h>

#include "data/scratch.h"

/* The file of several streams, each of which may be filled by its own thread. */
typedef struct stream_file {
  const char *beside; /* where to create an unnamed scratch file */
  pthread_mutex_t lock;
  scratch file; /* guarded by lock: opened by the first that needs it */
  uint64_t end; /* guarded by lock */
} stream_file;

typedef struct stream_run {
  uint64_t place, bytes; /* position and size in the file */
} stream_run;

typedef struct stream {
  stream_file *shared;
  char *held; /* the last bytes, not in the file */
  size_t used, capacity, most;
  stream_run *runs; /* those in the file, in order */
  size_t run_count, run_capacity;
} stream;

void stream_file_begin(stream_file *f, const char *beside);
void stream_file_end(stream_file *f);

void stream_begin(stream *s, stream_file *shared, size_t most_held);
void stream_end(stream *s);
/* Returns space for `count` more bytes for the caller to fill; stream_took reports how many it
 * used. */
stow_status stream_room(stream *s, size_t count, void **room);
static inline void stream_took(stream *s, size_t count) {
  s->used += count;
}
/* Writes everything held to the file. */
stow_status stream_flush(stream *s);
/* Continues what another process flushed. */
stow_status stream_take_up(stream *s, const stream_run *runs, size_t count);
/* Passes all bytes after the first `skip`, in order, to `take` in pieces of at most `piece`. */
stow_status stream_each(const stream *s, uint64_t skip, size_t piece,
                        stow_status (*take)(void *context, const void *bytes, size_t count),
                        void *context);

#endif
