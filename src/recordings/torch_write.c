/* Writes PyTorch's snapshot pickle, as torch.cuda.memory._dump_snapshot does.
 *
 * Protocol 4, plain values only. Strings, frames and stacks are memoized, so a recording with
 * stacks stays small and unpickles into shared objects. Lists are filled a thousand items at a
 * time, like Python does. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/utf8.h"
#include "recordings/recording_write.h"
#include "recordings/torch_words.h"

enum { BATCH = 1000, FLUSH_BYTES = 1 << 16 };

typedef struct writer {
  const recording *r;
  outfile *out;
  buffer b;
  uint32_t memo_count;
  uint32_t *names, *frames, *stacks; /* memo index + 1 */
  intern words;                      /* keys and other constant texts */
  uint32_t *word_memo;
  size_t word_capacity;
  uint32_t empty_list; /* memo index + 1 */
  uint64_t left_out;
} writer;

/* ---- values ---- */

static void put(writer *w, const void *bytes, size_t count) {
  buffer_append(&w->b, bytes, count);
  if (w->b.length >= FLUSH_BYTES) {
    outfile_write(w->out, w->b.data, w->b.length);
    buffer_clear(&w->b);
  }
}

static void put_op(writer *w, uint8_t op) {
  put(w, &op, 1);
}

static void put_le(writer *w, uint8_t op, uint64_t value, size_t count) {
  uint8_t bytes[9] = {op};
  for (size_t i = 0; i < count; i++) bytes[1 + i] = (uint8_t)(value >> (8 * i));
  put(w, bytes, 1 + count);
}

static void put_uint(writer *w, uint64_t value) {
  if (value <= UINT8_MAX) {
    put_le(w, 'K', value, 1);
  } else if (value <= UINT16_MAX) {
    put_le(w, 'M', value, 2);
  } else if (value <= INT32_MAX) {
    put_le(w, 'J', value, 4);
  } else { /* LONG1: two's complement, so a set top bit needs an extra byte */
    uint8_t bytes[11] = {0x8a, 0};
    do {
      bytes[2 + bytes[1]++] = (uint8_t)value;
      value >>= 8;
    } while (value != 0);
    if (bytes[1 + bytes[1]] & 0x80) bytes[1]++;
    put(w, bytes, 2u + bytes[1]);
  }
}

static void put_int(writer *w, int64_t value) {
  if (value >= 0)
    put_uint(w, (uint64_t)value);
  else if (value >= INT32_MIN)
    put_le(w, 'J', (uint64_t)value, 4);
  else { /* LONG1 of eight bytes */
    put_le(w, 0x8a, 8, 1);
    uint8_t bytes[8];
    for (size_t i = 0; i < 8; i++) bytes[i] = (uint8_t)((uint64_t)value >> (8 * i));
    put(w, bytes, 8);
  }
}

static uint32_t memoize(writer *w) {
  put_op(w, 0x94);
  return ++w->memo_count;
}

static void put_memo(writer *w, uint32_t memo) {
  if (memo - 1 <= UINT8_MAX)
    put_le(w, 'h', memo - 1, 1);
  else
    put_le(w, 'j', memo - 1, 4);
}

/* Writes text. Pickled text must be UTF-8; other bytes become U+FFFD. */
static void put_text_bytes(writer *w, const char *text, size_t count) {
  buffer clean = BUFFER_INIT;
  for (size_t i = 0; i < count;) {
    uint32_t point;
    size_t n = utf8_take((const unsigned char *)text + i, count - i, &point);
    buffer_append(&clean, n > 0 ? text + i : "\xef\xbf\xbd", n > 0 ? n : 3);
    i += n > 0 ? n : 1;
  }
  if (clean.status != STOW_OK && w->out->status == STOW_OK) w->out->status = clean.status;
  if (clean.length <= UINT8_MAX)
    put_le(w, 0x8c, clean.length, 1);
  else
    put_le(w, 'X', clean.length, 4);
  put(w, clean.data, clean.length);
  buffer_free(&clean);
}

/* Writes a constant text, memoized at its first use. */
static void put_word(writer *w, const char *text) {
  uint32_t number;
  stow_status status = intern_add(&w->words, &number, text, strlen(text));
  if (status != STOW_OK && w->out->status == STOW_OK) w->out->status = status;
  if (status != STOW_OK || number >= w->word_capacity) {
    put_text_bytes(w, text, strlen(text)); /* more words than expected: written out */
    return;
  }
  if (w->word_memo[number] != 0) {
    put_memo(w, w->word_memo[number]);
    return;
  }
  put_text_bytes(w, text, strlen(text));
  w->word_memo[number] = memoize(w);
}

