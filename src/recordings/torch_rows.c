/* PyTorch memory snapshot: converts dicts to rows of tables as they complete.
 *
 * A dict is recognized by its keys, wherever it is: an `action` makes it a trace entry, a
 * `filename` a frame, and so on. So the order of members, old field names and new fields do not
 * matter. torch_finish drops rows in unexpected places (host_traces, for example). */
#include <stdlib.h>
#include <string.h>

#include "recordings/torch_reader.h"
#include "recordings/torch_words.h"

/* Every handler gets the reader through the pickle machine's user pointer, which is never NULL; the
 * analyzer cannot see that. NOLINTBEGIN(clang-analyzer-core.NullDereference) */

/* ---- values ---- */

#define NAME_UNKNOWN (UINT32_C(1) << 31)

static stow_status name_slot(torch_reader *t, uint32_t **slot, uint64_t string) {
  while (t->names.count <= string) {
    void *fresh;
    STOW_TRY(torch_table_add(t, &t->names, sizeof(uint32_t), &fresh));
  }
  *slot = (uint32_t *)t->names.data + string;
  return STOW_OK;
}

/* Returns the recording's name id for a string of the machine. */
static stow_status string_name(torch_reader *t, uint32_t *name_id, uint64_t string) {
  uint32_t *slot;
  STOW_TRY(name_slot(t, &slot, string));
  if ((*slot & ~NAME_UNKNOWN) == 0) {
    size_t count;
    const char *text = pickle_text(&t->machine, string, &count);
    uint32_t id;
    STOW_TRY(recording_name(t->r, &id, text, count));
    *slot |= id;
  }
  *name_id = *slot & ~NAME_UNKNOWN;
  return STOW_OK;
}

/* Counts each unknown field name once. */
static stow_status unknown_key(torch_reader *t, const pickle_value *key) {
  if (key->tag != PICKLE_STRING) {
    t->r->bad_values++;
    return STOW_OK;
  }
  uint32_t *slot;
  STOW_TRY(name_slot(t, &slot, key->v));
  if (!(*slot & NAME_UNKNOWN)) t->r->unknown_fields++;
  *slot |= NAME_UNKNOWN;
  return STOW_OK;
}

static uint8_t key_of(const pickle_value *key) {
  return key->tag == PICKLE_STRING && key->aux < KEY_COUNT ? (uint8_t)key->aux : KEY_NONE;
}

/* Returns a non-negative number; counts anything else and clears *good. */
static uint64_t number(torch_reader *t, const pickle_value *value, bool *good) {
  if (value->tag == PICKLE_UINT || (value->tag == PICKLE_INT && value->i >= 0)) return value->v;
  t->r->bad_values++;
  *good = false;
  return 0;
}

/* Returns the stack of a `frames` member. */
static uint32_t stack_of(torch_reader *t, const pickle_value *value) {
  if (value->tag == TORCH_STACK) return (uint32_t)value->v;
  if (value->tag != PICKLE_EMPTY_LIST && value->tag != PICKLE_NONE) t->r->bad_values++;
  return 0;
}

static stow_status name_of(torch_reader *t, uint32_t *id, const pickle_value *value) {
  if (value->tag == PICKLE_STRING) return string_name(t, id, value->v);
  if (value->tag != PICKLE_NONE) t->r->bad_values++;
  return STOW_OK;
}

/* ---- rows ---- */

/* Sets *value to the range of the appended row; to an empty range unless `good`. */
static void worth(pickle_value *value, uint8_t tag, size_t index, bool good) {
  value->tag = tag;
  value->v = torch_range(index, good ? 1 : 0);
}

