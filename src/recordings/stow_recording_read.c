/* Reads the .stow trace file chunk by chunk, checking each before using it.
 *
 * A chunk that is torn off at the end or has a wrong checksum is dropped and counted; the rest
 * is used. Ids in the file are mapped to the recording's, so a lost table only leaves names
 * unknown. */
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/crc32.h"
#include "recordings/stow_recording.h"
#include "trace/varint.h"

#define RATIO_GRACE (UINT64_C(64) << 20) /* as for gzip (input.h) */

typedef struct id_map { /* file id - 1 → recording id, 0 if lost */
  uint32_t *ids;
  size_t count, capacity;
} id_map;

typedef struct reader {
  recording *r;
  input *in;
  uint8_t *raw; /* one chunk, decompressed */
  size_t raw_capacity;
  ZSTD_DCtx *decompressor;
  const uint8_t *at, *end; /* positions in raw */
  id_map names, frames, stacks;
  uint64_t max_work_bytes, work_bytes;
  uint64_t stored_total, raw_total; /* totals over the chunks so far, to detect decompression
                                     * bombs */
  uint64_t chunk_offset, events_seen, events_said;
  bool ended;
} reader;

static uint64_t get_le(const uint8_t *p, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; i++) value |= (uint64_t)p[i] << (8 * i);
  return value;
}

static stow_status broken(const reader *x, const char *what) {
  return stow_fail(STOW_ERR_FORMAT, "%s: the chunk at byte %llu is corrupt: %s", x->in->name,
                   (unsigned long long)x->chunk_offset, what);
}

static stow_status get(reader *x, uint64_t *value) {
  return varint_get(&x->at, x->end, value) ? STOW_OK : broken(x, "a number is truncated");
}

static stow_status get_text(reader *x, const char **text, size_t *count) {
  uint64_t length;
  STOW_TRY(get(x, &length));
  if (length > (uint64_t)(x->end - x->at)) return broken(x, "a text is longer than the chunk");
  *text = (const char *)x->at;
  *count = (size_t)length;
  x->at += length;
  return STOW_OK;
}

/* Reads "first, count" at the head of a table; every entry takes at least `least` bytes. */
static stow_status get_range(reader *x, uint64_t *first, uint64_t *count, uint64_t least) {
  STOW_TRY(get(x, first));
  STOW_TRY(get(x, count));
  if (*first == 0 || *count > (uint64_t)(x->end - x->at) / least)
    return broken(x, "it declares more entries than it has bytes");
  return STOW_OK;
}

/* ---- ids ---- */

