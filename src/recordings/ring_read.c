/* Reads a ring into a recording and joins it with the recording's file.
 *
 * Events are read before texts: a text is always stored before the event that names it, so even in
 * a live ring every id found has its text. Within a thread times increase strictly, and the file
 * holds the beginning of what a thread recorded. So the events missing from the file are those
 * later than its last. */
#include "recordings/ring_read.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stowage/trace.h>

#include "base/checked.h"
#include "recordings/id_table.h"
#include "trace/ring.h"

_Static_assert((int)STOW_TRACE_KIND_COUNT == (int)EVENT_KIND_COUNT &&
                   (int)STOW_TRACE_FAIL == (int)EVENT_FAIL &&
                   (int)STOW_TRACE_MARK_END == (int)EVENT_MARK_END &&
                   (int)STOW_TRACE_SPILL == (int)EVENT_SPILL &&
                   (int)STOW_TRACE_LAUNCH == (int)EVENT_LAUNCH &&
                   (int)STOW_TRACE_TOUCH == (int)EVENT_TOUCH,
               "a recording numbers events as the public header does");

typedef struct reader {
  recording *out;
  const char *path;
  int fd;
  ring_header header;
  ring_chunk *chunk;
  size_t first_event; /* the first event added here */
  map last_ns;        /* thread → time of its last event in the file */
  map made;           /* thread → events it recorded, from the ring */
  id_table names, frames, stacks;
} reader;