static stow_status read_event(torch_reader *t, pickle_value *out, const pickle_value *pairs,
                              size_t count) {
  event e = {0};
  origin of = {0};
  bool good = true, known = true;
  for (const pickle_value *p = pairs, *end = pairs + 2 * count; p < end; p += 2) {
    const pickle_value *v = p + 1;
    switch (key_of(p)) {
    case KEY_ACTION:
      known = v->tag == PICKLE_STRING && v->aux >= WORD_ACTION;
      if (known) e.kind = v->aux - WORD_ACTION;
      break;
    case KEY_ADDR:
    case KEY_DEVICE_FREE: e.addr = number(t, v, &good); break;
    case KEY_SIZE: e.bytes = number(t, v, &good); break;
    case KEY_STREAM: of.stream = number(t, v, &good); break;
    case KEY_TIME_US: e.time_ns = number(t, v, &good); break;
    case KEY_FRAMES: e.stack_id = stack_of(t, v); break;
    case KEY_COMPILE_CONTEXT:
      if (of.tag_id == 0 && v->aux != WORD_NOT_APPLICABLE) STOW_TRY(name_of(t, &of.tag_id, v));
      break;
    case KEY_USER_METADATA: /* the program's own annotation precedes the compiler's */
      if (v->aux != WORD_NOT_APPLICABLE) STOW_TRY(name_of(t, &of.tag_id, v));
      break;
    default: STOW_TRY(unknown_key(t, p));
    }
  }
  if (e.time_ns > UINT64_MAX / 1000) {
    t->r->bad_values++;
    good = false;
  }
  e.time_ns *= 1000;
  good = good && known;
  if (good)
    STOW_TRY(recording_add_event(t->r, &e, &of));
  else
    t->r->skipped_events++;
  worth(out, TORCH_EVENT, t->r->event_count - good, good);
  return STOW_OK;
}

static stow_status read_frame(torch_reader *t, pickle_value *out, const pickle_value *pairs,
                              size_t count) {
  uint32_t name = 0, file = 0, id;
  uint64_t line = 0;
  for (const pickle_value *p = pairs, *end = pairs + 2 * count; p < end; p += 2) {
    bool good = true;
    switch (key_of(p)) {
    case KEY_NAME: STOW_TRY(name_of(t, &name, p + 1)); break;
    case KEY_FILENAME: STOW_TRY(name_of(t, &file, p + 1)); break;
    case KEY_LINE:
      line = number(t, p + 1, &good);
      if (line > UINT32_MAX) line = 0, t->r->bad_values++;
      break;
    default: STOW_TRY(unknown_key(t, p));
    }
  }
  STOW_TRY(recording_frame(t->r, &id, name, file, (uint32_t)line));
  out->tag = TORCH_FRAME;
  out->v = id;
  return STOW_OK;
}

/* Returns the frame of {"name": str, "filename": str, "line": int}, as every PyTorch version writes
 * it; NULL for anything else. */
static torch_frame *cached_frame(torch_reader *t, const pickle_value *pairs, size_t count) {
  if (count != 3 || pairs[0].aux != KEY_NAME || pairs[2].aux != KEY_FILENAME ||
      pairs[4].aux != KEY_LINE || pairs[1].tag != PICKLE_STRING || pairs[3].tag != PICKLE_STRING ||
      pairs[5].tag != PICKLE_INT || pairs[5].v > UINT32_MAX)
    return NULL;
  uint64_t hash = hash_u64(pairs[1].v << 32 ^ pairs[3].v, pairs[5].v);
  return &t->frames[hash % TORCH_FRAME_CACHE];
}

static stow_status read_frame_cached(torch_reader *t, pickle_value *out, const pickle_value *pairs,
                                     size_t count) {
  torch_frame *f = cached_frame(t, pairs, count);
  if (f == NULL) return read_frame(t, out, pairs, count);
  uint32_t name = (uint32_t)pairs[1].v, file = (uint32_t)pairs[3].v, line = (uint32_t)pairs[5].v;
  if (f->id == 0 || f->name != name || f->file != file || f->line != line) {
    STOW_TRY(read_frame(t, out, pairs, count));
    *f = (torch_frame){name, file, line, (uint32_t)out->v};
  }
  out->tag = TORCH_FRAME;
  out->v = f->id;
  return STOW_OK;
}

