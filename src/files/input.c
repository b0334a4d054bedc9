/* Input: a sliding window over a file, a pipe or memory, inflated if compressed. */
#include "files/input.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/variables.h"
#include "files/missing.h"
#include "files/remote.h"
#include "files/unpack.h"

enum { WINDOW_BYTES = 256 << 10, RAW_BYTES = 64 << 10 };
#define RATIO_GRACE   (UINT64_C(64) << 20)
#define MAX_BYTES_DEF (UINT64_C(64) << 30)
#define MAX_RATIO_DEF 250

static stow_status no_memory(const input *in, size_t bytes) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory for a window of %zu KiB", in->name,
                   bytes >> 10);
}

/* Reads up to `room` stored bytes; *got is 0 at the end. */
static stow_status read_raw(input *in, uint8_t *to, size_t room, size_t *got) {
  if (in->reader.read != NULL) {
    STOW_TRY(in->reader.read(in->reader.user, to, room, got));
    in->raw_bytes = in->reader.raw_bytes(in->reader.user);
    return STOW_OK;
  }
  if (in->from != NULL) {
    uint64_t left = in->from->bytes - in->raw_bytes;
    *got = left < room ? (size_t)left : room;
    STOW_TRY(source_read(in->from, in->raw_bytes, to, *got));
  } else if (in->file == NULL) {
    *got = room < in->memory_left ? room : in->memory_left;
    if (*got > 0) memcpy(to, in->memory, *got);
    in->memory += *got;
    in->memory_left -= *got;
  } else {
    /* A terminal can be read again after its end: one Ctrl-D must do. */
    *got = feof(in->file) ? 0 : fread(to, 1, room, in->file);
    if (*got == 0 && ferror(in->file))
      return stow_fail(STOW_ERR_IO, "%s: cannot read: %s", in->name, strerror(errno));
  }
  in->raw_bytes += *got;
  return STOW_OK;
}

static stow_status check_limits(const input *in, uint64_t made) {
  if (made > in->limits.max_bytes)
    return stow_fail(STOW_ERR_BUDGET,
                     "%s: more than the %llu MiB allowed for a recording; raise the limit if it is "
                     "really that large",
                     in->name, (unsigned long long)(in->limits.max_bytes >> 20));
  bool packed = in->inflater != NULL || in->unpack != NULL;
  if (packed && made > RATIO_GRACE && made / in->limits.max_ratio > in->raw_bytes)
    return stow_fail(
        STOW_ERR_BUDGET,
        "%s: %llu KiB of compressed bytes expanded to %llu MiB, more than %llu to 1: this may be "
        "a decompression bomb; decompress it yourself if you trust it",
        in->name, (unsigned long long)(in->raw_bytes >> 10), (unsigned long long)(made >> 20),
        (unsigned long long)in->limits.max_ratio);
  return STOW_OK;
}

/* Inflates into [to, to + room): at least one byte, unless the stream ends. */
static stow_status inflate_some(input *in, uint8_t *to, size_t room, size_t *got) {
  z_stream *z = in->inflater;
  z->next_out = to;
  z->avail_out = (uInt)room;
  while (z->avail_out == room) {
    if (z->avail_in == 0) {
      size_t count = 0;
      if (!in->raw_eof) STOW_TRY(read_raw(in, in->raw, RAW_BYTES, &count));
      if (count == 0) {
        in->raw_eof = true;
        if (in->between) break;
        return stow_fail(STOW_ERR_FORMAT,
                         "%s: the gzip stream is truncated after %llu stored bytes (byte %llu of "
                         "its contents); copy the file again",
                         in->name, (unsigned long long)in->raw_bytes,
                         (unsigned long long)(in->base + (uint64_t)(in->end - in->window)));
      }
      z->next_in = in->raw;
      z->avail_in = (uInt)count;
    }
    /* gzip(1) and Python also pass over zeros behind a member: padding of tapes and blocks. */
    while (in->between && z->avail_in > 0 && *z->next_in == 0) z->next_in++, z->avail_in--;
    if (z->avail_in == 0) continue;
    in->between = false;
    int code = inflate(z, Z_NO_FLUSH);
    if (code == Z_STREAM_END) {
      inflateReset(z); /* another member may follow */
      in->between = true;
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      return stow_fail(
          STOW_ERR_FORMAT,
          "%s: the gzip stream is corrupt near stored byte %llu: %s; copy the file again", in->name,
          (unsigned long long)(in->raw_bytes - z->avail_in), z->msg != NULL ? z->msg : "bad data");
    }
  }
  *got = room - z->avail_out;
  return STOW_OK;
}

