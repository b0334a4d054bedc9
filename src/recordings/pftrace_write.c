/* Perfetto's trace format: a protobuf of TracePackets (perfetto/protos/trace), written by hand.
 *
 * One process per device, with these tracks:
 *   live, cached     counters in bytes
 *   allocations      an instant for each allocation and free, with its bytes and call stack; a flow
 *                    leads from an allocation to its free
 *   events           marks as slices; out-of-memory errors, segments, spills as instants
 * and a heap profile (ProfilePacket) at the peak and at the end, which Perfetto shows as flame
 * graphs.
 *
 * All packets are of one sequence. Names, frames and stacks are interned first; their ids are those
 * of the recording. Field numbers are those of the definitions in the package perfetto 0.16 (PyPI),
 * against which tests/long/perfetto.sh parses the output. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "recordings/curve.h"
#include "recordings/framework.h"
#include "recordings/recording_write.h"

enum {
  FLUSH_BYTES = 1 << 16,
  SEQUENCE = 1,

  /* TracePacket */
  PACKET_TIMESTAMP = 8,
  PACKET_SEQUENCE = 10,
  PACKET_TRACK_EVENT = 11,
  PACKET_INTERNED = 12,
  PACKET_FLAGS = 13,
  PACKET_PROFILE = 37,
  PACKET_TRACK = 60,
  FLAG_CLEARED = 1,
  FLAG_NEEDS_STATE = 2,

  /* InternedData */
  INTERNED_EVENT_NAMES = 2,
  INTERNED_ANNOTATION_NAMES = 3,
  INTERNED_FUNCTION_NAMES = 5,
  INTERNED_FRAMES = 6,
  INTERNED_STACKS = 7,
  INTERNED_SOURCE_PATHS = 18,
  INTERNED_MAPPINGS = 19,

  /* TrackEvent */
  FIELD_ANNOTATIONS = 4,
  FIELD_TYPE = 9,
  FIELD_NAME_ID = 10,
  FIELD_TRACK = 11,
  FIELD_NAME = 23,
  FIELD_COUNTER = 30,
  FIELD_FLOWS = 47,
  FIELD_FLOWS_END = 48,
  FIELD_STACK_ID = 56,
  TYPE_BEGIN = 1,
  TYPE_END = 2,
  TYPE_INSTANT = 3,
  TYPE_COUNTER = 4,

  /* DebugAnnotation, by interned name */
  ANNOTATION_BYTES = 1,
  ANNOTATION_ADDRESS,
  ANNOTATION_TAG,
  ANNOTATION_FREE_BYTES,
  ANNOTATION_COUNT,

  /* tracks of a device: uuid = device * TRACKS + track + 1 */
  TRACK_PROCESS = 0,
  TRACK_LIVE,
  TRACK_CACHED,
  TRACK_ALLOCATIONS,
  TRACK_EVENTS,
  TRACKS = 8,

  SITE_NAMES = 64 /* event names below are kinds; above, frame ids */
};

typedef struct stack_sums {
  uint64_t allocated_bytes, freed_bytes, allocs, frees;
} stack_sums;

typedef struct device_state {
  stack_sums *sums; /* by stack id; [0] no stack; NULL: nothing yet */
  size_t peak_event;
  int64_t peak_bytes;
  bool seen;
} device_state;

typedef struct writer {
  const recording *r;
  outfile *out;
  buffer b;              /* whole packets */
  buffer packet, nested; /* being made */
  device_state *devices;
  size_t device_count;
  map live; /* address and device → index of the event that allocated it */
  uint64_t last_ns, profile_index;
} writer;

/* ---- protobuf ---- */

static void put_varint(buffer *b, uint64_t value) {
  char bytes[10];
  size_t count = 0;
  do {
    bytes[count++] = (char)((value & 127) | (value > 127 ? 128 : 0));
    value >>= 7;
  } while (value != 0);
  buffer_append(b, bytes, count);
}