static stow_status read_block(torch_reader *t, pickle_value *out, const pickle_value *pairs,
                              size_t count) {
  block b = {0};
  bool good = true;
  for (const pickle_value *p = pairs, *end = pairs + 2 * count; p < end; p += 2) {
    const pickle_value *v = p + 1;
    switch (key_of(p)) {
    case KEY_ADDRESS: b.addr = number(t, v, &good); break;
    case KEY_SIZE: b.bytes = number(t, v, &good); break;
    case KEY_REQUESTED_SIZE: b.requested_bytes = number(t, v, &good); break;
    case KEY_FRAMES: b.stack_id = stack_of(t, v); break;
    case KEY_STATE:
      if (v->tag == PICKLE_STRING && v->aux == WORD_LIVE)
        b.state = BLOCK_LIVE;
      else if (v->tag == PICKLE_STRING && v->aux == WORD_PENDING)
        b.state = BLOCK_PENDING;
      else if (v->tag != PICKLE_STRING || v->aux != WORD_INACTIVE)
        t->r->bad_values++;
      break;
    case KEY_HISTORY: /* before 2.1: the latest use of the block comes first */
      if (v->tag == TORCH_HISTORY && v->v < t->histories.count) {
        const torch_history *h = (const torch_history *)t->histories.data + v->v;
        b.stack_id = h->stack_id;
        b.requested_bytes = h->bytes;
      }
      break;
    default: STOW_TRY(unknown_key(t, p));
    }
  }
  t->histories.count = 0;
  if (good) STOW_TRY(recording_add_block(t->r, &b));
  worth(out, TORCH_BLOCK, t->r->block_count - good, good);
  return STOW_OK;
}

static stow_status read_history(torch_reader *t, pickle_value *out, const pickle_value *pairs,
                                size_t count) {
  void *element;
  STOW_TRY(torch_table_add(t, &t->histories, sizeof(torch_history), &element));
  torch_history *h = element;
  *h = (torch_history){0};
  bool good = true;
  for (const pickle_value *p = pairs, *end = pairs + 2 * count; p < end; p += 2) {
    switch (key_of(p)) {
    case KEY_FRAMES: h->stack_id = stack_of(t, p + 1); break;
    case KEY_REAL_SIZE: h->bytes = number(t, p + 1, &good); break;
    case KEY_ADDR: break;
    default: STOW_TRY(unknown_key(t, p));
    }
  }
  out->tag = TORCH_HISTORY;
  out->v = t->histories.count - 1;
  return STOW_OK;
}

/* Computes the addresses of blocks: before PyTorch 2.1 blocks have none and fill their segment in
 * order. */
static void place_blocks(torch_reader *t, const segment *s) {
  uint64_t addr = s->addr;
  for (uint32_t i = 0; i < s->block_count; i++) {
    block *b = &t->r->blocks[s->first_block + i];
    if (b->addr == 0) b->addr = addr;
    addr = b->addr + b->bytes;
  }
}

static stow_status read_segment(torch_reader *t, pickle_value *out, const pickle_value *pairs,
                                size_t count) {
  segment s = {0};
  bool good = true;
  for (const pickle_value *p = pairs, *end = pairs + 2 * count; p < end; p += 2) {
    const pickle_value *v = p + 1;
    switch (key_of(p)) {
    case KEY_DEVICE: {
      uint64_t device = number(t, v, &good);
      s.device = device <= UINT16_MAX ? (uint16_t)device : 0;
      if (device > UINT16_MAX) good = false;
      break;
    }
    case KEY_ADDRESS: s.addr = number(t, v, &good); break;
    case KEY_TOTAL_SIZE: s.bytes = number(t, v, &good); break;
    case KEY_STREAM: s.stream = number(t, v, &good); break;
    case KEY_SEGMENT_TYPE: s.small = v->tag == PICKLE_STRING && v->aux == WORD_SMALL; break;
    case KEY_SEGMENT_POOL_ID:
      if (v->tag == TORCH_PAIR) {
        s.pool[0] = (int32_t)(v->v >> 32);
        s.pool[1] = (int32_t)v->v;
      } else {
        t->r->bad_values++;
      }
      break;
    case KEY_IS_EXPANDABLE: s.expandable = v->tag == PICKLE_BOOL && v->v != 0; break;
    case KEY_FRAMES: s.stack_id = stack_of(t, v); break;
    case KEY_BLOCKS:
      if (v->tag == TORCH_BLOCKS) {
        s.first_block = range_first(v->v);
        s.block_count = (uint32_t)range_count(v->v);
      } else if (v->tag != PICKLE_EMPTY_LIST) {
        t->r->bad_values++;
      }
      break;
    case KEY_ALLOCATED_SIZE:
    case KEY_ACTIVE_SIZE:
    case KEY_REQUESTED_SIZE: break; /* sums over the blocks */
    default: STOW_TRY(unknown_key(t, p));
    }
  }
  if (good) {
    place_blocks(t, &s);
    STOW_TRY(recording_add_segment(t->r, &s));
  }
  worth(out, TORCH_SEGMENT, t->r->segment_count - good, good);
  return STOW_OK;
}

