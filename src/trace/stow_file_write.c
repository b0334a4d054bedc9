/* Writes .stow trace files: pending tables and events become chunks. */
#include <stdlib.h>
#include <string.h>

#include "base/crc32.h"
#include "trace/stow_file.h"
#include "trace/varint.h"

/* A table is written when this many bytes of it are pending. */
enum { PENDING_MAX = 1 << 20 };

static void put_u64(buffer *b, uint64_t value) {
  uint8_t bytes[VARINT_MAX];
  buffer_append(b, bytes, varint_put(bytes, value));
}

static void put_text(buffer *b, const char *bytes, size_t count) {
  put_u64(b, count);
  buffer_append(b, bytes, count);
}

static void put_le(uint8_t *to, uint64_t value, size_t count) {
  for (size_t i = 0; i < count; i++) to[i] = (uint8_t)(value >> (8 * i));
}

static stow_status fail(stowfile_writer *w, stow_status status) {
  if (w->status == STOW_OK) w->status = status;
  return w->status;
}

static stow_status no_memory(stowfile_writer *w) {
  return fail(w, stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to write a trace"));
}

/* Writes w->raw to the sink as one chunk, compressed if the writer has a codec. */
static stow_status put_chunk(stowfile_writer *w, stowfile_kind kind) {
  if (w->status != STOW_OK) return w->status;
  if (w->raw.status != STOW_OK) return fail(w, w->raw.status);
  size_t raw_bytes = w->raw.length, stored = raw_bytes;
  size_t capacity = w->codec != NULL ? w->codec->bound(raw_bytes) : raw_bytes;
  buffer_clear(&w->out);
  uint8_t *head = buffer_extend(&w->out, STOWFILE_CHUNK_HEADER + capacity);
  if (head == NULL) return fail(w, w->out.status);
  uint8_t *payload = head + STOWFILE_CHUNK_HEADER;
  if (w->codec == NULL) {
    if (raw_bytes > 0) memcpy(payload, w->raw.data, raw_bytes);
  } else {
    stored = w->codec->compress(w->codec->state, payload, capacity, w->raw.data, raw_bytes);
    if (stored == 0)
      return fail(w, stow_fail(STOW_ERR_STATE, "stowfile: cannot compress a chunk of %zu bytes",
                               raw_bytes));
  }
  put_le(head, STOWFILE_CHUNK_MAGIC, 4);
  put_le(head + 4, kind, 2);
  put_le(head + 6, w->codec == NULL ? STOWFILE_STORED : 0, 2);
  put_le(head + 8, stored, 4);
  put_le(head + 12, raw_bytes, 4);
  put_le(head + 16, w->sequence++, 4);
  put_le(head + 20, crc32_add(crc32_add(0, head, 20), payload, stored), 4);
  stow_status status = w->sink(w->context, head, STOWFILE_CHUNK_HEADER + stored);
  if (status != STOW_OK) return fail(w, status);
  w->written_bytes += STOWFILE_CHUNK_HEADER + stored;
  return STOW_OK;
}

/* Layout: first ID, count, entries. */
static stow_status flush_table(stowfile_writer *w, stowfile_kind kind, buffer *entries,
                               uint32_t *pending, uint64_t total) {
  if (*pending == 0) return w->status;
  if (entries->status != STOW_OK) return fail(w, entries->status);
  buffer_clear(&w->raw);
  put_u64(&w->raw, total - *pending + 1);
  put_u64(&w->raw, *pending);
  buffer_append(&w->raw, entries->data, entries->length);
  stow_status status = put_chunk(w, kind);
  buffer_clear(entries);
  *pending = 0;
  return status;
}

/* ---- events: one column after another, which compresses better ---- */

enum column { COLUMN_STREAM, COLUMN_STACK, COLUMN_TAG, COLUMN_THREAD, COLUMN_DEVICE, COLUMN_TIER };

static uint64_t column_value(const stowfile_writer *w, uint32_t i, enum column column) {
  const origin *of = &w->origins[i];
  switch (column) {
  case COLUMN_STREAM: return of->stream;
  case COLUMN_STACK: return w->events[i].stack_id;
  case COLUMN_TAG: return of->tag_id;
  case COLUMN_THREAD: return of->thread;
  case COLUMN_DEVICE: return of->device;
  default: return of->tier;
  }
}

/* Writes a column that rarely changes, as pairs of value and repeat count. */
static void put_runs(stowfile_writer *w, uint32_t count, enum column column) {
  buffer *b = &w->raw;
  for (uint32_t i = 0; i < count;) {
    uint64_t value = column_value(w, i, column);
    uint32_t run = 1;
    while (i + run < count && column_value(w, i + run, column) == value) run++;
    put_u64(b, value);
    put_u64(b, run);
    i += run;
  }
}

static stow_status flush_events(stowfile_writer *w) {
  uint32_t count = w->event_pending;
  if (count == 0) return w->status;
  const event *events = w->events;
  buffer *b = &w->raw;
  buffer_clear(b);
  put_u64(b, w->event_count - count + 1);
  put_u64(b, count);
  for (uint32_t i = 0; i < count; i++) buffer_char(b, (char)events[i].kind);
  for (uint64_t i = 0, last = 0; i < count; last = events[i++].time_ns)
    put_u64(b, zigzag(events[i].time_ns - last));
  for (uint64_t i = 0, last = 0; i < count; last = events[i++].addr)
    put_u64(b, zigzag(events[i].addr - last));
  for (uint32_t i = 0; i < count; i++) put_u64(b, events[i].bytes);
  for (int column = COLUMN_STREAM; column <= COLUMN_TIER; column++)
    put_runs(w, count, (enum column)column);
  w->event_pending = 0;
  return put_chunk(w, STOWFILE_EVENTS);
}

/* ---- called by the recorder ---- */

stow_status stowfile_begin(stowfile_writer *w, stowfile_sink sink, void *context,
                           const stowfile_codec *codec) {
  *w = (stowfile_writer){.sink = sink, .context = context, .codec = codec};
  w->facts = w->names = w->frames = w->stacks = w->settings = w->segments = BUFFER_INIT;
  w->raw = BUFFER_BOUNDED(STOWFILE_CHUNK_MAX);
  w->out = BUFFER_INIT;
  w->events = malloc(STOWFILE_CHUNK_EVENTS * sizeof *w->events);
  w->origins = malloc(STOWFILE_CHUNK_EVENTS * sizeof *w->origins);
  if (w->events == NULL || w->origins == NULL) return no_memory(w);
  uint8_t header[STOWFILE_HEADER_BYTES] = STOWFILE_MAGIC;
  put_le(header + 8, STOWFILE_VERSION, 2);
  put_le(header + 10, STOWFILE_HEADER_BYTES, 2);
  put_le(header + 12, crc32_add(0, header, 12), 4);
  w->written_bytes = sizeof header;
  return fail(w, sink(context, header, sizeof header));
}

void stowfile_free(stowfile_writer *w) {
  free(w->events);
  free(w->origins);
  buffer *all[] = {&w->facts,    &w->names,    &w->frames, &w->stacks,
                   &w->settings, &w->segments, &w->raw,    &w->out};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) buffer_free(all[i]);
  *w = (stowfile_writer){0};
}

