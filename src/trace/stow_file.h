/* The .stow trace file: layout and writer. A live recorder and `convert` write it in chunks;
 * recordings/stow_recording.h reads it.
 *
 * The layout is docs/trace-format.md. A chunk reaches the sink in one call and is self-contained,
 * so everything written before the writer died is readable. Tables (names, frames, stacks) come
 * before the events that use them.
 *
 *   stowfile_writer w;
 *   stowfile_begin(&w, sink, context, codec);     header
 *   stowfile_add_fact(&w, "pid", "4711");
 *   id = stowfile_add_name(&w, text, n); …        tables grow as needed; ids count from 1
 *   stowfile_add_event(&w, &e); …                 writes a chunk when enough is pending
 *   stowfile_flush(&w);                           writes what is pending
 *   stowfile_end(&w);                             writes the end mark; then stowfile_free
 *
 * The caller needs to check only once: the first failure is kept in `status`, and later calls do
 * nothing.
 * */
#ifndef TRACE_STOW_FILE_H
#define TRACE_STOW_FILE_H

#include "base/buffer.h"
#include "trace/event.h"

#define STOWFILE_MAGIC        "\x89STOW\r\n\x1a" /* 8 bytes, modelled on PNG's signature */
#define STOWFILE_VERSION      1
#define STOWFILE_HEADER_BYTES 16
#define STOWFILE_CHUNK_MAGIC  UINT32_C(0x4b484353) /* "SCHK" */
#define STOWFILE_CHUNK_HEADER 24
#define STOWFILE_CHUNK_MAX    (16u << 20) /* largest chunk, uncompressed */
#define STOWFILE_CHUNK_EVENTS 8192
#define STOWFILE_STORED       1u /* chunk flag: the payload is not compressed */

typedef enum stowfile_kind {
  STOWFILE_FACTS = 1,
  STOWFILE_NAMES,
  STOWFILE_FRAMES,
  STOWFILE_STACKS,
  STOWFILE_EVENTS,
  STOWFILE_SEGMENTS,
  STOWFILE_SETTINGS,
  STOWFILE_END,
} stowfile_kind;

/* Writes all of `bytes`, which are one whole chunk. */
typedef stow_status (*stowfile_sink)(void *context, const void *bytes, size_t count);

/* How chunks are compressed. The recorder inside a program has no codec, because it may use only
 * libc. */
typedef struct stowfile_codec {
  void *state;
  size_t (*bound)(size_t raw_bytes);
  /* Compresses into `to` (bound(raw_bytes) long). Returns the bytes used, or 0 on failure. */
  size_t (*compress)(void *state, void *to, size_t to_bytes, const void *raw, size_t raw_bytes);
} stowfile_codec;

typedef struct stowfile_writer {
  stowfile_sink sink;
  void *context;
  stow_status status;                                      /* the first failure */
  const stowfile_codec *codec;                             /* NULL: chunks are stored as they are */
  buffer facts, names, frames, stacks, settings, segments; /* entries that are not written yet */
  uint32_t name_count, frame_count, stack_count;           /* numbers of entries added so far */
  uint32_t fact_pending, name_pending, frame_pending, stack_pending, setting_pending;
  uint32_t segment_pending;
  event *events;   /* STOWFILE_CHUNK_EVENTS events */
  origin *origins; /* the origin of each event; the event's own origin_id is ignored */
  uint32_t event_pending;
  uint64_t event_count; /* events added so far */
  uint32_t sequence;    /* number of the next chunk */
  uint64_t written_bytes;
  buffer raw, out;
} stowfile_writer;

/* Writes the header. `codec` (NULL: none) must outlive the writer. */
stow_status stowfile_begin(stowfile_writer *w, stowfile_sink sink, void *context,
                           const stowfile_codec *codec);
void stowfile_free(stowfile_writer *w);
stow_status stowfile_add_fact(stowfile_writer *w, const char *key, const char *value);
stow_status stowfile_add_setting(stowfile_writer *w, const char *key, const char *value);
/* Return the new ID, or 0 once the writer has failed. Equal entries are not merged here: the
 * caller's tables do that. */
uint32_t stowfile_add_name(stowfile_writer *w, const char *bytes, size_t count);
uint32_t stowfile_add_frame(stowfile_writer *w, const frame *f);
uint32_t stowfile_add_stack(stowfile_writer *w, const uint32_t *frame_ids, uint32_t count);
stow_status stowfile_add_event(stowfile_writer *w, const event *e, const origin *of);
stow_status stowfile_add_segment(stowfile_writer *w, const segment *s, const block *blocks);
/* Writes everything pending to the sink. */
stow_status stowfile_flush(stowfile_writer *w);
/* Flushes and writes the end mark. `lost_events` never reached the writer because the ring
 * overflowed. */
stow_status stowfile_end(stowfile_writer *w, uint64_t lost_events);

#endif