static stow_status read_note(torch_reader *t, pickle_value *out, const pickle_value *pairs,
                             size_t count) {
  event e = {.kind = EVENT_KIND_COUNT};
  origin of = {0};
  bool good = true;
  for (const pickle_value *p = pairs, *end = pairs + 2 * count; p < end; p += 2) {
    const pickle_value *v = p + 1;
    switch (key_of(p)) {
    case KEY_NAME: STOW_TRY(name_of(t, &of.tag_id, v)); break;
    case KEY_STAGE:
      if (v->tag != PICKLE_STRING) break;
      if (v->aux == WORD_START) e.kind = EVENT_MARK_BEGIN;
      if (v->aux == WORD_END) e.kind = EVENT_MARK_END;
      break;
    case KEY_DEVICE: {
      bool fine = true; /* -1 if none was current */
      uint64_t device = v->tag == PICKLE_INT && v->i == -1 ? 0 : number(t, v, &fine);
      of.device = device <= UINT16_MAX ? (uint16_t)device : 0;
      break;
    }
    case KEY_TIME_US: e.time_ns = number(t, v, &good); break;
    default: STOW_TRY(unknown_key(t, p));
    }
  }
  good = good && e.kind != EVENT_KIND_COUNT && e.time_ns <= UINT64_MAX / 1000;
  e.time_ns *= 1000;
  if (good) {
    void *element;
    uint32_t id;
    STOW_TRY(recording_origin(t->r, &id, &of));
    e.origin_id = id;
    STOW_TRY(torch_table_add(t, &t->notes, sizeof e, &element));
    memcpy(element, &e, sizeof e);
  } else {
    t->r->skipped_events++;
  }
  worth(out, TORCH_NOTE, t->notes.count - good, good);
  return STOW_OK;
}

/* Returns the range that the root has under `key`, or fails and names the expected contents. */
static stow_status member(uint64_t *range, const pickle_value *value, uint8_t tag, const char *key,
                          const char *meaning) {
  *range = 0;
  if (value->tag == tag) *range = value->v;
  if (value->tag == tag || value->tag == PICKLE_EMPTY_LIST || value->tag == PICKLE_EMPTY_DICT ||
      value->tag == PICKLE_NONE)
    return STOW_OK;
  return stow_fail(STOW_ERR_FORMAT, "\"%s\" is %s, not %s", key, pickle_tag_name(value->tag),
                   meaning);
}

/* Reads what the program was doing, as python/stowage/_program.py writes it, into a fact of the
 * recording. */