static stow_status read_at(const reader *rd, void *to, uint64_t offset, uint64_t bytes) {
  for (uint64_t done = 0; done < bytes;) {
    ssize_t got = pread(rd->fd, (char *)to + done, bytes - done, (off_t)(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return stow_fail(STOW_ERR_IO, "cannot read the ring %s: %s", rd->path, strerror(errno));
    if (got == 0)
      return stow_fail(STOW_ERR_FORMAT, "the ring %s ends at byte %" PRIu64 " of %" PRIu64,
                       rd->path, offset + done, offset + bytes);
    done += (uint64_t)got;
  }
  return STOW_OK;
}

/* Reads the header. All offsets must be exactly those of this version. */
static stow_status read_header(reader *rd) {
  struct stat info;
  rd->fd = open(rd->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (rd->fd < 0 || fstat(rd->fd, &info) != 0)
    return stow_fail(errno == ENOENT ? STOW_ERR_NOT_FOUND : STOW_ERR_IO,
                     "cannot open the ring %s: %s", rd->path, strerror(errno));
  if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size < RING_PAGE)
    return stow_fail(STOW_ERR_FORMAT, "%s is not a ring: %lld bytes", rd->path,
                     (long long)info.st_size);
  STOW_TRY(read_at(rd, &rd->header, 0, sizeof rd->header));
  const ring_header *h = &rd->header;
  if (h->magic != RING_MAGIC)
    return stow_fail(STOW_ERR_FORMAT, "%s is not a ring: wrong magic number", rd->path);
  if (h->byte_order != RING_BYTE_ORDER || h->version != RING_VERSION)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "the ring %s has version %u, byte order %08x; only version %d in this "
                     "machine's byte order can be read",
                     rd->path, h->version, h->byte_order, RING_VERSION);
  uint64_t text_offset = RING_PAGE + round_up(h->chunk_count * sizeof(uint64_t), RING_PAGE);
  if (h->chunk_count == 0 || h->chunk_count > RING_BYTES_MAX / RING_CHUNK_BYTES ||
      h->text_max > TEXT_BYTES_MAX || h->text_offset != text_offset ||
      h->chunks_offset != text_offset + h->text_max ||
      h->total_bytes != h->chunks_offset + h->chunk_count * RING_CHUNK_BYTES)
    return stow_fail(STOW_ERR_FORMAT, "the ring %s has a damaged header", rd->path);
  if (h->total_bytes > (uint64_t)info.st_size)
    return stow_fail(STOW_ERR_FORMAT, "the ring %s is truncated: %lld of %" PRIu64 " bytes",
                     rd->path, (long long)info.st_size, h->total_bytes);
  return STOW_OK;
}

/* ---- what the recording already has ---- */

static stow_status read_known(reader *rd) {
  recording *r = rd->out;
  char id[40];
  snprintf(id, sizeof id, "%016" PRIx64 "%016" PRIx64, rd->header.id[0], rd->header.id[1]);
  const char *has = recording_fact(r, "trace_id");
  if (r->event_count > 0 && (has == NULL || strcmp(has, id) != 0))
    return stow_fail(STOW_ERR_INVALID,
                     "the ring %s belongs to trace %s, the recording to %s: they cannot be joined",
                     rd->path, id, has != NULL ? has : "none");
  rd->first_event = r->event_count;
  for (size_t i = 0; i < r->event_count; i++) {
    const event *e = &r->events[i];
    uint32_t thread = event_origin(r, e)->thread;
    const uint64_t *last = map_get(&rd->last_ns, thread);
    if (last == NULL || *last < e->time_ns) STOW_TRY(map_put(&rd->last_ns, thread, e->time_ns));
  }
  return STOW_OK;
}

/* ---- events ---- */

static stow_status read_chunk(reader *rd, uint64_t i) {
  recording *r = rd->out;
  ring_chunk *c = rd->chunk;
  STOW_TRY(read_at(rd, c, rd->header.chunks_offset + i * RING_CHUNK_BYTES, RING_CHUNK_BYTES));
  uint64_t ticket = c->ticket, thread = c->thread;
  if (ticket == 0 || c->count == 0) return STOW_OK;
  if (c->count > RING_CHUNK_RECORDS || thread == 0) {
    r->bad_values++;
    return STOW_OK;
  }
  const uint64_t *known = map_get(&rd->last_ns, thread);
  uint64_t after_ns = known != NULL ? *known : 0;
  for (uint32_t place = 0; place < c->count; place++) {
    ring_record w;
    if (!ring_get(c, ticket, place, &w) || w.kind >= EVENT_KIND_COUNT) {
      r->bad_values++;
      continue;
    }
    if (known != NULL && w.time_ns <= after_ns) continue;
    event e = {.time_ns = w.time_ns,
               .addr = w.addr,
               .bytes = w.bytes,
               .stack_id = w.stack,
               .kind = w.kind};
    origin of = {w.stream, (uint32_t)thread, w.tag, w.device, w.tier};
    STOW_TRY(recording_add_event(r, &e, &of));
  }
  const uint64_t *made = map_get(&rd->made, thread);
  uint64_t end = c->first_seq + c->count;
  return made == NULL || *made < end ? map_put(&rd->made, thread, end) : STOW_OK;
}

/* Counts the events that threads recorded and neither file nor ring has. */
static void count_missing(reader *rd) {
  recording *r = rd->out;
  for (size_t i = 0; i < r->event_count; i++) {
    uint64_t *made = map_get(&rd->made, event_origin(r, &r->events[i])->thread);
    if (made != NULL && *made > 0) --*made;
  }
  uint64_t thread, missing;
  /* The file also counts them, as of its closing. */
  if (r->skipped_events < rd->header.skipped_events) r->skipped_events = rd->header.skipped_events;
  for (size_t at = 0; map_next(&rd->made, &at, &thread, &missing);) r->skipped_events += missing;
}

/* ---- texts ---- */

/* Stores facts that have a field in the recording there. */
static stow_status read_fact(recording *r, const char *text, uint32_t length) {
  char *key = strndup(text, length); /* terminated, whatever the file contains */
  if (key == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a fact");
  size_t key_length = strlen(key);
  char *value = strndup(text + (key_length < length ? key_length + 1 : length),
                        key_length < length ? length - key_length - 1 : 0);
  stow_status status = STOW_OK;
  const char *has = recording_fact(r, key);
  if (value == NULL)
    status = stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a fact");
  else if (strcmp(key, "device_name") == 0)
    status = recording_name(r, &r->device_name_id, value, strlen(value));
  else if (strcmp(key, "device_bytes") == 0)
    r->device_bytes = strtoull(value, NULL, 10);
  else if (strcmp(key, "source") != 0 && (has == NULL || strcmp(has, value) != 0))
    status = recording_add_fact(r, key, value);
  free(key);
  free(value);
  return status;
}

static stow_status read_stack(reader *rd, const char *payload, uint32_t count) {
  uint32_t id, *frames = malloc((count + 1) * sizeof *frames);
  if (frames == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a ring's texts");
  memcpy(frames, payload, count * sizeof *frames);
  for (uint32_t i = 0; i < count; i++) frames[i] = id_table_get(&rd->frames, rd->out, frames[i]);
  stow_status status = recording_stack(rd->out, &id, frames, count);
  free(frames);
  return status == STOW_OK ? id_table_add(&rd->stacks, id) : status;
}

static stow_status read_text(reader *rd, const text_entry *entry, const char *payload) {
  recording *r = rd->out;
  uint32_t w[3] = {0}, id;
  memcpy(w, payload, entry->length < sizeof w ? entry->length : sizeof w);
  switch (entry->kind) {
  case TEXT_NAME:
    STOW_TRY(recording_name(r, &id, payload, entry->length));
    return id_table_add(&rd->names, id);
  case TEXT_FRAME:
    STOW_TRY(recording_frame(r, &id, id_table_get(&rd->names, r, w[0]),
                             id_table_get(&rd->names, r, w[1]), w[2]));
    return id_table_add(&rd->frames, id);
  case TEXT_STACK: return read_stack(rd, payload, entry->length / (uint32_t)sizeof *w);
  case TEXT_FACT: return read_fact(r, payload, entry->length);
  default: r->unknown_fields++; return STOW_OK;
  }
}

/* Reads entries up to the first damaged one: ids after it would be wrong. */
static stow_status read_texts(reader *rd) {
  recording *r = rd->out;
  ring_header now;
  STOW_TRY(read_at(rd, &now, 0, sizeof now));
  uint64_t length = now.text_length;
  rd->header.skipped_events = now.skipped_events;
  if (length > rd->header.text_max) {
    r->bad_values++;
    return STOW_OK;
  }
  if (r->max_bytes != 0 && length > r->max_bytes)
    return stow_fail(STOW_ERR_BUDGET,
                     "the ring's texts of %" PRIu64 " bytes exceed the budget of %" PRIu64, length,
                     r->max_bytes);
  char *texts = malloc(length + 1);
  if (texts == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %" PRIu64 " bytes of texts", length);
  stow_status status = read_at(rd, texts, rd->header.text_offset, length);
  for (uint64_t at = 0; status == STOW_OK && at + sizeof(text_entry) <= length;) {
    text_entry entry;
    memcpy(&entry, texts + at, sizeof entry);
    const char *payload = texts + at + sizeof entry;
    if (entry.length > length - at - sizeof entry ||
        entry.check != text_check(&entry, at, payload)) {
      r->bad_values++;
      break;
    }
    status = read_text(rd, &entry, payload);
    at += sizeof entry + round_up(entry.length, 8);
  }
  free(texts);
  return status;
}

static stow_status renumber(reader *rd) {
  recording *r = rd->out;
  for (size_t i = rd->first_event; i < r->event_count; i++) {
    event *e = &r->events[i];
    e->stack_id = id_table_get(&rd->stacks, r, e->stack_id);
    origin of = *event_origin(r, e);
    of.tag_id = id_table_get(&rd->names, r, of.tag_id);
    uint32_t id;
    STOW_TRY(recording_origin(r, &id, &of));
    e->origin_id = id;
  }
  return STOW_OK;
}

static stow_status read_all(reader *rd) {
  STOW_TRY(read_header(rd));
  STOW_TRY(read_known(rd));
  for (uint64_t i = 0; i < rd->header.chunk_count; i++) STOW_TRY(read_chunk(rd, i));
  STOW_TRY(read_texts(rd));
  STOW_TRY(renumber(rd));
  recording_sort(rd->out);
  rd->out->source = SOURCE_STOW;
  count_missing(rd);
  return STOW_OK;
}

stow_status ring_read(recording *r, const char *path) {
  reader rd = {.out = r, .path = path, .fd = -1, .chunk = malloc(sizeof(ring_chunk))};
  stow_status status = rd.chunk != NULL
                           ? read_all(&rd)
                           : stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to read a ring");
  if (rd.fd >= 0) close(rd.fd);
  free(rd.chunk);
  map_free(&rd.last_ns);
  map_free(&rd.made);
  free(rd.names.ids);
  free(rd.frames.ids);
  free(rd.stacks.ids);
  return status;
}