static void put_number(buffer *b, uint32_t field, uint64_t value) {
  put_varint(b, (uint64_t)field << 3);
  put_varint(b, value);
}

static void put_bytes(buffer *b, uint32_t field, const void *bytes, size_t count) {
  put_varint(b, (uint64_t)field << 3 | 2);
  put_varint(b, count);
  if (count > 0) buffer_append(b, bytes, count);
}

static void put_fixed(buffer *b, uint32_t field, uint64_t value) {
  uint8_t bytes[8];
  for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(value >> (8 * i));
  put_varint(b, (uint64_t)field << 3 | 1);
  buffer_append(b, bytes, sizeof bytes);
}

/* Fields of type string must be UTF-8: other bytes become '?'. */
static void put_text(buffer *b, uint32_t field, const char *text) {
  char clean[1024];
  size_t to = 0;
  for (const unsigned char *at = (const unsigned char *)text;
       *at != '\0' && to < sizeof clean - 4;) {
    size_t length = *at < 0x80 ? 1 : *at >= 0xc2 && *at < 0xe0 ? 2 : (*at & 0xf0) == 0xe0 ? 3 : 0;
    if ((*at & 0xf8) == 0xf0 && *at < 0xf5) length = 4;
    bool whole = length > 0;
    for (size_t i = 1; i < length && whole; i++) whole = (at[i] & 0xc0) == 0x80;
    /* Overlong forms, surrogates and what is past U+10FFFF are not UTF-8 either. */
    if (whole && ((*at == 0xe0 && at[1] < 0xa0) || (*at == 0xed && at[1] > 0x9f) ||
                  (*at == 0xf0 && at[1] < 0x90) || (*at == 0xf4 && at[1] > 0x8f)))
      whole = false;
    if (!whole) {
      clean[to++] = '?';
      at++;
      continue;
    }
    memcpy(clean + to, at, length);
    to += length;
    at += length;
  }
  put_bytes(b, field, clean, to);
}

/* ---- packets ---- */

static void flush(writer *w, bool all) {
  if (w->b.length < FLUSH_BYTES && !all) return;
  if (w->b.status != STOW_OK && w->out->status == STOW_OK) w->out->status = w->b.status;
  if (w->b.length > 0) outfile_write(w->out, w->b.data, w->b.length);
  buffer_clear(&w->b);
}

/* Ends the packet whose content `field` is in w->nested. */
static void end_packet(writer *w, uint32_t field, uint64_t flags) {
  put_number(&w->packet, PACKET_SEQUENCE, SEQUENCE);
  put_number(&w->packet, PACKET_FLAGS, flags);
  put_bytes(&w->packet, field, w->nested.data, w->nested.length);
  if (w->b.status == STOW_OK) w->b.status = w->nested.status;
  if (w->b.status == STOW_OK) w->b.status = w->packet.status;
  put_bytes(&w->b, 1, w->packet.data, w->packet.length);
  buffer_clear(&w->packet);
  buffer_clear(&w->nested);
  flush(w, false);
}

static void begin_packet(writer *w, uint64_t time_ns) {
  put_number(&w->packet, PACKET_TIMESTAMP, time_ns);
}

static void put_track(writer *w, uint64_t device, int track, const char *name, bool counter) {
  buffer *b = &w->nested;
  put_number(b, 1, device * TRACKS + (uint64_t)track + 1);
  if (track == TRACK_PROCESS) {
    buffer process = BUFFER_INIT;
    put_number(&process, 1, device + 1); /* 0 is the idle process */
    put_text(&process, 6, name);
    if (process.status != STOW_OK) b->status = process.status;
    put_bytes(b, 3, process.data, process.length);
    buffer_free(&process);
  } else {
    static const uint8_t bytes_unit[] = {3 << 3, 3}; /* unit: UNIT_SIZE_BYTES */
    put_number(b, 5, device * TRACKS + TRACK_PROCESS + 1);
    put_text(b, 2, name);
    if (counter) put_bytes(b, 8, bytes_unit, sizeof bytes_unit);
  }
  end_packet(w, PACKET_TRACK, FLAG_NEEDS_STATE);
}