static stow_status begin_gzip(input *in, size_t have) {
  z_stream *z = calloc(1, sizeof *z);
  in->raw = malloc(RAW_BYTES);
  if (z == NULL || in->raw == NULL || inflateInit2(z, 15 + 16) != Z_OK) {
    free(z);
    return no_memory(in, RAW_BYTES);
  }
  memcpy(in->raw, in->window, have);
  z->next_in = in->raw;
  z->avail_in = (uInt)have;
  in->inflater = z;
  return STOW_OK;
}

static stow_status read_packed(void *user, uint8_t *to, size_t room, size_t *got) {
  return read_raw(user, to, room, got);
}

/* Returns the size of a window. Tests set $STOWAGE_TEST_WINDOW to make it smaller, so that a table
 * of a few KiB has many windows. */
static size_t window_bytes(void) {
  const char *wanted = getenv(ENV_TEST_WINDOW);
  long bytes = wanted != NULL ? strtol(wanted, NULL, 10) : 0;
  return bytes >= 64 && bytes < WINDOW_BYTES ? (size_t)bytes : WINDOW_BYTES;
}

static stow_status begin(input *in, const input_limits *limits) {
  if (limits != NULL) in->limits = *limits;
  if (in->limits.max_bytes == 0) in->limits.max_bytes = MAX_BYTES_DEF;
  if (in->limits.max_ratio == 0) in->limits.max_ratio = MAX_RATIO_DEF;
  in->capacity = window_bytes();
  in->window = malloc(in->capacity + INPUT_SLACK);
  if (in->window == NULL) return no_memory(in, in->capacity);
  size_t have = 0, got = 0, most = in->capacity < RAW_BYTES ? in->capacity : RAW_BYTES;
  do { /* a pipe may return one byte at a time */
    STOW_TRY(read_raw(in, in->window + have, most - have, &got));
    have += got;
  } while (got > 0 && have < UNPACK_MAGIC);
  in->at = in->end = in->window;
  if (have >= 2 && in->window[0] == 0x1f && in->window[1] == 0x8b) {
    STOW_TRY(begin_gzip(in, have));
  } else if (unpack_knows(in->window, have) != NULL) {
    STOW_TRY(unpack_open(&in->unpack, in->name, in->window, have, read_packed));
  } else {
    in->end += have;
    in->at_eof = have == 0;
  }
  memset(in->window + (in->end - in->window), 0, INPUT_SLACK);
  return STOW_OK;
}

stow_status input_open(input *in, const char *path, const input_limits *limits) {
  *in = (input){.name = path};
  if (strcmp(path, "-") == 0) {
    in->name = "standard input";
    in->file = stdin;
  } else if (remote_is(path)) {
    in->from = malloc(sizeof *in->from);
    if (in->from == NULL) return no_memory(in, sizeof *in->from);
    stow_status status = source_open(in->from, path);
    if (status != STOW_OK) {
      free(in->from);
      return status;
    }
    in->name = in->from->name;
  } else {
    in->file = fopen(path, "rb");
    if (in->file == NULL) return missing_fail(path, errno);
    in->owns_file = true;
    setvbuf(in->file, NULL, _IONBF, 0); /* the window is the buffer */
  }
  stow_status status = begin(in, limits);
  if (status != STOW_OK) input_close(in);
  return status;
}

stow_status input_open_memory(input *in, const void *bytes, size_t count, const char *name,
                              const input_limits *limits) {
  *in = (input){.name = name, .memory = bytes, .memory_left = count};
  stow_status status = begin(in, limits);
  if (status != STOW_OK) input_close(in);
  return status;
}

