/* PyTorch memory snapshot, second half: puts the tables in order.
 *
 * Keeps the events, segments and blocks that the root's members name (other rows are dropped and
 * counted), assigns each event its device, merges devices and annotations by time, and converts the
 * settings to text. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "recordings/torch_reader.h"

/* ---- settings ---- */

/* Formats like Python: the shortest text that parses back to the same value, with a point. */
static void append_double(buffer *b, double value) {
  char text[40];
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, value);
    if (strtod(text, NULL) == value) break;
  }
  buffer_text(b, text);
  if (strpbrk(text, ".einf") == NULL) buffer_text(b, ".0");
}

static void append_value(buffer *b, const torch_reader *t, const pickle_value *value, int depth) {
  switch (value->tag) {
  case PICKLE_NONE: buffer_text(b, "None"); break;
  case PICKLE_BOOL: buffer_text(b, value->v ? "True" : "False"); break;
  case PICKLE_INT: buffer_printf(b, "%" PRId64, value->i); break;
  case PICKLE_UINT: buffer_printf(b, "%" PRIu64, value->v); break;
  case PICKLE_FLOAT: append_double(b, value->f); break;
  case PICKLE_STRING: {
    size_t count;
    const char *text = pickle_text(&t->machine, value->v, &count);
    buffer_append(b, text, count);
    break;
  }
  case PICKLE_EMPTY_LIST:
  case PICKLE_EMPTY_DICT: buffer_text(b, "[]"); break;
  case TORCH_PAIR:
    buffer_printf(b, "(%" PRId32 ", %" PRId32 ")", (int32_t)(value->v >> 32), (int32_t)value->v);
    break;
  case TORCH_SETTINGS: /* [256:1,512:2], as in PyTorch's settings */
    buffer_char(b, '[');
    for (size_t i = 0; i < range_count(value->v) && depth > 0; i++) {
      const torch_pair *p = (const torch_pair *)t->pairs.data + range_first(value->v) + i;
      size_t count;
      const char *key = pickle_text(&t->machine, p->key, &count);
      if (i > 0) buffer_char(b, ',');
      buffer_append(b, key, count);
      buffer_char(b, ':');
      append_value(b, t, &p->value, depth - 1);
    }
    buffer_char(b, ']');
    break;
  default: buffer_text(b, "?");
  }
}

static stow_status finish_settings(torch_reader *t) {
  buffer key = BUFFER_BOUNDED(1 << 16), value = BUFFER_BOUNDED(1 << 20);
  stow_status status = STOW_OK;
  for (size_t i = 0; i < range_count(t->settings) && status == STOW_OK; i++) {
    const torch_pair *p = (const torch_pair *)t->pairs.data + range_first(t->settings) + i;
    buffer_clear(&key);
    buffer_clear(&value);
    append_value(&key, t, &(pickle_value){.tag = PICKLE_STRING, .v = p->key}, 0);
    append_value(&value, t, &p->value, 2);
    buffer_append(&key, "", 0);
    buffer_append(&value, "", 0);
    status = key.status != STOW_OK ? key.status : value.status;
    if (status == STOW_ERR_BUDGET) { /* a setting of a megabyte is not a setting */
      t->r->bad_values++;
      status = STOW_OK;
      continue;
    }
    if (status != STOW_OK) break;
    status = recording_add_setting(t->r, key.data != NULL ? key.data : "",
                                   value.data != NULL ? value.data : "");
  }
  buffer_free(&key);
  buffer_free(&value);
  return status;
}

/* ---- events ---- */

/* Merges `more` into the events by time. Both keep their order; at equal times the existing events
 * come first. */
static stow_status merge_by_time(recording *r, const event *more, size_t count) {
  size_t left = r->event_count;
  for (size_t i = 0; i < count; i++) STOW_TRY(recording_add_event(r, &more[i], NULL));
  /* Backwards, so that nothing is overwritten before it is moved. */
  for (size_t to = r->event_count; count > 0; to--) {
    if (left > 0 && r->events[left - 1].time_ns > more[count - 1].time_ns)
      r->events[to - 1] = r->events[--left];
    else
      r->events[to - 1] = more[--count];
  }
  return STOW_OK;
}