static stow_status add_pair(stowfile_writer *w, buffer *b, uint32_t *pending, const char *key,
                            const char *value) {
  if (w->status != STOW_OK) return w->status;
  put_text(b, key, strlen(key));
  put_text(b, value, strlen(value));
  ++*pending;
  return b->length > PENDING_MAX ? stowfile_flush(w) : STOW_OK;
}

stow_status stowfile_add_fact(stowfile_writer *w, const char *key, const char *value) {
  return add_pair(w, &w->facts, &w->fact_pending, key, value);
}

stow_status stowfile_add_setting(stowfile_writer *w, const char *key, const char *value) {
  return add_pair(w, &w->settings, &w->setting_pending, key, value);
}

uint32_t stowfile_add_name(stowfile_writer *w, const char *bytes, size_t count) {
  if (count > PENDING_MAX) count = PENDING_MAX; /* a megabyte is enough for a name */
  if (w->names.length + count > 2 * PENDING_MAX) stowfile_flush(w);
  if (w->status != STOW_OK) return 0;
  put_text(&w->names, bytes, count);
  w->name_pending++;
  return ++w->name_count;
}

uint32_t stowfile_add_frame(stowfile_writer *w, const frame *f) {
  if (w->frames.length > PENDING_MAX) stowfile_flush(w);
  if (w->status != STOW_OK) return 0;
  put_u64(&w->frames, f->name_id);
  put_u64(&w->frames, f->file_id);
  put_u64(&w->frames, f->line);
  w->frame_pending++;
  return ++w->frame_count;
}