static stow_status read_program(torch_reader *t, const pickle_value *value) {
  uint32_t id = 0;
  STOW_TRY(name_of(t, &id, value));
  if (recording_text(t->r, id)[0] == '\0') return STOW_OK;
  char *text = strdup(recording_text(t->r, id)); /* names move when one is added */
  if (text == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a fact");
  stow_status status = recording_add_fact(t->r, RECORDING_PROGRAM, text);
  free(text);
  return status;
}

static stow_status read_root(torch_reader *t, pickle_value *out, const pickle_value *pairs,
                             size_t count) {
  for (const pickle_value *p = pairs, *end = pairs + 2 * count; p < end; p += 2) {
    const pickle_value *v = p + 1;
    switch (key_of(p)) {
    case KEY_SEGMENTS:
      STOW_TRY(member(&t->segments, v, TORCH_SEGMENTS, "segments", "a list of segments"));
      break;
    case KEY_DEVICE_TRACES:
      STOW_TRY(member(&t->device_traces, v, TORCH_TRACES, "device_traces",
                      "a list of a list of trace entries for each device"));
      break;
    case KEY_ALLOCATOR_SETTINGS:
      STOW_TRY(member(&t->settings, v, TORCH_SETTINGS, "allocator_settings", "a dict of settings"));
      break;
    case KEY_EXTERNAL_ANNOTATIONS:
      STOW_TRY(
          member(&t->annotations, v, TORCH_NOTES, "external_annotations", "a list of annotations"));
      break;
    case KEY_ERROR: STOW_TRY(name_of(t, &t->r->error_id, v)); break;
    case KEY_PROGRAM: STOW_TRY(read_program(t, v)); break;
    default: STOW_TRY(unknown_key(t, p));
    }
  }
  t->has_root = true;
  out->tag = TORCH_ROOT;
  out->v = 0;
  return STOW_OK;
}

/* Stores any other dict as pairs if its keys are strings, for the allocator's settings. */
static stow_status read_settings(torch_reader *t, pickle_value *out, const pickle_value *pairs,
                                 size_t count) {
  uint64_t range = out->tag == TORCH_SETTINGS ? out->v : torch_range(t->pairs.count, 0);
  if (range_first(range) + range_count(range) != t->pairs.count) { /* continued after others */
    out->tag = PICKLE_OPAQUE;
    out->v = 0;
    return STOW_OK;
  }
  for (const pickle_value *p = pairs, *end = pairs + 2 * count; p < end; p += 2) {
    if (p->tag != PICKLE_STRING) continue;
    void *element;
    STOW_TRY(torch_table_add(t, &t->pairs, sizeof(torch_pair), &element));
    *(torch_pair *)element = (torch_pair){(uint32_t)p->v, p[1]};
  }
  out->tag = TORCH_SETTINGS;
  out->v = torch_range(range_first(range), t->pairs.count - range_first(range));
  return STOW_OK;
}

stow_status torch_take_dict(void *reader, pickle_value *value, const pickle_value *pairs,
                            size_t count) {
  torch_reader *t = reader;
  if (value->tag == PICKLE_EMPTY_DICT && count > 0) { /* the two that occur by the million */
    if (count == 3 && key_of(&pairs[0]) == KEY_NAME && key_of(&pairs[2]) == KEY_FILENAME)
      return read_frame_cached(t, value, pairs, count);
    if (key_of(&pairs[0]) == KEY_ACTION) return read_event(t, value, pairs, count);
  }
  uint64_t keys = 0;
  for (size_t i = 0; i < count; i++) keys |= UINT64_C(1) << key_of(&pairs[2 * i]);
#define HAS(key) (keys >> (key)&1)
  if (HAS(KEY_SEGMENTS) || HAS(KEY_DEVICE_TRACES) || value->tag == TORCH_ROOT)
    return read_root(t, value, pairs, count);
  if (value->tag != PICKLE_EMPTY_DICT && value->tag != TORCH_SETTINGS)
    return stow_fail(STOW_ERR_FORMAT, "a dict of the snapshot is filled in two steps");
  if (HAS(KEY_ACTION)) return read_event(t, value, pairs, count);
  if (HAS(KEY_FILENAME) || (HAS(KEY_NAME) && HAS(KEY_LINE)))
    return read_frame(t, value, pairs, count);
  if (HAS(KEY_TOTAL_SIZE)) return read_segment(t, value, pairs, count);
  if (HAS(KEY_STATE)) return read_block(t, value, pairs, count);
  if (HAS(KEY_STAGE)) return read_note(t, value, pairs, count);
  if (HAS(KEY_REAL_SIZE)) return read_history(t, value, pairs, count);
#undef HAS
  return read_settings(t, value, pairs, count);
}
/* NOLINTEND(clang-analyzer-core.NullDereference) */
