/* Input: the bytes of a recording as one forward stream, gz or plain.
 *
 * Called by every reader in this folder. The first two bytes decide whether the stream is gzip
 * (several members in a row are one stream, as gzip itself reads them). Guarantees: never more
 * output than the bounds in input_limits, one window of memory however long the stream is, and
 * INPUT_SLACK readable zero bytes behind the window, so that a reader may look a few bytes past the
 * end before it asks whether they were there. */
#ifndef FILES_INPUT_H
#define FILES_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

#define INPUT_SLACK 64

/* Bounds of one stream; zero fields mean the defaults. */
typedef struct input_limits {
  uint64_t max_bytes; /* uncompressed; default 64 GiB */
  uint64_t max_ratio; /* uncompressed : compressed, once past 64 MiB; default 250. The recordings
                         measured here lie between 8 and 40; deflate itself ends at 1032. */
} input_limits;

struct source;

typedef struct input {
  const uint8_t *at, *end; /* the window: what was read and not yet taken */
  uint64_t base;           /* offset of `window` in the uncompressed stream */
  uint8_t *window;
  size_t capacity;
  bool at_eof;         /* nothing follows `end` */
  FILE *file;          /* NULL: reads from memory, or … */
  struct source *from; /* … from a server; else NULL */
  bool owns_file;
  const char *name; /* for messages; the caller keeps it */
  void *inflater;   /* z_stream while gzip */
  uint8_t *raw;     /* compressed bytes */
  bool raw_eof;
  uint64_t raw_bytes; /* compressed bytes read so far */
  const uint8_t *memory;
  size_t memory_left;
  input_limits limits;
} input;

/* Opens the file at `path`, an http(s) URL, or standard input for "-". `path` must outlive the
 * input. */
stow_status input_open(input *in, const char *path, const input_limits *limits);
/* The same over bytes in memory (tests, fuzzing). */
stow_status input_open_memory(input *in, const void *bytes, size_t count, const char *name,
                              const input_limits *limits);
void input_close(input *in);

/* Brings at least `want` bytes into the window where the stream has that many; fewer only at its
 * end. The window moves: pointers into it are good until the next call. */
stow_status input_fill(input *in, size_t want);
/* Gives the bytes before `stop` (in the window) away with the window's memory, zeros
 * behind them as behind every window; what *memory was, *capacity bytes and the slack (or NULL),
 * becomes the window, with what stood behind `stop` in it. */
stow_status input_give(input *in, const uint8_t *stop, uint8_t **memory, size_t *capacity);
/* Passes over `count` bytes; STOW_ERR_FORMAT if the stream ends before. */
stow_status input_skip(input *in, uint64_t count);
/* Goes on at byte `offset` of the (uncompressed) stream, ahead of where it is: a file is not read
 * in between, a pipe and gzip are. */
stow_status input_seek(input *in, uint64_t offset);
/* The next line without its end ("\n" or "\r\n"), not ended with '\0'; *line NULL at the end of the
 * stream. A line past `max` bytes is STOW_ERR_FORMAT. */
stow_status input_line(input *in, const char **line, size_t *count, size_t max);

static inline uint64_t input_offset(const input *in) {
  return in->base + (uint64_t)(in->at - in->window);
}

static inline size_t input_left(const input *in) {
  return (size_t)(in->end - in->at);
}

#endif