static void put_tracks(writer *w) {
  for (size_t d = 0; d < w->device_count; d++) {
    char name[160];
    if (!w->devices[d].seen) continue;
    snprintf(name, sizeof name, "device %zu  %s", d, recording_text(w->r, w->r->device_name_id));
    put_track(w, d, TRACK_PROCESS, name, false);
    put_track(w, d, TRACK_LIVE, "live bytes", true);
    put_track(w, d, TRACK_CACHED, "reserved, not live, bytes", true);
    put_track(w, d, TRACK_ALLOCATIONS, "allocations", false);
    put_track(w, d, TRACK_EVENTS, "events", false);
  }
}

/* ---- interned data ---- */

static void put_pair(buffer *to, uint32_t field, uint64_t id, const char *text) {
  buffer b = BUFFER_INIT;
  put_number(&b, 1, id);
  put_text(&b, 2, text);
  if (b.status != STOW_OK) to->status = b.status;
  put_bytes(to, field, b.data, b.length);
  buffer_free(&b);
}

static void end_interned(writer *w, bool first) {
  end_packet(w, PACKET_INTERNED, first ? FLAG_CLEARED : FLAG_NEEDS_STATE);
}

static void intern_fixed(writer *w) {
  static const char *const annotations[ANNOTATION_COUNT] = {NULL, "bytes", "address", "tag",
                                                            "device_free_bytes"};
  uint8_t mapping[] = {1 << 3, 1};
  for (int i = 1; i < ANNOTATION_COUNT; i++)
    put_pair(&w->nested, INTERNED_ANNOTATION_NAMES, (uint64_t)i, annotations[i]);
  for (int kind = 0; kind < EVENT_KIND_COUNT; kind++)
    put_pair(&w->nested, INTERNED_EVENT_NAMES, (uint64_t)kind + 1,
             kind == EVENT_FAIL ? "out of memory" : event_kind_name((uint8_t)kind));
  put_bytes(&w->nested, INTERNED_MAPPINGS, mapping, sizeof mapping); /* frames must have one */
  end_interned(w, true);
}

/* Interns the frames. Frame IDs and name IDs count from 1; one more of each represents "no stack
 * recorded". */
static void intern_frames(writer *w) {
  const recording *r = w->r;
  for (uint64_t id = 1; id <= r->frame_count + 1; id++) {
    bool none = id > r->frame_count;
    const frame *f = none ? NULL : &r->frames[id - 1];
    const char *name = none ? "no stack recorded" : recording_text(r, f->name_id);
    const char *file = none ? "" : recording_text(r, f->file_id), *slash = strrchr(file, '/');
    char site[256];
    buffer b = BUFFER_INIT;
    put_number(&b, 1, id);
    put_number(&b, 2, id); /* function name */
    put_number(&b, 3, 1);  /* mapping */
    put_number(&b, 5, id); /* source path */
    if (!none && f->line > 0) put_number(&b, 6, f->line);
    if (b.status != STOW_OK) w->nested.status = b.status;
    put_pair(&w->nested, INTERNED_FUNCTION_NAMES, id, name);
    put_pair(&w->nested, INTERNED_SOURCE_PATHS, id, file);
    put_bytes(&w->nested, INTERNED_FRAMES, b.data, b.length);
    buffer_free(&b);
    if (file[0] == '\0')
      snprintf(site, sizeof site, "%.250s", name);
    else
      snprintf(site, sizeof site, "%.150s %.80s:%" PRIu32, name, slash != NULL ? slash + 1 : file,
               f->line);
    put_pair(&w->nested, INTERNED_EVENT_NAMES, SITE_NAMES + id, site);
    if (w->nested.length > FLUSH_BYTES) end_interned(w, false);
  }
  if (w->nested.length > 0) end_interned(w, false);
}