uint32_t stowfile_add_stack(stowfile_writer *w, const uint32_t *frame_ids, uint32_t count) {
  if (w->stacks.length > PENDING_MAX) stowfile_flush(w);
  if (w->status != STOW_OK) return 0;
  put_u64(&w->stacks, count);
  for (uint64_t i = 0, last = 0; i < count; last = frame_ids[i++])
    put_u64(&w->stacks, zigzag(frame_ids[i] - last));
  w->stack_pending++;
  return ++w->stack_count;
}

stow_status stowfile_add_event(stowfile_writer *w, const event *e, const origin *of) {
  if (w->status != STOW_OK) return w->status;
  w->events[w->event_pending] = *e;
  w->origins[w->event_pending++] = *of;
  w->event_count++;
  return w->event_pending == STOWFILE_CHUNK_EVENTS ? stowfile_flush(w) : STOW_OK;
}

stow_status stowfile_add_segment(stowfile_writer *w, const segment *s, const block *blocks) {
  if (w->status != STOW_OK) return w->status;
  buffer *b = &w->segments;
  put_u64(b, s->addr);
  put_u64(b, s->bytes);
  put_u64(b, s->stream);
  put_u64(b, s->stack_id);
  put_u64(b, zigzag((uint64_t)s->pool[0]));
  put_u64(b, zigzag((uint64_t)s->pool[1]));
  put_u64(b, s->device);
  put_u64(b, (unsigned)s->small | (unsigned)s->expandable << 1);
  put_u64(b, s->block_count);
  uint64_t behind = s->addr; /* blocks fill their segment in order */
  for (uint32_t i = 0; i < s->block_count; i++) {
    const block *k = &blocks[i];
    put_u64(b, zigzag(k->addr - behind));
    put_u64(b, k->bytes);
    put_u64(b, k->requested_bytes);
    put_u64(b, k->stack_id);
    put_u64(b, k->state);
    behind = k->addr + k->bytes;
  }
  w->segment_pending++;
  if (b->length > STOWFILE_CHUNK_MAX - 64)
    return fail(w, stow_fail(STOW_ERR_OVERFLOW,
                             "a segment of %u blocks does not fit a chunk of a trace file",
                             s->block_count));
  return b->length > PENDING_MAX ? stowfile_flush(w) : STOW_OK;
}

stow_status stowfile_flush(stowfile_writer *w) {
  flush_table(w, STOWFILE_FACTS, &w->facts, &w->fact_pending, w->fact_pending);
  flush_table(w, STOWFILE_SETTINGS, &w->settings, &w->setting_pending, w->setting_pending);
  flush_table(w, STOWFILE_NAMES, &w->names, &w->name_pending, w->name_count);
  flush_table(w, STOWFILE_FRAMES, &w->frames, &w->frame_pending, w->frame_count);
  flush_table(w, STOWFILE_STACKS, &w->stacks, &w->stack_pending, w->stack_count);
  flush_events(w);
  /* The final state is written after the last event. */
  return flush_table(w, STOWFILE_SEGMENTS, &w->segments, &w->segment_pending, w->segment_pending);
}

stow_status stowfile_end(stowfile_writer *w, uint64_t lost_events) {
  STOW_TRY(stowfile_flush(w));
  buffer_clear(&w->raw);
  put_u64(&w->raw, w->event_count);
  put_u64(&w->raw, lost_events);
  return put_chunk(w, STOWFILE_END);
}
