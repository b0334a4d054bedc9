/* A TensorBoard event file: live and reserved bytes of each device as scalar curves.
 *
 * TFRecord framing (length, masked CRC-32C of it, data, masked CRC-32C of that) around Event
 * messages, written field by field: Event {1 wall_time double, 2 step int64, 3 file_version, 5
 * summary}, Summary {1 value}, Value {1 tag, 2 simple_value float}. A step is an event number. Of
 * each stretch of events the highest point is written, so peaks survive. */
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "recordings/curve.h"
#include "recordings/recording_write.h"
#include "trace/varint.h"

enum { POINTS_MAX = 10000 };

typedef struct writer {
  outfile *out;
  buffer message, value;
  uint32_t crc[256];
} writer;

/* ---- CRC-32C (Castagnoli) ---- */

static void crc_begin(writer *w) {
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t c = i;
    for (int k = 0; k < 8; k++) c = c >> 1 ^ (c & 1 ? UINT32_C(0x82f63b78) : 0);
    w->crc[i] = c;
  }
}

static uint32_t masked_crc(const writer *w, const void *bytes, size_t count) {
  const uint8_t *p = bytes;
  uint32_t c = UINT32_MAX;
  for (size_t i = 0; i < count; i++) c = c >> 8 ^ w->crc[(c ^ p[i]) & 0xff];
  c = ~c;
  return (c >> 15 | c << 17) + UINT32_C(0xa282ead8); /* TFRecord's mask */
}

/* ---- protobuf ---- */

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

static void put_varint(buffer *b, uint64_t value) {
  uint8_t bytes[VARINT_MAX];
  buffer_append(b, bytes, varint_put(bytes, value));
}

static void put_field(buffer *b, unsigned number, unsigned wire) {
  put_varint(b, number << 3 | wire);
}

static void put_bytes(buffer *b, unsigned number, const void *bytes, size_t count) {
  put_field(b, number, WIRE_BYTES);
  put_varint(b, count);
  buffer_append(b, bytes, count);
}

/* Writes a record. The wire format and all supported machines are little-endian. */
static void put_record(writer *w) {
  uint64_t length = w->message.length;
  uint32_t crc = masked_crc(w, &length, 8);
  outfile_write(w->out, &length, 8);
  outfile_write(w->out, &crc, 4);
  outfile_write(w->out, w->message.data, w->message.length);
  crc = masked_crc(w, w->message.data, w->message.length);
  outfile_write(w->out, &crc, 4);
  if (w->message.status != STOW_OK && w->out->status == STOW_OK) w->out->status = w->message.status;
}

static void begin_event(writer *w, uint64_t time_ns, uint64_t step) {
  double seconds = (double)time_ns / 1e9;
  buffer_clear(&w->message);
  put_field(&w->message, 1, WIRE_FIXED64);
  buffer_append(&w->message, &seconds, 8);
  put_field(&w->message, 2, WIRE_VARINT);
  put_varint(&w->message, step);
}

static void put_scalar(buffer *summary, const char *tag, double number) {
  uint8_t space[96];
  float value = (float)number;
  size_t tag_length = strlen(tag), n = 0;
  space[n++] = 1 << 3 | WIRE_BYTES;
  space[n++] = (uint8_t)tag_length; /* tags are short */
  memcpy(space + n, tag, tag_length);
  n += tag_length;
  space[n++] = 2 << 3 | WIRE_FIXED32;
  memcpy(space + n, &value, 4);
  put_bytes(summary, 1, space, n + 4);
}

static void put_point(writer *w, const event *e, size_t step, size_t device,
                      const curve_point *peak) {
  char tag[64];
  begin_event(w, e->time_ns, step);
  buffer_clear(&w->value);
  snprintf(tag, sizeof tag, "memory/device %zu/live_bytes", device);
  put_scalar(&w->value, tag, (double)peak->live_bytes);
  snprintf(tag, sizeof tag, "memory/device %zu/reserved_bytes", device);
  put_scalar(&w->value, tag, (double)peak->reserved_bytes);
  put_bytes(&w->message, 5, w->value.data, w->value.length);
  put_record(w);
}

/* The maximum of a device since its last point. */
typedef struct pending {
  curve_point peak;
  size_t left;  /* events until the next point */
  size_t count; /* events of the device still to come */
} pending;

/* Writes the highest point of each interval of a device's events, in one pass over all devices. */
static stow_status put_curves(writer *w, const recording *r, curve *c) {
  pending *all = calloc(c->device_count, sizeof *all);
  if (all == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for memory curves");
  for (size_t i = 0; i < r->event_count; i++) all[event_origin(r, &r->events[i])->device].count++;
  size_t stretch = r->event_count / POINTS_MAX + 1;
  for (size_t d = 0; d < c->device_count; d++) {
    all[d].peak = c->points[d];
    all[d].left = stretch;
  }
  for (size_t i = 0; i < r->event_count && w->out->status == STOW_OK; i++) {
    const event *e = &r->events[i];
    uint16_t device = event_origin(r, e)->device;
    pending *p = &all[device];
    if (curve_step(c, e)) {
      const curve_point *now = &c->points[device];
      if (now->live_bytes > p->peak.live_bytes) p->peak.live_bytes = now->live_bytes;
      if (now->reserved_bytes > p->peak.reserved_bytes)
        p->peak.reserved_bytes = now->reserved_bytes;
    }
    p->count--;
    if (--p->left > 0 && p->count > 0) continue;
    put_point(w, e, i, device, &p->peak);
    p->peak = c->points[device];
    p->left = stretch;
  }
  free(all);
  return STOW_OK;
}

stow_status tensorboard_write(const recording *r, outfile *out, uint64_t *left_out) {
  curve c;
  STOW_TRY(curve_begin(&c, r));
  writer w = {.out = out, .message = BUFFER_INIT, .value = BUFFER_INIT};
  crc_begin(&w);
  begin_event(&w, r->event_count > 0 ? r->events[0].time_ns : 0, 0);
  put_bytes(&w.message, 3, "brain.Event:2", 13);
  put_record(&w);
  stow_status status = put_curves(&w, r, &c);
  buffer_free(&w.message);
  buffer_free(&w.value);
  curve_free(&c);
  if (left_out != NULL) { /* a curve cannot show single events */
    *left_out = 0;
    for (size_t i = 0; i < r->event_count; i++) *left_out += r->events[i].kind >= EVENT_SNAPSHOT;
  }
  return status != STOW_OK ? status : out->status;
}
