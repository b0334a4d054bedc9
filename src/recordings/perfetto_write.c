/* Chrome's trace JSON, for Perfetto and chrome://tracing.
 *
 * One process per device: a counter of live and reserved bytes, marks as slices, failures and the
 * allocator's segments as instant events. Times are microseconds since the first event. */
#include <inttypes.h>

#include "base/json.h"
#include "recordings/curve.h"
#include "recordings/recording_write.h"

enum { FLUSH_BYTES = 1 << 16 };

typedef struct writer {
  const recording *r;
  outfile *out;
  buffer b;
  json j;
  uint64_t start_ns;
} writer;

static void flush(writer *w, bool all) {
  if (w->b.length < FLUSH_BYTES && !all) return;
  if (w->b.status != STOW_OK && w->out->status == STOW_OK) w->out->status = w->b.status;
  if (w->b.length > 0) outfile_write(w->out, w->b.data, w->b.length);
  buffer_clear(&w->b);
}

static void begin_item(writer *w, const char *phase, const char *name, uint16_t device,
                       uint64_t time_ns) {
  json *j = &w->j;
  json_begin_object(j);
  json_key(j, "ph"), json_text(j, phase);
  json_key(j, "name"), json_text(j, name);
  json_key(j, "pid"), json_u64(j, device + 1u); /* 0 is not displayed */
  json_key(j, "tid"), json_u64(j, 1);
  json_key(j, "ts");
  json_double(j, (double)(time_ns > w->start_ns ? time_ns - w->start_ns : 0) / 1000.0);
}

static void begin_event(writer *w, const char *phase, const char *name, const event *e) {
  begin_item(w, phase, name, event_origin(w->r, e)->device, e->time_ns);
}

static void put_counter(writer *w, const event *e, const curve_point *p) {
  begin_event(w, "C", "memory", e);
  json_key(&w->j, "args");
  json_begin_object(&w->j);
  json_key(&w->j, "live_bytes"), json_i64(&w->j, p->live_bytes);
  json_key(&w->j, "free_in_cache_bytes");
  /* Unsigned: the difference of two sums may need all 64 bits. */
  json_u64(&w->j, p->reserved_bytes > p->live_bytes
                      ? (uint64_t)p->reserved_bytes - (uint64_t)p->live_bytes
                      : 0);
  json_end_object(&w->j);
  json_end_object(&w->j);
}

static void put_instant(writer *w, const event *e) {
  begin_event(w, "i", e->kind == EVENT_FAIL ? "out of memory" : event_kind_name(e->kind), e);
  json_key(&w->j, "s"), json_text(&w->j, e->kind == EVENT_FAIL ? "p" : "t");
  json_key(&w->j, "args");
  json_begin_object(&w->j);
  json_key(&w->j, "bytes"), json_u64(&w->j, e->bytes);
  if (e->kind == EVENT_FAIL) json_key(&w->j, "device_free_bytes"), json_u64(&w->j, e->addr);
  json_end_object(&w->j);
  json_end_object(&w->j);
}

/* Omits launches and touches: a profiler's trace already has the kernels. */
static void put_event(writer *w, const event *e, curve *c) {
  if (event_is_touch(e->kind)) return;
  if (curve_step(c, e)) put_counter(w, e, curve_at(c, e));
  switch (e->kind) {
  case EVENT_ALLOC:
  case EVENT_FREE:
  case EVENT_FREE_REQUESTED: break;
  case EVENT_MARK_BEGIN:
  case EVENT_MARK_END:
    begin_event(w, e->kind == EVENT_MARK_BEGIN ? "B" : "E",
                recording_text(w->r, event_origin(w->r, e)->tag_id), e);
    json_end_object(&w->j);
    break;
  default: put_instant(w, e);
  }
  flush(w, false);
}

static void put_titles(writer *w, size_t devices) {
  for (size_t d = 0; d < devices; d++) {
    char name[32];
    snprintf(name, sizeof name, "device %zu", d);
    begin_item(w, "M", "process_name", (uint16_t)d, 0);
    json_key(&w->j, "args");
    json_begin_object(&w->j);
    json_key(&w->j, "name"), json_text(&w->j, name);
    json_end_object(&w->j);
    json_end_object(&w->j);
  }
}

stow_status perfetto_write(const recording *r, outfile *out, uint64_t *left_out) {
  curve c;
  STOW_TRY(curve_begin(&c, r));
  writer w = {.r = r, .out = out, .b = BUFFER_INIT};
  w.j = JSON_COMPACT(&w.b);
  w.start_ns = r->event_count > 0 ? r->events[0].time_ns : 0;
  json *j = &w.j;
  json_begin_object(j);
  json_key(j, "displayTimeUnit"), json_text(j, "ms");
  json_key(j, "otherData");
  json_begin_object(j);
  json_key(j, "start_ns"), json_u64(j, w.start_ns);
  if (r->error_id != 0) json_key(j, "error"), json_text(j, recording_text(r, r->error_id));
  json_end_object(j);
  json_key(j, "traceEvents");
  json_begin_array(j);
  put_titles(&w, c.device_count);
  for (size_t i = 0; i < r->event_count && out->status == STOW_OK; i++)
    put_event(&w, &r->events[i], &c);
  json_end_array(j);
  json_end_object(j);
  buffer_char(&w.b, '\n');
  flush(&w, true);
  buffer_free(&w.b);
  curve_free(&c);
  if (left_out != NULL) {
    *left_out = 0;
    for (size_t i = 0; i < r->event_count; i++) *left_out += event_is_touch(r->events[i].kind);
  }
  return out->status;
}