stow_status input_open_reader(input *in, const input_reader *reader, const char *name,
                              const input_limits *limits) {
  *in = (input){.name = name, .reader = *reader};
  stow_status status = begin(in, limits);
  if (status != STOW_OK) input_close(in);
  return status;
}

static uint64_t filtered_bytes(void *filter) {
  const input *from = filter;
  return from->raw_bytes;
}

static void close_filter(void *filter) {
  input_close(filter);
  free(filter);
}

stow_status input_wrap(input *in, void *filter,
                       stow_status (*read)(void *filter, uint8_t *to, size_t room, size_t *got)) {
  if (filter == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", in->name);
  input_reader reader = {
      .read = read, .raw_bytes = filtered_bytes, .close = close_filter, .user = filter};
  input_limits limits = in->limits;
  memcpy(filter, in, sizeof *in);
  return input_open_reader(in, &reader, in->name, &limits);
}

void input_close(input *in) {
  unpack_close(in->unpack);
  if (in->reader.close != NULL) in->reader.close(in->reader.user);
  if (in->inflater != NULL) inflateEnd(in->inflater);
  free(in->inflater);
  free(in->raw);
  free(in->held);
  free(in->window);
  if (in->owns_file) fclose(in->file);
  if (in->from != NULL) {
    source_close(in->from);
    free(in->from);
    in->name = "a closed connection"; /* its name was freed */
  }
  *in = (input){.name = in->name};
}

/* Returns whether the line from `at` to `stop` is "#", or begins with "# ". */
static bool is_comment(const uint8_t *at, const uint8_t *stop) {
  if (at == stop || *at != '#') return false;
  return at + 1 == stop || at[1] == ' ' || at[1] == '\n' || at[1] == '\r';
}

/* Returns the start of the comments that the window ends with, at most INPUT_FOOTER_MAX bytes. The
 * last line may continue. */
static const uint8_t *find_footer(const input *in) {
  const uint8_t *footer = in->end;
  const uint8_t *least = input_left(in) > INPUT_FOOTER_MAX ? in->end - INPUT_FOOTER_MAX : in->at;
  for (;;) {
    const uint8_t *at = footer;
    while (at > least && (at == footer || at[-1] != '\n')) at--;
    bool begins = at > in->window ? at[-1] == '\n' : !in->in_line;
    if (at == footer || !begins || !is_comment(at, footer)) return footer;
    footer = at;
  }
}

/* Moves comments at the end of the window to `held`. input_fill puts them back before it reads. */
static void hold_footer(input *in) {
  if (in->held == NULL) return;
  const uint8_t *footer = find_footer(in);
  in->held_bytes = (size_t)(in->end - footer);
  memcpy(in->held, footer, in->held_bytes);
  in->end = footer;
  memset(in->window + (footer - in->window), 0, INPUT_SLACK);
}

stow_status input_drop_footer(input *in) {
  if (in->held != NULL) return STOW_OK;
  in->held = malloc(INPUT_FOOTER_MAX);
  if (in->held == NULL) return no_memory(in, INPUT_FOOTER_MAX);
  hold_footer(in);
  return STOW_OK;
}

stow_status input_fill(input *in, size_t want) {
  size_t have = input_left(in);
  if (have >= want || in->at_eof) return STOW_OK;
  if (in->at > in->window) in->in_line = in->at[-1] != '\n';
  memmove(in->window, in->at, have);
  in->base += (uint64_t)(in->at - in->window);
  in->at = in->window;
  in->end = in->window + have;
  while (input_left(in) < want && !in->at_eof) {
    have = input_left(in) + in->held_bytes;
    if (in->held_bytes > 0) memcpy(in->window + input_left(in), in->held, in->held_bytes);
    in->held_bytes = 0;
    if (have == in->capacity) { /* grow only after bytes really arrived */
      uint8_t *bigger = realloc(in->window, in->capacity * 2 + INPUT_SLACK);
      if (bigger == NULL) return no_memory(in, in->capacity * 2);
      in->window = bigger;
      in->capacity *= 2;
    }
    size_t got, room = in->capacity - have;
    uint8_t *to = in->window + have;
    stow_status status = in->inflater != NULL ? inflate_some(in, to, room, &got)
                         : in->unpack != NULL ? unpack_some(in->unpack, in, to, room, &got)
                                              : read_raw(in, to, room, &got);
    if (status == STOW_OK) {
      have += got;
      in->at_eof = got == 0;
    }
    in->at = in->window;
    in->end = in->window + have;
    memset(in->window + have, 0, INPUT_SLACK);
    hold_footer(in);
    STOW_TRY(status);
    STOW_TRY(check_limits(in, in->base + have));
  }
  return STOW_OK;
}

stow_status input_give(input *in, const uint8_t *stop, uint8_t **memory, size_t *capacity) {
  size_t rest = (size_t)(in->end - stop);
  if (*memory == NULL || *capacity < in->capacity) {
    free(*memory);
    *memory = malloc(in->capacity + INPUT_SLACK);
    *capacity = *memory != NULL ? in->capacity : 0;
    if (*memory == NULL) return no_memory(in, in->capacity);
  }
  uint8_t *given = in->window;
  size_t given_capacity = in->capacity;
  memcpy(*memory, stop, rest);
  memset(*memory + rest, 0, INPUT_SLACK);
  memset(given + (stop - given), 0, INPUT_SLACK);
  if (stop > given) in->in_line = stop[-1] != '\n';
  in->base += (uint64_t)(stop - given);
  in->at = in->window = *memory;
  in->end = in->window + rest;
  in->capacity = *capacity;
  *memory = given;
  *capacity = given_capacity;
  return STOW_OK;
}

stow_status input_skip(input *in, uint64_t count) {
  while (count > input_left(in)) {
    count -= input_left(in);
    in->at = in->end;
    STOW_TRY(input_fill(in, 1));
    if (input_left(in) == 0)
      return stow_fail(STOW_ERR_FORMAT, "%s: truncated: ends at byte %llu, %llu bytes too early",
                       in->name, (unsigned long long)input_offset(in), (unsigned long long)count);
  }
  in->at += count;
  return STOW_OK;
}

stow_status input_seek(input *in, uint64_t offset) {
  uint64_t at = input_offset(in);
  if (offset < at)
    return stow_fail(STOW_ERR_INVALID, "%s: cannot go back to byte %llu", in->name,
                     (unsigned long long)offset);
  bool plain = in->file != NULL && in->inflater == NULL && in->unpack == NULL && in->owns_file;
  if (!plain || offset - at <= input_left(in)) return input_skip(in, offset - at);
  if (fseeko(in->file, (off_t)offset, SEEK_SET) != 0)
    return stow_fail(STOW_ERR_IO, "%s: cannot read at byte %llu: %s", in->name,
                     (unsigned long long)offset, strerror(errno));
  in->at = in->end = in->window;
  in->held_bytes = 0;
  in->in_line = false;
  in->base = in->raw_bytes = offset;
  in->at_eof = false;
  return STOW_OK;
}

stow_status input_line(input *in, const char **line, size_t *count, size_t max) {
  size_t seen = 0, want = 1;
  const uint8_t *end = NULL;
  for (;;) {
    STOW_TRY(input_fill(in, want));
    size_t left = input_left(in);
    if (left > seen) end = memchr(in->at + seen, '\n', left - seen);
    if (end != NULL || left < want) break;
    seen = left;
    if (seen > max) break;
    want = left + 1;
  }
  size_t length = end != NULL ? (size_t)(end - in->at) : input_left(in);
  if (length > max)
    return stow_fail(STOW_ERR_FORMAT, "%s: the line at byte %llu is longer than %zu bytes",
                     in->name, (unsigned long long)input_offset(in), max);
  *line = NULL;
  *count = 0;
  if (length == 0 && end == NULL) return STOW_OK;
  *line = (const char *)in->at;
  in->at += length + (end != NULL);
  if (length > 0 && (*line)[length - 1] == '\r') length--;
  *count = length;
  return STOW_OK;
}