/* Sets the device of events; the reader has set device 0. */
static stow_status set_device(recording *r, event *events, size_t count, uint16_t device) {
  for (size_t i = 0; i < count && device != 0; i++) {
    origin of = *event_origin(r, &events[i]);
    uint32_t id;
    of.device = device;
    STOW_TRY(recording_origin(r, &id, &of));
    events[i].origin_id = id;
  }
  return STOW_OK;
}

/* Closes the gaps before, between and after the devices' lists. */
static stow_status keep_events(torch_reader *t, size_t *counts, size_t devices) {
  recording *r = t->r;
  const uint64_t *traces = (const uint64_t *)t->traces.data;
  if (traces == NULL)
    devices = 0; /* no list, no devices */
  else
    traces += range_first(t->device_traces);
  size_t to = 0, behind = 0;
  for (size_t d = 0; d < devices; d++) {
    size_t first = range_first(traces[d]), count = range_count(traces[d]);
    counts[d] = count;
    if (count == 0) continue;
    if (first < behind || first + count > r->event_count)
      return stow_fail(STOW_ERR_FORMAT, "the trace of device %zu occurs twice", d);
    memmove(r->events + to, r->events + first, count * sizeof *r->events);
    STOW_TRY(set_device(r, r->events + to, count, (uint16_t)d));
    to += count;
    behind = first + count;
  }
  r->skipped_events += r->event_count - to;
  r->event_count = to;
  return STOW_OK;
}

/* Merges each device into the first one's events. Copies out one later device at a time. */
static stow_status merge_devices(recording *r, const size_t *counts, size_t devices) {
  size_t total = r->event_count;
  event *rest = NULL;
  size_t first = devices > 0 ? counts[0] : 0, rest_count = total - first;
  if (rest_count == 0) return STOW_OK;
  rest = malloc(rest_count * sizeof *rest);
  if (rest == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to order %zu events", rest_count);
  memcpy(rest, r->events + first, rest_count * sizeof *rest);
  r->event_count = first;
  stow_status status = STOW_OK;
  size_t at = 0;
  for (size_t d = 1; d < devices && status == STOW_OK; at += counts[d++])
    if (counts[d] > 0) status = merge_by_time(r, rest + at, counts[d]);
  free(rest);
  return status;
}

static stow_status finish_events(torch_reader *t) {
  size_t devices = range_count(t->device_traces);
  if (devices > UINT16_MAX)
    return stow_fail(STOW_ERR_FORMAT, "traces of %zu devices; at most 65535 are supported",
                     devices);
  size_t *counts = calloc(devices + 1, sizeof *counts);
  if (counts == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to order the events");
  stow_status status = keep_events(t, counts, devices);
  if (status == STOW_OK) status = merge_devices(t->r, counts, devices);
  free(counts);
  STOW_TRY(status);
  size_t count = range_count(t->annotations);
  if (count == 0) return STOW_OK;
  const event *notes = (const event *)t->notes.data + range_first(t->annotations);
  return merge_by_time(t->r, notes, count);
}

/* ---- segments ---- */

/* Drops segments of other lists and the blocks that only they had. */
static void keep_segments(recording *r, uint64_t range) {
  size_t first = range_first(range), count = range_count(range);
  if (count > 0) memmove(r->segments, r->segments + first, count * sizeof *r->segments);
  r->segment_count = count;
  uint64_t to = 0;
  for (size_t i = 0; i < count; i++) {
    segment *s = &r->segments[i];
    /* Blocks were read in the order of their segments, so they only move down. Blocks claimed twice
     * stay with their first segment. */
    if (s->first_block < to && s->block_count > 0) {
      r->bad_values++;
      s->block_count = 0;
    }
    if (s->block_count > 0)
      memmove(r->blocks + to, r->blocks + s->first_block, s->block_count * sizeof *r->blocks);
    s->first_block = to;
    to += s->block_count;
  }
  r->block_count = to;
}

stow_status torch_finish(torch_reader *t) {
  STOW_TRY(finish_settings(t));
  STOW_TRY(finish_events(t));
  keep_segments(t->r, t->segments);
  return STOW_OK;
}