static void put_name(writer *w, uint32_t name_id) {
  if (name_id == 0 || name_id > w->r->names.count) {
    put_word(w, "");
  } else if (w->names[name_id - 1] != 0) {
    put_memo(w, w->names[name_id - 1]);
  } else {
    size_t count;
    const char *text = intern_get(&w->r->names, name_id - 1, &count);
    put_text_bytes(w, text, count);
    w->names[name_id - 1] = memoize(w);
  }
}

/* ---- members ---- */

static void member_uint(writer *w, const char *key, uint64_t value) {
  put_word(w, key);
  put_uint(w, value);
}

static void member_word(writer *w, const char *key, const char *value) {
  put_word(w, key);
  put_word(w, value);
}

static void put_frame(writer *w, uint32_t id) {
  if (w->frames[id - 1] != 0) {
    put_memo(w, w->frames[id - 1]);
    return;
  }
  const frame *f = &w->r->frames[id - 1];
  put_op(w, '}');
  w->frames[id - 1] = memoize(w);
  put_op(w, '(');
  put_word(w, "name");
  put_name(w, f->name_id);
  put_word(w, "filename");
  put_name(w, f->file_id);
  member_uint(w, "line", f->line);
  put_op(w, 'u');
}

static void member_frames(writer *w, uint32_t stack_id) {
  put_word(w, "frames");
  uint32_t *memo = stack_id != 0 ? &w->stacks[stack_id - 1] : &w->empty_list;
  if (*memo != 0) {
    put_memo(w, *memo);
    return;
  }
  put_op(w, ']');
  *memo = memoize(w);
  if (stack_id == 0) return;
  const stack *s = &w->r->stacks[stack_id - 1];
  put_op(w, '(');
  for (uint32_t i = 0; i < s->count; i++) {
    uint32_t id = w->r->stack_frames[s->first + i];
    if (id != 0) put_frame(w, id);
  }
  put_op(w, 'e');
}

/* Opens and closes batches of a list; call it before each item with its number. */
static void batch(writer *w, uint64_t number) {
  if (number % BATCH != 0) return;
  if (number > 0) put_op(w, 'e');
  put_op(w, '(');
}

/* ---- parts ---- */

static void put_block(writer *w, const block *b) {
  static const char *const states[] = {"inactive", "active_allocated", "active_pending_free"};
  put(w, "}(", 2);
  member_uint(w, "address", b->addr);
  member_uint(w, "size", b->bytes);
  member_uint(w, "requested_size", b->requested_bytes);
  member_word(w, "state", states[b->state <= BLOCK_PENDING ? b->state : 0]);
  member_frames(w, b->stack_id);
  put_op(w, 'u');
}

static void put_segment(writer *w, const segment *s, const block *blocks) {
  uint64_t live = 0, active = 0, requested = 0;
  for (uint32_t i = 0; i < s->block_count; i++) {
    if (blocks[i].state == BLOCK_LIVE) live += blocks[i].bytes;
    if (blocks[i].state != BLOCK_FREE) active += blocks[i].bytes;
    if (blocks[i].state != BLOCK_FREE) requested += blocks[i].requested_bytes;
  }
  put(w, "}(", 2);
  member_uint(w, "device", s->device);
  member_uint(w, "address", s->addr);
  member_uint(w, "total_size", s->bytes);
  member_uint(w, "allocated_size", live);
  member_uint(w, "active_size", active);
  member_uint(w, "requested_size", requested);
  member_uint(w, "stream", s->stream);
  member_word(w, "segment_type", s->small ? "small" : "large");
  put_word(w, "segment_pool_id");
  put_int(w, s->pool[0]);
  put_int(w, s->pool[1]);
  put_op(w, 0x86);
  put_word(w, "is_expandable");
  put_op(w, s->expandable ? 0x88 : 0x89);
  member_frames(w, s->stack_id);
  put_word(w, "blocks");
  put_op(w, ']');
  for (uint32_t i = 0; i < s->block_count; i++) {
    batch(w, i);
    put_block(w, &blocks[i]);
  }
  if (s->block_count > 0) put_op(w, 'e');
  put_op(w, 'u');
}