/* Interns the stacks. Perfetto lists the outermost frame first, a recording the innermost. */
static void intern_stacks(writer *w) {
  const recording *r = w->r;
  for (uint64_t id = 1; id <= r->stack_count + 1; id++) {
    buffer b = BUFFER_INIT;
    uint32_t count = id <= r->stack_count ? r->stacks[id - 1].count : 0, put = 0;
    put_number(&b, 1, id);
    for (uint32_t i = count; i > 0; i--) {
      uint32_t frame_id = r->stack_frames[r->stacks[id - 1].first + i - 1];
      if (frame_id == 0 || frame_id > r->frame_count) continue;
      put_number(&b, 2, frame_id);
      put++;
    }
    if (put == 0) put_number(&b, 2, r->frame_count + 1);
    if (b.status != STOW_OK) w->nested.status = b.status;
    put_bytes(&w->nested, INTERNED_STACKS, b.data, b.length);
    buffer_free(&b);
    if (w->nested.length > FLUSH_BYTES) end_interned(w, false);
  }
  end_interned(w, false);
}

static uint64_t stack_of(const writer *w, uint32_t stack_id) {
  return stack_id == 0 || stack_id > w->r->stack_count ? w->r->stack_count + 1 : stack_id;
}

/* ---- events ---- */

static void begin_event(writer *w, const event *e, int type, int track) {
  begin_packet(w, e->time_ns);
  put_number(&w->nested, FIELD_TYPE, (uint64_t)type);
  put_number(&w->nested, FIELD_TRACK,
             (uint64_t)event_origin(w->r, e)->device * TRACKS + (uint64_t)track + 1);
}

static void end_event(writer *w) {
  end_packet(w, PACKET_TRACK_EVENT, FLAG_NEEDS_STATE);
}

static void annotate(writer *w, int name, uint32_t field, uint64_t value) {
  buffer b = BUFFER_INIT;
  put_number(&b, 1, (uint64_t)name);
  put_number(&b, field, value);
  if (b.status != STOW_OK) w->nested.status = b.status;
  put_bytes(&w->nested, FIELD_ANNOTATIONS, b.data, b.length);
  buffer_free(&b);
}

static void annotate_tag(writer *w, const event *e) {
  const char *tag = recording_text(w->r, event_origin(w->r, e)->tag_id);
  if (tag[0] == '\0') return;
  buffer b = BUFFER_INIT;
  put_number(&b, 1, ANNOTATION_TAG);
  put_text(&b, 6, tag);
  if (b.status != STOW_OK) w->nested.status = b.status;
  put_bytes(&w->nested, FIELD_ANNOTATIONS, b.data, b.length);
  buffer_free(&b);
}

static void put_counter(writer *w, const event *e, int track, int64_t bytes) {
  begin_event(w, e, TYPE_COUNTER, track);
  put_number(&w->nested, FIELD_COUNTER, (uint64_t)bytes);
  end_event(w);
}

static uint64_t key_of(const writer *w, const event *e) {
  return e->addr ^ (uint64_t)event_origin(w->r, e)->device << 57; /* addresses have 57 bits */
}