static stow_status map_room(reader *x, id_map *m, uint64_t first, uint64_t count) {
  uint64_t need = first - 1 + count;
  if (first > UINT32_MAX || need > UINT32_MAX) return broken(x, "an id exceeds 32 bits");
  if (need > m->capacity) {
    uint64_t wanted = need + need / 2 + 64;
    uint64_t more = (wanted - m->capacity) * sizeof *m->ids;
    if (x->work_bytes + more > x->max_work_bytes)
      return stow_fail(STOW_ERR_BUDGET, "%s: its tables need more than the %llu MiB allowed",
                       x->in->name, (unsigned long long)(x->max_work_bytes >> 20));
    uint32_t *ids = realloc(m->ids, wanted * sizeof *ids);
    if (ids == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to read a trace");
    memset(ids + m->capacity, 0, (size_t)more);
    x->work_bytes += more;
    m->ids = ids;
    m->capacity = (size_t)wanted;
  }
  if (need > m->count) m->count = (size_t)need;
  return STOW_OK;
}

/* Maps an id. 0 stays 0; an id whose table was lost becomes 0 and is counted. */
static uint32_t mapped(reader *x, const id_map *m, uint64_t id) {
  if (id == 0) return 0;
  if (id <= m->count && m->ids[id - 1] != 0) return m->ids[id - 1];
  x->r->bad_values++;
  return 0;
}

static stow_status read_names(reader *x) {
  uint64_t first, count;
  STOW_TRY(get_range(x, &first, &count, 1));
  STOW_TRY(map_room(x, &x->names, first, count));
  for (uint64_t i = 0; i < count; i++) {
    const char *text = NULL;
    size_t length = 0;
    STOW_TRY(get_text(x, &text, &length));
    STOW_TRY(recording_name(x->r, &x->names.ids[first - 1 + i], text, length));
  }
  return STOW_OK;
}

static stow_status read_frames(reader *x) {
  uint64_t first, count;
  STOW_TRY(get_range(x, &first, &count, 3));
  STOW_TRY(map_room(x, &x->frames, first, count));
  for (uint64_t i = 0; i < count; i++) {
    uint64_t name, file, line;
    STOW_TRY(get(x, &name));
    STOW_TRY(get(x, &file));
    STOW_TRY(get(x, &line));
    STOW_TRY(recording_frame(x->r, &x->frames.ids[first - 1 + i], mapped(x, &x->names, name),
                             mapped(x, &x->names, file), (uint32_t)line));
  }
  return STOW_OK;
}

static stow_status read_stacks(reader *x) {
  enum { FRAMES_MAX = 4096 };
  uint32_t frames[FRAMES_MAX];
  uint64_t first, count;
  STOW_TRY(get_range(x, &first, &count, 1));
  STOW_TRY(map_room(x, &x->stacks, first, count));
  for (uint64_t i = 0; i < count; i++) {
    uint64_t depth, difference, id = 0;
    STOW_TRY(get(x, &depth));
    if (depth > FRAMES_MAX) return broken(x, "a stack has more than 4096 frames");
    for (uint64_t k = 0; k < depth; k++) {
      STOW_TRY(get(x, &difference));
      id += unzigzag(difference);
      frames[k] = mapped(x, &x->frames, id);
    }
    STOW_TRY(recording_stack(x->r, &x->stacks.ids[first - 1 + i], frames, (uint32_t)depth));
  }
  return STOW_OK;
}

/* ---- events ---- */

enum column { COLUMN_STREAM, COLUMN_STACK, COLUMN_TAG, COLUMN_THREAD, COLUMN_DEVICE, COLUMN_TIER };

static void set_column(reader *x, event *e, origin *of, enum column column, uint64_t value) {
  switch (column) {
  case COLUMN_STREAM: of->stream = value; break;
  case COLUMN_STACK: e->stack_id = (uint32_t)value; break;
  case COLUMN_TAG: of->tag_id = (uint32_t)value; break;
  case COLUMN_THREAD: of->thread = (uint32_t)value; break;
  case COLUMN_DEVICE:
    if (value > UINT16_MAX) x->r->bad_values++;
    of->device = (uint16_t)value;
    break;
  case COLUMN_TIER:
    if (value > 2) x->r->bad_values++;
    of->tier = value > 2 ? 0 : (uint8_t)value;
    break;
  }
}

static stow_status read_runs(reader *x, event *events, origin *origins, uint64_t count,
                             enum column column) {
  for (uint64_t i = 0; i < count;) {
    uint64_t value, run;
    STOW_TRY(get(x, &value));
    STOW_TRY(get(x, &run));
    if (run == 0 || run > count - i) return broken(x, "a run extends past the number of events");
    if (column == COLUMN_STACK) value = mapped(x, &x->stacks, value);
    if (column == COLUMN_TAG) value = mapped(x, &x->names, value);
    for (; run > 0; run--, i++) set_column(x, &events[i], &origins[i], column, value);
  }
  return STOW_OK;
}

/* Reads the columns after the kinds into existing events. */
static stow_status read_columns(reader *x, event *events, origin *origins, uint64_t count) {
  uint64_t value, sum = 0;
  for (uint64_t i = 0; i < count; i++) {
    STOW_TRY(get(x, &value));
    events[i].time_ns = sum += unzigzag(value);
  }
  sum = 0;
  for (uint64_t i = 0; i < count; i++) {
    STOW_TRY(get(x, &value));
    events[i].addr = sum += unzigzag(value);
  }
  for (uint64_t i = 0; i < count; i++) STOW_TRY(get(x, &events[i].bytes));
  for (int column = COLUMN_STREAM; column <= COLUMN_TIER; column++)
    STOW_TRY(read_runs(x, events, origins, count, (enum column)column));
  return STOW_OK;
}

static stow_status read_events(reader *x) {
  uint64_t first, count;
  STOW_TRY(get_range(x, &first, &count, 4));
  recording *r = x->r;
  size_t before = r->event_count;
  for (uint64_t i = 0; i < count; i++) STOW_TRY(recording_add_event(r, &(event){0}, NULL));
  if (count == 0) return STOW_OK;
  const uint8_t *kinds = x->at;
  x->at += count;
  origin *origins = calloc(count, sizeof *origins);
  if (origins == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a chunk of %llu events",
                     (unsigned long long)count);
  stow_status status = read_columns(x, r->events + before, origins, count);
  size_t to = before;
  for (uint64_t i = 0; i < count && status == STOW_OK; i++) {
    uint32_t id;
    if (kinds[i] >= EVENT_KIND_COUNT) continue; /* from a later version: skipped */
    status = recording_origin(r, &id, &origins[i]);
    r->events[to] = r->events[before + i];
    r->events[to].kind = kinds[i];
    r->events[to++].origin_id = id;
  }
  free(origins);
  if (status == STOW_OK) {
    r->skipped_events += count - (to - before);
    x->events_seen += count;
  }
  r->event_count = status == STOW_OK ? to : before;
  return status;
}

/* ---- the rest ---- */

static stow_status read_segment(reader *x) {
  uint64_t f[9];
  for (int i = 0; i < 9; i++) STOW_TRY(get(x, &f[i]));
  if (f[8] > (uint64_t)(x->end - x->at) / 5)
    return broken(x, "it declares more blocks than it has bytes");
  segment s = {.addr = f[0],
               .bytes = f[1],
               .stream = f[2],
               .first_block = x->r->block_count,
               .block_count = (uint32_t)f[8],
               .stack_id = mapped(x, &x->stacks, f[3]),
               .pool = {(int64_t)unzigzag(f[4]), (int64_t)unzigzag(f[5])},
               .device = (uint16_t)f[6],
               .small = f[7] & 1,
               .expandable = f[7] >> 1 & 1};
  uint64_t behind = s.addr;
  for (uint32_t i = 0; i < s.block_count; i++) {
    uint64_t b[5];
    for (int k = 0; k < 5; k++) STOW_TRY(get(x, &b[k]));
    block k = {.addr = behind + unzigzag(b[0]),
               .bytes = b[1],
               .requested_bytes = b[2],
               .stack_id = mapped(x, &x->stacks, b[3]),
               .state = b[4] <= BLOCK_PENDING ? (uint8_t)b[4] : BLOCK_FREE};
    STOW_TRY(recording_add_block(x->r, &k));
    behind = k.addr + k.bytes;
  }
  return recording_add_segment(x->r, &s);
}

static stow_status read_segments(reader *x) {
  uint64_t first, count;
  STOW_TRY(get_range(x, &first, &count, 9));
  for (uint64_t i = 0; i < count; i++) STOW_TRY(read_segment(x));
  return STOW_OK;
}

/* Stores facts that have a field in the model there, and the others as they are. */
static stow_status take_fact(recording *r, const char *key, const char *value) {
  static const char *const sources[] = {"unknown", "torch", "stow", "rmm", "minimalloc"};
  if (strcmp(key, "error") == 0) return recording_name(r, &r->error_id, value, strlen(value));
  if (strcmp(key, "device_name") == 0)
    return recording_name(r, &r->device_name_id, value, strlen(value));
  if (strcmp(key, "device_bytes") == 0) {
    r->device_bytes = strtoull(value, NULL, 10);
    return STOW_OK;
  }
  if (strcmp(key, "source") != 0) return recording_add_fact(r, key, value);
  for (int i = 0; i <= SOURCE_MINIMALLOC; i++)
    if (strcmp(value, sources[i]) == 0) r->source = (recording_source)i;
  return STOW_OK;
}

static stow_status read_pairs(reader *x, bool facts) {
  uint64_t first, count;
  STOW_TRY(get_range(x, &first, &count, 2));
  buffer key = BUFFER_INIT, value = BUFFER_INIT;
  stow_status status = STOW_OK;
  for (uint64_t i = 0; i < count && status == STOW_OK; i++) {
    const char *text[2] = {NULL, NULL};
    size_t length[2] = {0, 0};
    for (int k = 0; k < 2 && status == STOW_OK; k++) status = get_text(x, &text[k], &length[k]);
    if (status != STOW_OK) break;
    buffer_clear(&key);
    buffer_clear(&value);
    buffer_append(&key, text[0], length[0]);
    buffer_append(&value, text[1], length[1]);
    buffer_char(&key, '\0'); /* a text ends at its first zero byte */
    buffer_char(&value, '\0');
    status = key.status != STOW_OK ? key.status : value.status;
    if (status == STOW_OK)
      status = facts ? take_fact(x->r, key.data, value.data)
                     : recording_add_setting(x->r, key.data, value.data);
  }
  buffer_free(&key);
  buffer_free(&value);
  return status;
}

static stow_status read_end(reader *x) {
  uint64_t lost;
  STOW_TRY(get(x, &x->events_said));
  STOW_TRY(get(x, &lost));
  x->r->skipped_events += lost;
  x->ended = true;
  return STOW_OK;
}

static stow_status read_chunk(reader *x, unsigned kind) {
  switch (kind) {
  case STOWFILE_FACTS: return read_pairs(x, true);
  case STOWFILE_SETTINGS: return read_pairs(x, false);
  case STOWFILE_NAMES: return read_names(x);
  case STOWFILE_FRAMES: return read_frames(x);
  case STOWFILE_STACKS: return read_stacks(x);
  case STOWFILE_EVENTS: return read_events(x);
  case STOWFILE_SEGMENTS: return read_segments(x);
  case STOWFILE_END: return read_end(x);
  default: x->r->unknown_fields++; return STOW_OK; /* from a later version */
  }
}

/* Makes the payload of a chunk readable at x->at. */
static stow_status unpack(reader *x, const uint8_t *stored, size_t count, size_t raw_bytes,
                          unsigned flags) {
  if ((flags & ~STOWFILE_STORED) != 0) return broken(x, "it has flags of a newer version");
  if ((flags & STOWFILE_STORED) != 0 && count != raw_bytes)
    return broken(x, "its stored and declared sizes differ");
  x->stored_total += count;
  x->raw_total += raw_bytes;
  if (x->raw_total > x->in->limits.max_bytes ||
      (x->raw_total > RATIO_GRACE && x->raw_total / x->in->limits.max_ratio > x->stored_total))
    return stow_fail(
        STOW_ERR_BUDGET,
        "%s: %llu KiB expanded to %llu MiB (byte %llu): this may be a decompression bomb",
        x->in->name, (unsigned long long)(x->stored_total >> 10),
        (unsigned long long)(x->raw_total >> 20), (unsigned long long)x->chunk_offset);
  if (x->raw == NULL || raw_bytes > x->raw_capacity) {
    uint8_t *raw = realloc(x->raw, raw_bytes + 1);
    if (raw == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to read a trace");
    x->raw = raw;
    x->raw_capacity = raw_bytes;
  }
  size_t made = raw_bytes;
  if ((flags & STOWFILE_STORED) != 0)
    memcpy(x->raw, stored, count);
  else
    made = ZSTD_decompressDCtx(x->decompressor, x->raw, raw_bytes, stored, count);
  if (ZSTD_isError(made) || made != raw_bytes) return broken(x, "it cannot be decompressed");
  x->at = x->raw;
  x->end = x->raw + raw_bytes;
  return STOW_OK;
}

/* Counts the bytes after the last complete chunk. */
static stow_status torn(reader *x) {
  while (input_left(x->in) > 0) {
    x->r->torn_bytes += input_left(x->in);
    x->in->at = x->in->end;
    STOW_TRY(input_fill(x->in, 1));
  }
  return STOW_OK;
}

/* Reads one chunk; *more is false at the end. Damage inside a chunk drops only that chunk. */
static stow_status next_chunk(reader *x, bool *more) {
  *more = false;
  x->chunk_offset = input_offset(x->in);
  STOW_TRY(input_fill(x->in, STOWFILE_CHUNK_HEADER));
  const uint8_t *head = x->in->at;
  if (input_left(x->in) < STOWFILE_CHUNK_HEADER) return torn(x);
  size_t stored = (size_t)get_le(head + 8, 4), raw = (size_t)get_le(head + 12, 4);
  if (get_le(head, 4) != STOWFILE_CHUNK_MAGIC || raw > STOWFILE_CHUNK_MAX ||
      stored > ZSTD_compressBound(STOWFILE_CHUNK_MAX))
    return torn(x); /* the start of the next chunk is unknown */
  STOW_TRY(input_fill(x->in, STOWFILE_CHUNK_HEADER + stored));
  if (input_left(x->in) < STOWFILE_CHUNK_HEADER + stored) return torn(x);
  head = x->in->at;
  uint32_t crc = crc32_add(0, head, 20);
  crc = crc32_add(crc, head + STOWFILE_CHUNK_HEADER, stored);
  unsigned kind = (unsigned)get_le(head + 4, 2), flags = (unsigned)get_le(head + 6, 2);
  x->in->at += STOWFILE_CHUNK_HEADER + stored;
  *more = true;
  if (crc != get_le(head + 20, 4)) {
    x->r->damaged_chunks++;
    return STOW_OK;
  }
  stow_status status = unpack(x, head + STOWFILE_CHUNK_HEADER, stored, raw, flags);
  if (status == STOW_OK) status = read_chunk(x, kind);
  if (status != STOW_ERR_FORMAT) return status;
  x->r->damaged_chunks++;
  return STOW_OK;
}

static stow_status read_header(reader *x) {
  STOW_TRY(input_fill(x->in, STOWFILE_HEADER_BYTES));
  const uint8_t *head = x->in->at;
  if (input_left(x->in) < STOWFILE_HEADER_BYTES || memcmp(head, STOWFILE_MAGIC, 8) != 0)
    return stow_fail(STOW_ERR_FORMAT, "%s: not a .stow trace: wrong magic number", x->in->name);
  unsigned version = (unsigned)get_le(head + 8, 2), bytes = (unsigned)get_le(head + 10, 2);
  if (crc32_add(0, head, 12) != get_le(head + 12, 4))
    return stow_fail(STOW_ERR_FORMAT, "%s: the header is damaged (byte 12: wrong checksum)",
                     x->in->name);
  if (version != STOWFILE_VERSION)
    return stow_fail(
        STOW_ERR_UNSUPPORTED,
        "%s: a .stow trace of version %u; this program reads version %d: use a newer one",
        x->in->name, version, STOWFILE_VERSION);
  return input_skip(x->in, bytes < STOWFILE_HEADER_BYTES ? STOWFILE_HEADER_BYTES : bytes);
}

stow_status recording_read_stow(recording *r, input *in, uint64_t max_work_bytes) {
  reader x = {.r = r, .in = in, .max_work_bytes = max_work_bytes};
  r->source = SOURCE_STOW;
  x.decompressor = ZSTD_createDCtx();
  stow_status status = x.decompressor != NULL
                           ? read_header(&x)
                           : stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to read a trace");
  for (bool more = true; more && status == STOW_OK;) status = next_chunk(&x, &more);
  r->ended = x.ended;
  /* In a live recording, a thread that was interrupted between reading the clock and storing its
   * event is slightly late. Within a thread times increase strictly. */
  if (status == STOW_OK && recording_fact(r, "trace_id") != NULL) recording_sort(r);
  if (status == STOW_OK && x.ended && x.events_said > x.events_seen)
    r->skipped_events += x.events_said - x.events_seen;
  ZSTD_freeDCtx(x.decompressor);
  free(x.raw);
  free(x.names.ids);
  free(x.frames.ids);
  free(x.stacks.ids);
  return status;
}