static stow_status put_segments(writer *w) {
  rebuilt made = {0};
  const segment *segments = w->r->segments;
  const block *blocks = w->r->blocks;
  size_t count = w->r->segment_count;
  if (count == 0) {
    STOW_TRY(segments_rebuild(&made, w->r));
    segments = made.segments;
    blocks = made.blocks;
    count = made.segment_count;
  }
  put_word(w, "segments");
  put_op(w, ']');
  for (size_t i = 0; i < count; i++) {
    batch(w, i);
    put_segment(w, &segments[i],
                segments[i].block_count > 0 ? blocks + segments[i].first_block : NULL);
  }
  if (count > 0) put_op(w, 'e');
  free(made.segments);
  free(made.blocks);
  return STOW_OK;
}

static bool is_trace_entry(const event *e) {
  return e->kind <= EVENT_SNAPSHOT;
}

static bool is_mark(const event *e) {
  return e->kind == EVENT_MARK_BEGIN || e->kind == EVENT_MARK_END;
}

static void put_event(writer *w, const event *e) {
  const origin *of = event_origin(w->r, e);
  put(w, "}(", 2);
  member_word(w, "action", event_kind_name(e->kind));
  member_uint(w, e->kind == EVENT_FAIL ? "device_free" : "addr", e->addr);
  member_uint(w, "size", e->bytes);
  member_uint(w, "stream", of->stream);
  member_uint(w, "time_us", e->time_ns / 1000);
  member_word(w, "compile_context", "N/A");
  put_word(w, "user_metadata");
  put_name(w, of->tag_id);
  member_frames(w, e->stack_id);
  put_op(w, 'u');
}

/* Sorts the trace entries' numbers by device: those of device d are from starts[d] up to starts[d +
 * 1]. */
