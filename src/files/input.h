/* Input: the bytes of a recording or table as a forward stream, plain or decompressed.
 *
 * Called by every reader of recordings and tables. The first bytes decide whether the stream is
 * gzip, zstd or xz (several members or frames in a row are one stream, as their own tools read
 * them).
 *
 * Guarantees: never more output than input_limits allow; one window of memory however long the
 * stream is; INPUT_SLACK readable zero bytes after the window, so a reader may look a few bytes
 * past the end before it checks whether they exist. */
#ifndef FILES_INPUT_H
#define FILES_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

#define INPUT_SLACK 64

/* Bounds for one stream; a zero field means the default. */
typedef struct input_limits {
  uint64_t max_bytes; /* uncompressed; default 64 GiB */
  uint64_t max_ratio; /* uncompressed : compressed, once past 64 MiB; default 250. Measured
                       * recordings lie between 8 and 40; deflate's maximum is 1032. */
} input_limits;

struct source;
struct unpack;

/* Bytes that come from neither a file nor memory: a member of an archive, or another input whose
 * bytes are converted. */
typedef struct input_reader {
  /* Reads up to `room` bytes; *got is 0 at the end. */
  stow_status (*read)(void *user, uint8_t *to, size_t room, size_t *got);
  /* Returns the bytes of the file read so far, for the progress. */
  uint64_t (*raw_bytes)(void *user);
  void (*close)(void *user);
  void *user;
} input_reader;

typedef struct input {
  const uint8_t *at, *end; /* the window: read but not yet consumed */
  uint64_t base;           /* offset of `window` in the uncompressed stream */
  uint8_t *window;
  size_t capacity;
  bool at_eof;         /* nothing follows `end` */
  FILE *file;          /* NULL: reads from memory or from `from` */
  struct source *from; /* set if the input is on a server; otherwise NULL */
  input_reader reader; /* read is NULL: none */
  bool owns_file;
  const char *name;      /* for messages; owned by the caller */
  void *inflater;        /* z_stream if gzip */
  bool between;          /* a member of the gzip file has ended, and no other has begun */
  struct unpack *unpack; /* if zstd or xz */
  uint8_t *raw;          /* compressed bytes */
  bool raw_eof;
  uint64_t raw_bytes; /* compressed bytes read so far */
  const uint8_t *memory;
  size_t memory_left;
  uint8_t *held; /* lines after `end` that may be the footer; NULL: a footer is like other lines */
  size_t held_bytes;
  bool in_line; /* the window begins inside a line */
  input_limits limits;
} input;

/* Opens the file at `path`, an http(s) URL, or standard input for "-". `path` must outlive the
 * input. */
stow_status input_open(input *in, const char *path, const input_limits *limits);
/* Opens bytes in memory (tests, fuzzing). */
stow_status input_open_memory(input *in, const void *bytes, size_t count, const char *name,
                              const input_limits *limits);
/* Opens what the reader gives; closes the reader, also on failure. `name` must outlive the input.
 */
stow_status input_open_reader(input *in, const input_reader *reader, const char *name,
                              const input_limits *limits);
/* Puts a filter in front of the input, which becomes what `read` gives. `filter` is allocated, is
 * passed to `read`, and starts with an `input`, which this sets to the bytes to filter. The input
 * frees it, also on failure. NULL: there was no memory for it. */
stow_status input_wrap(input *in, void *filter,
                       stow_status (*read)(void *filter, uint8_t *to, size_t room, size_t *got));
void input_close(input *in);

/* Brings at least `want` bytes into the window; fewer only at the end of the stream. The window
 * moves: pointers into it are valid until the next call. */
stow_status input_fill(input *in, size_t want);
/* Hands the bytes before `stop` (in the window) to the caller together with the window's memory,
 * followed by zeros like every window. The memory in *memory (*capacity bytes plus the slack, or
 * NULL) becomes the new window and receives the bytes after `stop`. */
stow_status input_give(input *in, const uint8_t *stop, uint8_t **memory, size_t *capacity);
/* Ends the stream before its footer: its last lines, up to INPUT_FOOTER_MAX bytes, that are "#"
 * alone or begin with "# ". */
#define INPUT_FOOTER_MAX 4096
stow_status input_drop_footer(input *in);
/* Skips `count` bytes; STOW_ERR_FORMAT if the stream ends before. */
stow_status input_skip(input *in, uint64_t count);
/* Moves forward to byte `offset` of the (uncompressed) stream. A file seeks; a pipe and gzip read
 * the bytes in between. */
stow_status input_seek(input *in, uint64_t offset);
/* Returns the next line without its end ("\n" or "\r\n"), not terminated; *line is NULL at the end
 * of the stream. A line longer than `max` bytes is STOW_ERR_FORMAT. */
stow_status input_line(input *in, const char **line, size_t *count, size_t max);

static inline uint64_t input_offset(const input *in) {
  return in->base + (uint64_t)(in->at - in->window);
}

static inline size_t input_left(const input *in) {
  return (size_t)(in->end - in->at);
}

#endif