static stow_status put_alloc(writer *w, size_t index, const event *e) {
  device_state *d = &w->devices[event_origin(w->r, e)->device];
  uint32_t site = framework_site(w->r, e->stack_id);
  uint32_t stack_id = e->stack_id <= w->r->stack_count ? e->stack_id : 0;
  begin_event(w, e, TYPE_INSTANT, TRACK_ALLOCATIONS);
  put_number(&w->nested, FIELD_NAME_ID, site != 0 ? SITE_NAMES + (uint64_t)site : EVENT_ALLOC + 1);
  annotate(w, ANNOTATION_BYTES, 3, e->bytes);
  annotate(w, ANNOTATION_ADDRESS, 7, e->addr);
  annotate_tag(w, e);
  if (stack_id != 0) put_number(&w->nested, FIELD_STACK_ID, stack_id);
  put_fixed(&w->nested, FIELD_FLOWS, index + 1);
  end_event(w);
  if (d->sums == NULL) d->sums = calloc(w->r->stack_count + 1, sizeof *d->sums);
  if (d->sums == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "pftrace: no host memory for %zu stacks",
                     w->r->stack_count);
  d->sums[stack_id].allocated_bytes += e->bytes;
  d->sums[stack_id].allocs++;
  return map_put(&w->live, key_of(w, e), index);
}

static void put_free(writer *w, const event *e) {
  uint64_t made;
  bool known = map_remove(&w->live, key_of(w, e), &made);
  begin_event(w, e, TYPE_INSTANT, TRACK_ALLOCATIONS);
  put_number(&w->nested, FIELD_NAME_ID, EVENT_FREE + 1);
  annotate(w, ANNOTATION_BYTES, 3, e->bytes);
  annotate(w, ANNOTATION_ADDRESS, 7, e->addr);
  if (known) put_fixed(&w->nested, FIELD_FLOWS_END, made + 1);
  end_event(w);
  if (!known) return;
  const event *from = &w->r->events[made];
  stack_sums *sums = w->devices[event_origin(w->r, e)->device].sums;
  uint32_t stack_id = from->stack_id <= w->r->stack_count ? from->stack_id : 0;
  sums[stack_id].freed_bytes += from->bytes;
  sums[stack_id].frees++;
}

static void put_mark(writer *w, const event *e) {
  begin_event(w, e, e->kind == EVENT_MARK_BEGIN ? TYPE_BEGIN : TYPE_END, TRACK_EVENTS);
  put_text(&w->nested, FIELD_NAME, recording_text(w->r, event_origin(w->r, e)->tag_id));
  end_event(w);
}

static void put_instant(writer *w, const event *e) {
  begin_event(w, e, TYPE_INSTANT, TRACK_EVENTS);
  put_number(&w->nested, FIELD_NAME_ID, e->kind + 1u);
  annotate(w, ANNOTATION_BYTES, 3, e->bytes);
  if (e->kind == EVENT_FAIL && e->addr != 0) annotate(w, ANNOTATION_FREE_BYTES, 3, e->addr);
  if (e->stack_id != 0 && e->stack_id <= w->r->stack_count)
    put_number(&w->nested, FIELD_STACK_ID, e->stack_id);
  end_event(w);
}

/* ---- heap profiles ---- */

/* Writes live memory by stack, as heapprofd does. */
static void put_profile(writer *w, size_t device, uint64_t time_ns) {
  const device_state *d = &w->devices[device];
  char name[32];
  if (d->sums == NULL) return;
  buffer dump = BUFFER_INIT;
  snprintf(name, sizeof name, "device %zu", device);
  put_number(&dump, 1, device + 1); /* pid */
  put_number(&dump, 9, time_ns);
  put_text(&dump, 11, name);
  put_number(&dump, 12, 1); /* every byte is counted */
  for (uint64_t id = 0; id <= w->r->stack_count; id++) {
    const stack_sums *s = &d->sums[id];
    if (s->allocs == 0) continue;
    buffer sample = BUFFER_INIT;
    put_number(&sample, 1, stack_of(w, (uint32_t)id));
    put_number(&sample, 2, s->allocated_bytes);
    put_number(&sample, 3, s->freed_bytes);
    put_number(&sample, 4, time_ns);
    put_number(&sample, 5, s->allocs);
    put_number(&sample, 6, s->frees);
    if (sample.status != STOW_OK) dump.status = sample.status;
    put_bytes(&dump, 2, sample.data, sample.length);
    buffer_free(&sample);
  }
  begin_packet(w, time_ns);
  if (dump.status != STOW_OK) w->nested.status = dump.status;
  put_bytes(&w->nested, 5, dump.data, dump.length);
  put_number(&w->nested, 7, w->profile_index++);
  end_packet(w, PACKET_PROFILE, FLAG_NEEDS_STATE);
  buffer_free(&dump);
}

