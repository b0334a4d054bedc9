/* Stream: see stream.h. */
#include "data/stream.h"

#include <stdlib.h>
#include <string.h>

void stream_file_begin(stream_file *f, const char *beside) {
  *f = (stream_file){.beside = beside, .file = {.fd = -1}};
  pthread_mutex_init(&f->lock, NULL);
}

void stream_file_end(stream_file *f) {
  scratch_close(&f->file);
  pthread_mutex_destroy(&f->lock);
}

void stream_begin(stream *s, stream_file *shared, size_t most_held) {
  *s = (stream){.shared = shared, .most = most_held};
}

void stream_end(stream *s) {
  free(s->held);
  free(s->runs);
  s->held = NULL;
  s->runs = NULL;
}

static stow_status no_memory(const stream *s, size_t bytes) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory for %zu KiB", s->shared->beside,
                   bytes >> 10);
}

static stow_status add_run(stream *s, stream_run run) {
  if (s->run_count == s->run_capacity) {
    size_t capacity = s->run_capacity * 2 + 8;
    stream_run *more = realloc(s->runs, capacity * sizeof *more);
    if (more == NULL) return no_memory(s, capacity * sizeof *more);
    s->runs = more;
    s->run_capacity = capacity;
  }
  s->runs[s->run_count++] = run;
  return STOW_OK;
}

/* Reserves the next `bytes` of the file for this stream. */
static stow_status take_place(stream_file *f, size_t bytes, uint64_t *place) {
  pthread_mutex_lock(&f->lock);
  stow_status status = f->file.fd < 0 ? scratch_open(&f->file, f->beside) : STOW_OK;
  *place = f->end;
  f->end += bytes;
  pthread_mutex_unlock(&f->lock);
  return status;
}

stow_status stream_flush(stream *s) {
  uint64_t place;
  if (s->used == 0) return STOW_OK;
  STOW_TRY(take_place(s->shared, s->used, &place));
  STOW_TRY(scratch_write(&s->shared->file, place, s->held, s->used));
  STOW_TRY(add_run(s, (stream_run){place, s->used}));
  s->used = 0;
  return STOW_OK;
}

stow_status stream_room(stream *s, size_t count, void **room) {
  if (s->used + count > s->capacity && s->used + count > s->most) STOW_TRY(stream_flush(s));
  if (s->used + count > s->capacity) {
    size_t capacity = s->capacity * 2 > s->used + count ? s->capacity * 2 : s->used + count;
    if (capacity > s->most && s->used + count <= s->most) capacity = s->most;
    char *more = realloc(s->held, capacity);
    if (more == NULL) return no_memory(s, capacity);
    s->held = more;
    s->capacity = capacity;
  }
  *room = s->held + s->used;
  return STOW_OK;
}

stow_status stream_take_up(stream *s, const stream_run *runs, size_t count) {
  for (size_t i = 0; i < count; i++) {
    STOW_TRY(add_run(s, runs[i]));
    if (runs[i].place + runs[i].bytes > s->shared->end)
      s->shared->end = runs[i].place + runs[i].bytes;
  }
  return STOW_OK;
}

typedef struct handing {
  size_t piece;
  stow_status (*take)(void *context, const void *bytes, size_t count);
  void *context;
  char *bytes; /* space for a piece */
} handing;

static stow_status hand_run(const stream *s, const handing *h, stream_run run, uint64_t from) {
  for (uint64_t at = from; at < run.bytes;) {
    size_t count = run.bytes - at < h->piece ? (size_t)(run.bytes - at) : h->piece;
    STOW_TRY(scratch_read(&s->shared->file, run.place + at, h->bytes, count));
    STOW_TRY(h->take(h->context, h->bytes, count));
    at += count;
  }
  return STOW_OK;
}

stow_status stream_each(const stream *s, uint64_t skip, size_t piece,
                        stow_status (*take)(void *context, const void *bytes, size_t count),
                        void *context) {
  handing h = {.piece = piece, .take = take, .context = context};
  stow_status status = STOW_OK;
  h.bytes = s->run_count > 0 ? malloc(piece) : NULL;
  if (s->run_count > 0 && h.bytes == NULL) return no_memory(s, piece);
  for (size_t i = 0; i < s->run_count && status == STOW_OK; i++) {
    uint64_t from = skip < s->runs[i].bytes ? skip : s->runs[i].bytes;
    status = hand_run(s, &h, s->runs[i], from);
    skip -= from;
  }
  free(h.bytes);
  for (size_t at = skip < s->used ? (size_t)skip : s->used; at < s->used && status == STOW_OK;) {
    size_t count = s->used - at < piece ? s->used - at : piece;
    status = take(context, s->held + at, count);
    at += count;
  }
  return status;
}
