/* The .stow trace file: layout and writer. A live recorder and `convert` write it in chunks;
 * recordings/stow_recording.h reads it.
 *
 * The layout is docs/trace-format.md. A chunk reaches the sink in one call and is complete in
 * itself: what was written before the writer died is readable. Tables (names, frames, stacks) go
 * before the events that use them.
 *
 *   stowfile_writer w;
 *   stowfile_begin(&w, sink, context, codec);     header
 *   stowfile_add_fact(&w, "pid", "4711");
 *   id = stowfile_add_name(&w, text, n); …        tables grow as needed; ids count from 1
 *   stowfile_add_event(&w, &e); …                 a chunk goes out by itself now and then
 *   stowfile_flush(&w);                           or when the recorder wants it on disk
 *   stowfile_end(&w);                             the end mark; then stowfile_free
 *
 * A writer's calls are checked once: the first failure is kept in `status`, later calls do nothing.
 */
#ifndef TRACE_STOW_FILE_H
#define TRACE_STOW_FILE_H

#include "base/buffer.h"
#include "trace/event.h"

#define STOWFILE_MAGIC        "\x89STOW\r\n\x1a" /* 8 bytes; the idea is PNG's */
#define STOWFILE_VERSION      1
#define STOWFILE_HEADER_BYTES 16
#define STOWFILE_CHUNK_MAGIC  UINT32_C(0x4b484353) /* "SCHK" */
#define STOWFILE_CHUNK_HEADER 24
#define STOWFILE_CHUNK_MAX    (16u << 20) /* raw bytes of one chunk */
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

/* Takes all of `bytes`: one whole chunk. */
typedef stow_status (*stowfile_sink)(void *context, const void *bytes, size_t count);

/* How chunks are compressed. The recorder inside a program has no codec: it needs libc only. */
typedef struct stowfile_codec {
  void *state;
  size_t (*bound)(size_t raw_bytes);
  /* Compresses into `to` (bound(raw_bytes) long) and returns the bytes used, 0 on failure. */
  size_t (*compress)(void *state, void *to, size_t to_bytes, const void *raw, size_t raw_bytes);
} stowfile_codec;

typedef struct stowfile_writer {
  stowfile_sink sink;
  void *context;
  stow_status status;                                      /* the first failure */
  const stowfile_codec *codec;                             /* NULL: chunks are stored as they are */
  buffer facts, names, frames, stacks, settings, segments; /* entries not yet written */
  uint32_t name_count, frame_count, stack_count;           /* ever added */
  uint32_t fact_pending, name_pending, frame_pending, stack_pending, setting_pending;
  uint32_t segment_pending;
  event *events;   /* STOWFILE_CHUNK_EVENTS of them, */
  origin *origins; /* and whose they are; origin_id is not looked at */
  uint32_t event_pending;
  uint64_t event_count; /* ever added */
  uint32_t sequence;    /* of the next chunk */
  uint64_t written_bytes;
  buffer raw, out;
} stowfile_writer;

/* Writes the header. `codec` (NULL: none) must outlive the writer. */
stow_status stowfile_begin(stowfile_writer *w, stowfile_sink sink, void *context,
                           const stowfile_codec *codec);
void stowfile_free(stowfile_writer *w);
stow_status stowfile_add_fact(stowfile_writer *w, const char *key, const char *value);
stow_status stowfile_add_setting(stowfile_writer *w, const char *key, const char *value);
/* The new id; 0 once the writer has failed. Nothing is interned here: the caller's tables do that.
 */
uint32_t stowfile_add_name(stowfile_writer *w, const char *bytes, size_t count);
uint32_t stowfile_add_frame(stowfile_writer *w, const frame *f);
uint32_t stowfile_add_stack(stowfile_writer *w, const uint32_t *frame_ids, uint32_t count);
stow_status stowfile_add_event(stowfile_writer *w, const event *e, const origin *of);
stow_status stowfile_add_segment(stowfile_writer *w, const segment *s, const block *blocks);
/* Everything pending goes to the sink. */
stow_status stowfile_flush(stowfile_writer *w);
/* Flushes and marks the end; `lost_events` were never given to the writer (a ring ran over). */
stow_status stowfile_end(stowfile_writer *w, uint64_t lost_events);

#endif
