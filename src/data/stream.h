/* Stream: bytes that come one after another and are wanted again in that order: in memory up to a
 * bound, behind that in a scratch file that several streams share.
 *
 * Called by shrink, which does not know how many values it keeps before it has seen them all. Where
 * the scratch has a name, streams that were filed can be taken up again by another process. */
#ifndef DATA_STREAM_H
#define DATA_STREAM_H

#include <pthread.h>

#include "data/scratch.h"

/* The file of several streams, each of which may be filled by a thread of its own. */
typedef struct stream_file {
  const char *beside; /* where a scratch without a name may stand */
  pthread_mutex_t lock;
  scratch file; /* guarded by lock: opened by the first that needs it */
  uint64_t end; /* guarded by lock */
} stream_file;

typedef struct stream_run {
  uint64_t place, bytes; /* in the file */
} stream_run;

typedef struct stream {
  stream_file *shared;
  char *held; /* the last of them, not in the file */
  size_t used, capacity, most;
  stream_run *runs; /* those in the file, in order */
  size_t run_count, run_capacity;
} stream;

void stream_file_begin(stream_file *f, const char *beside);
void stream_file_end(stream_file *f);

void stream_begin(stream *s, stream_file *shared, size_t most_held);
void stream_end(stream *s);
/* Room for `count` more bytes, which the caller fills; stream_took says how many he did. */
stow_status stream_room(stream *s, size_t count, void **room);
static inline void stream_took(stream *s, size_t count) {
  s->used += count;
}
/* Nothing is held: all is in the file. */
stow_status stream_flush(stream *s);
/* Takes up what another process filed. */
stow_status stream_take_up(stream *s, const stream_run *runs, size_t count);
/* Hands all of it but the first `skip` bytes, in order, to `take` in pieces of at most `piece`. */
stow_status stream_each(const stream *s, uint64_t skip, size_t piece,
                        stow_status (*take)(void *context, const void *bytes, size_t count),
                        void *context);

#endif