static stow_status order_by_device(const recording *r, size_t **order, size_t **starts,
                                   size_t *devices) {
  *devices = 1;
  size_t count = 0;
  for (size_t i = 0; i < r->event_count; i++) {
    if (!is_trace_entry(&r->events[i])) continue;
    size_t device = event_origin(r, &r->events[i])->device;
    if (device >= *devices) *devices = device + 1;
    count++;
  }
  *order = malloc((count + 1) * sizeof **order);
  *starts = calloc(*devices + 2, sizeof **starts);
  if (*order == NULL || *starts == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to order %zu events", count);
  size_t *next = *starts + 1; /* counted two entries ahead, so that filling moves it into place */
  for (size_t i = 0; i < r->event_count; i++)
    if (is_trace_entry(&r->events[i])) next[event_origin(r, &r->events[i])->device + 1]++;
  for (size_t d = 1; d <= *devices; d++) next[d] += next[d - 1];
  for (size_t i = 0; i < r->event_count; i++)
    if (is_trace_entry(&r->events[i])) (*order)[next[event_origin(r, &r->events[i])->device]++] = i;
  return STOW_OK;
}

static stow_status put_traces(writer *w) {
  size_t *order = NULL, *starts = NULL, devices;
  stow_status status = order_by_device(w->r, &order, &starts, &devices);
  if (status == STOW_OK) {
    put_word(w, "device_traces");
    put_op(w, ']');
    for (size_t d = 0; d < devices; d++) {
      batch(w, d);
      put_op(w, ']');
      for (size_t i = starts[d]; i < starts[d + 1]; i++) {
        batch(w, i - starts[d]);
        put_event(w, &w->r->events[order[i]]);
      }
      if (starts[d + 1] > starts[d]) put_op(w, 'e');
    }
    put_op(w, 'e');
  }
  free(order);
  free(starts);
  return status;
}

static void put_annotations(writer *w) {
  uint64_t count = 0;
  put_word(w, "external_annotations");
  put_op(w, ']');
  for (size_t i = 0; i < w->r->event_count; i++) {
    const event *e = &w->r->events[i];
    if (!is_mark(e)) {
      w->left_out += !is_trace_entry(e);
      continue;
    }
    batch(w, count++);
    put(w, "}(", 2);
    member_word(w, "stage", e->kind == EVENT_MARK_BEGIN ? "START" : "END");
    put_word(w, "name");
    put_name(w, event_origin(w->r, e)->tag_id);
    member_uint(w, "device", event_origin(w->r, e)->device);
    member_uint(w, "time_us", e->time_ns / 1000);
    put_op(w, 'u');
  }
  if (count > 0) put_op(w, 'e');
}

/* ---- settings: from text back to Python values ---- */

static void put_value(writer *w, const char *text, size_t count) {
  char copy[64], *end;
  bool fits = count > 0 && count < sizeof copy;
  if (fits) {
    memcpy(copy, text, count);
    copy[count] = '\0';
    long long integer = strtoll(copy, &end, 10);
    if (*end == '\0') {
      put_int(w, integer);
      return;
    }
    double real = strtod(copy, &end);
    if (*end == '\0') {
      uint64_t bits;
      uint8_t bytes[9] = {'G'};
      memcpy(&bits, &real, 8);
      for (size_t i = 0; i < 8; i++) bytes[1 + i] = (uint8_t)(bits >> (56 - 8 * i));
      put(w, bytes, 9);
      return;
    }
  }
  if (count == 4 && memcmp(text, "True", 4) == 0)
    put_op(w, 0x88);
  else if (count == 5 && memcmp(text, "False", 5) == 0)
    put_op(w, 0x89);
  else if (count == 4 && memcmp(text, "None", 4) == 0)
    put_op(w, 'N');
  else
    put_text_bytes(w, text, count);
}

/* A reader recognizes the dicts of a snapshot by such names. No setting of PyTorch has one. */
static bool is_taken(const char *name, size_t count) {
  return torch_word(NULL, name, count) != KEY_NONE;
}

/* Writes "[256:1,512:2]" as a dict. */
static void put_nested(writer *w, const char *text, size_t count) {
  put(w, "}(", 2);
  for (const char *at = text + 1, *end = text + count - 1; at < end;) {
    const char *comma = memchr(at, ',', (size_t)(end - at));
    if (comma == NULL) comma = end;
    const char *colon = memchr(at, ':', (size_t)(comma - at));
    if (colon != NULL && !is_taken(at, (size_t)(colon - at))) {
      put_text_bytes(w, at, (size_t)(colon - at));
      put_value(w, colon + 1, (size_t)(comma - colon - 1));
    }
    at = comma + 1;
  }
  put_op(w, 'u');
}

static void put_settings(writer *w) {
  put_word(w, "allocator_settings");
  put(w, "}(", 2);
  for (size_t i = 0; i < w->r->setting_count; i++) {
    const char *key = recording_text(w->r, w->r->settings[i].key_id);
    const char *value = recording_text(w->r, w->r->settings[i].value_id);
    size_t count = strlen(value);
    if (is_taken(key, strlen(key))) continue;
    put_word(w, key);
    if (strncmp(key, "PYTORCH", 7) == 0) /* always text, whatever it looks like */
      put_text_bytes(w, value, count);
    else if (count >= 2 && value[0] == '[' && value[count - 1] == ']')
      put_nested(w, value, count);
    else
      put_value(w, value, count);
  }
  put_op(w, 'u');
}

/* ---- the whole snapshot ---- */

static stow_status put_all(writer *w) {
  put(w, "\x80\x04}(", 4);
  STOW_TRY(put_segments(w));
  STOW_TRY(put_traces(w));
  put_settings(w);
  put_annotations(w);
  if (w->r->error_id != 0) {
    put_word(w, "error");
    put_name(w, w->r->error_id);
  }
  uint32_t program = recording_fact_id(w->r, RECORDING_PROGRAM);
  if (program != 0) {
    put_word(w, "stowage_program");
    put_name(w, program);
  }
  put(w, "u.", 2);
  if (w->b.status != STOW_OK) return w->b.status;
  return outfile_write(w->out, w->b.data, w->b.length);
}

stow_status torch_snapshot_write(const recording *r, outfile *out, uint64_t *left_out) {
  writer w = {.r = r, .out = out, .b = BUFFER_INIT, .word_capacity = 64 + r->setting_count};
  w.names = calloc(r->names.count + 1u, sizeof *w.names);
  w.frames = calloc(r->frame_count + 1, sizeof *w.frames);
  w.stacks = calloc(r->stack_count + 1, sizeof *w.stacks);
  w.word_memo = calloc(w.word_capacity, sizeof *w.word_memo);
  stow_status status =
      w.names != NULL && w.frames != NULL && w.stacks != NULL && w.word_memo != NULL
          ? put_all(&w)
          : stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to write a snapshot");
  if (left_out != NULL) *left_out = w.left_out;
  free(w.names);
  free(w.frames);
  free(w.stacks);
  free(w.word_memo);
  intern_free(&w.words);
  buffer_free(&w.b);
  return status;
}