/* Launches and touches are left out: a profiler's trace has the kernels already. */
static stow_status put_event(writer *w, size_t index, curve *c) {
  const event *e = &w->r->events[index];
  stow_status status = STOW_OK;
  if (event_is_touch(e->kind)) return STOW_OK;
  if (curve_step(c, e)) {
    const curve_point *p = curve_at(c, e);
    put_counter(w, e, TRACK_LIVE, p->live_bytes);
    put_counter(w, e, TRACK_CACHED,
                p->reserved_bytes > p->live_bytes
                    ? (int64_t)((uint64_t)p->reserved_bytes - (uint64_t)p->live_bytes)
                    : 0);
  }
  switch (e->kind) {
  case EVENT_ALLOC: status = put_alloc(w, index, e); break;
  case EVENT_FREE: put_free(w, e); break;
  case EVENT_FREE_REQUESTED: break;
  case EVENT_MARK_BEGIN:
  case EVENT_MARK_END: put_mark(w, e); break;
  default: put_instant(w, e);
  }
  size_t device = event_origin(w->r, e)->device;
  if (w->devices[device].peak_event == index && w->devices[device].peak_bytes > 0)
    put_profile(w, device, e->time_ns);
  w->last_ns = e->time_ns;
  return status;
}

static stow_status find_peaks(writer *w) {
  curve c;
  STOW_TRY(curve_begin(&c, w->r));
  w->device_count = c.device_count;
  w->devices = calloc(c.device_count, sizeof *w->devices);
  for (size_t i = 0; w->devices != NULL && i < w->r->event_count; i++) {
    const event *e = &w->r->events[i];
    device_state *d = &w->devices[event_origin(w->r, e)->device];
    d->seen = true;
    if (!curve_step(&c, e) || curve_at(&c, e)->live_bytes <= d->peak_bytes) continue;
    d->peak_bytes = curve_at(&c, e)->live_bytes;
    d->peak_event = i;
  }
  curve_free(&c);
  return w->devices != NULL ? STOW_OK
                            : stow_fail(STOW_ERR_HOST_MEMORY,
                                        "pftrace: no host memory for %zu devices", w->device_count);
}

static stow_status write_all(writer *w) {
  curve c;
  STOW_TRY(find_peaks(w));
  STOW_TRY(curve_begin(&c, w->r));
  stow_status status = STOW_OK;
  intern_fixed(w);
  intern_frames(w);
  intern_stacks(w);
  put_tracks(w);
  for (size_t i = 0; i < w->r->event_count && status == STOW_OK && w->out->status == STOW_OK; i++)
    status = put_event(w, i, &c);
  for (size_t d = 0; d < w->device_count && status == STOW_OK; d++) put_profile(w, d, w->last_ns);
  curve_free(&c);
  flush(w, true);
  return status != STOW_OK ? status : w->out->status;
}

stow_status pftrace_write(const recording *r, outfile *out, uint64_t *left_out) {
  writer w = {.r = r, .out = out, .b = BUFFER_INIT, .packet = BUFFER_INIT, .nested = BUFFER_INIT};
  stow_status status = write_all(&w);
  for (size_t d = 0; w.devices != NULL && d < w.device_count; d++) free(w.devices[d].sums);
  free(w.devices);
  map_free(&w.live);
  buffer_free(&w.b);
  buffer_free(&w.packet);
  buffer_free(&w.nested);
  if (left_out != NULL) {
    *left_out = 0;
    for (size_t i = 0; i < r->event_count; i++) *left_out += event_is_touch(r->events[i].kind);
  }
  return status;
}
