/* PyTorch memory snapshot, first half: dicts and lists become rows of tables as they complete.
 *
 * A dict is known by its keys, wherever it stands: an `action` makes it a trace entry, a `filename`
 * a frame, and so on; a list by what it holds. So the order of members, old field names and new
 * fields do not matter, and rows that end up in a place nobody asked for (host_traces, say) are
 * dropped by torch_finish. */
#include "formats/torch_snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "formats/torch_words.h"

/* The reader reaches every handler through the pickle machine's user pointer, which is never null;
 * the analyzer cannot see that far. NOLINTBEGIN(clang-analyzer-core.NullDereference) */

stow_status torch_table_add(torch_reader *t, torch_table *table, size_t size, void **element) {
  if (table->count == table->capacity) {
    size_t wanted = table->capacity == 0 ? 64 : table->capacity * 2;
    uint64_t more = (wanted - table->capacity) * size;
    if (t->machine.work_bytes + more > t->machine.max_work_bytes)
      return stow_fail(STOW_ERR_BUDGET,
                       "reading it needs more than the %llu MiB of working memory allowed",
                       (unsigned long long)(t->machine.max_work_bytes >> 20));
    void *bigger = realloc(table->data, wanted * size);
    if (bigger == NULL)
      return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a table of %zu entries", wanted);
    memset((char *)bigger + table->capacity * size, 0, (size_t)more);
    t->machine.work_bytes += more;
    table->data = bigger;
    table->capacity = wanted;
  }
  *element = (char *)table->data + table->count++ * size;
  return STOW_OK;
}

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

stow_status torch_name(torch_reader *t, uint32_t *name_id, uint64_t string) {
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

/* A field nobody knows: each name is counted once. */
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

/* A number that cannot be negative; anything else is counted and clears *good. */
static uint64_t number(torch_reader *t, const pickle_value *value, bool *good) {
  if (value->tag == PICKLE_UINT || (value->tag == PICKLE_INT && value->i >= 0)) return value->v;
  t->r->bad_values++;
  *good = false;
  return 0;
}

/* The stack a `frames` member stands for. */
static uint32_t stack_of(torch_reader *t, const pickle_value *value) {
  if (value->tag == TORCH_STACK) return (uint32_t)value->v;
  if (value->tag != PICKLE_EMPTY_LIST && value->tag != PICKLE_NONE) t->r->bad_values++;
  return 0;
}

static stow_status name_of(torch_reader *t, uint32_t *id, const pickle_value *value) {
  if (value->tag == PICKLE_STRING) return torch_name(t, id, value->v);
  if (value->tag != PICKLE_NONE) t->r->bad_values++;
  return STOW_OK;
}

/* ---- dicts ---- */

/* Appends a row and answers with its range; a row that is not `good` is an empty range. */
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
    case KEY_USER_METADATA: /* the program's own word goes before the compiler's */
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

/* {"name": str, "filename": str, "line": int}, as every PyTorch writes it; NULL if it is not. */
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
    case KEY_HISTORY: /* before 2.1: the latest use of the block stands first */
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

/* Blocks before PyTorch 2.1 tell no address: they fill their segment in order. */
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
      bool fine = true; /* -1 where none was current */
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

/* A range the root was given under `key`, or none with the fault named. */
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
    default: STOW_TRY(unknown_key(t, p));
    }
  }
  t->has_root = true;
  out->tag = TORCH_ROOT;
  out->v = 0;
  return STOW_OK;
}

/* Any other dict: kept as pairs if its keys are words, for the allocator's settings. */
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

static stow_status take_dict(void *context, pickle_value *value, const pickle_value *pairs,
                             size_t count) {
  torch_reader *t = context;
  if (value->tag == PICKLE_EMPTY_DICT && count > 0) { /* the two that come by the million */
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
    return stow_fail(STOW_ERR_FORMAT, "a dict of a snapshot that is filled in two steps");
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

/* ---- lists ---- */

static stow_status list_of_frames(torch_reader *t, pickle_value *value, const pickle_value *items,
                                  size_t count) {
  enum { FRAMES_MAX = 4096 }; /* deeper stacks lose their outer end */
  uint32_t frames[FRAMES_MAX], have = 0;
  if (value->tag == TORCH_STACK) {
    const stack *s = &t->r->stacks[value->v - 1];
    have = s->count < FRAMES_MAX ? s->count : FRAMES_MAX;
    if (have > 0) memcpy(frames, t->r->stack_frames + s->first, have * sizeof *frames);
  }
  for (size_t i = 0; i < count && have < FRAMES_MAX; i++) {
    if (items[i].tag == TORCH_FRAME)
      frames[have++] = (uint32_t)items[i].v;
    else
      t->r->bad_values++;
  }
  uint32_t id;
  STOW_TRY(recording_stack(t->r, &id, frames, have));
  value->tag = TORCH_STACK;
  value->v = id;
  return STOW_OK;
}

/* Rows that follow one another become one range. Items that are no rows are counted; rows of
 * another place among them make the list opaque. */
static stow_status list_of_rows(torch_reader *t, pickle_value *value, uint8_t list_tag,
                                const pickle_value *items, size_t count, uint8_t row_tag) {
  size_t first = range_first(value->v), rows = value->tag == list_tag ? range_count(value->v) : 0;
  for (size_t i = 0; i < count; i++) {
    if (items[i].tag != row_tag) {
      t->r->bad_values++;
      continue;
    }
    size_t add = range_count(items[i].v);
    if (add > 0 && rows == 0) first = range_first(items[i].v);
    if (add > 0 && range_first(items[i].v) != first + rows) {
      value->tag = PICKLE_OPAQUE;
      value->v = 0;
      return STOW_OK;
    }
    rows += add;
  }
  value->tag = list_tag;
  value->v = torch_range(first, rows);
  return STOW_OK;
}

/* Lists of lists of entries: device_traces. */
static stow_status list_of_traces(torch_reader *t, pickle_value *value, const pickle_value *items,
                                  size_t count) {
  uint64_t range = value->tag == TORCH_TRACES ? value->v : torch_range(t->traces.count, 0);
  bool good = range_first(range) + range_count(range) == t->traces.count;
  for (size_t i = 0; i < count && good; i++) {
    good = items[i].tag == TORCH_EVENTS || items[i].tag == PICKLE_EMPTY_LIST;
    void *element;
    STOW_TRY(torch_table_add(t, &t->traces, sizeof(uint64_t), &element));
    *(uint64_t *)element = items[i].tag == TORCH_EVENTS ? items[i].v : 0;
  }
  value->tag = good ? TORCH_TRACES : PICKLE_OPAQUE;
  value->v = good ? torch_range(range_first(range), t->traces.count - range_first(range)) : 0;
  return STOW_OK;
}

static stow_status take_list(void *context, pickle_value *value, const pickle_value *items,
                             size_t count) {
  torch_reader *t = context;
  size_t i = 0; /* what the first item of use is, the list is of */
  while (i + 1 < count && items[i].tag < PICKLE_SINK_FIRST && items[i].tag != PICKLE_EMPTY_LIST)
    i++;
  uint8_t kind = items[i].tag;
  switch (value->tag) { /* or what it was of before */
  case TORCH_STACK: kind = TORCH_FRAME; break;
  case TORCH_TRACES: kind = TORCH_EVENTS; break;
  case TORCH_EVENTS: kind = TORCH_EVENT; break;
  case TORCH_BLOCKS: kind = TORCH_BLOCK; break;
  case TORCH_SEGMENTS: kind = TORCH_SEGMENT; break;
  case TORCH_NOTES: kind = TORCH_NOTE; break;
  default: break;
  }
  switch (kind) {
  case TORCH_FRAME: return list_of_frames(t, value, items, count);
  case TORCH_EVENT: return list_of_rows(t, value, TORCH_EVENTS, items, count, TORCH_EVENT);
  case TORCH_BLOCK: return list_of_rows(t, value, TORCH_BLOCKS, items, count, TORCH_BLOCK);
  case TORCH_SEGMENT: return list_of_rows(t, value, TORCH_SEGMENTS, items, count, TORCH_SEGMENT);
  case TORCH_NOTE: return list_of_rows(t, value, TORCH_NOTES, items, count, TORCH_NOTE);
  case TORCH_EVENTS:
  case PICKLE_EMPTY_LIST: return list_of_traces(t, value, items, count);
  case TORCH_HISTORY:
    if (value->tag == PICKLE_EMPTY_LIST) {
      value->tag = TORCH_HISTORY;
      value->v = items[i].v;
    }
    return STOW_OK;
  default:
    value->tag = PICKLE_OPAQUE;
    value->v = 0;
    return STOW_OK;
  }
}

static stow_status take_tuple(void *context, pickle_value *value, const pickle_value *items,
                              size_t count) {
  (void)context;
  if (count != 2 || items[0].tag != PICKLE_INT || items[1].tag != PICKLE_INT) return STOW_OK;
  if ((int32_t)items[0].i != items[0].i || (int32_t)items[1].i != items[1].i) return STOW_OK;
  value->tag = TORCH_PAIR;
  value->v = (uint64_t)(uint32_t)items[0].i << 32 | (uint32_t)items[1].i;
  return STOW_OK;
}

/* ---- the whole ---- */

static stow_status read_all(torch_reader *t, input *in, uint64_t max_work_bytes) {
  const uint32_t forget = 1u << TORCH_EVENT | 1u << TORCH_EVENTS | 1u << TORCH_TRACES |
                          1u << TORCH_BLOCK | 1u << TORCH_BLOCKS | 1u << TORCH_SEGMENT |
                          1u << TORCH_SEGMENTS | 1u << TORCH_NOTE | 1u << TORCH_NOTES |
                          1u << TORCH_HISTORY | 1u << TORCH_ROOT;
  const pickle_sink sink = {t, torch_word, take_dict, take_list, take_tuple, forget};
  pickle_value root;
  STOW_TRY(pickle_run(&t->machine, in, &sink, max_work_bytes, &root));
  STOW_TRY(input_fill(in, input_left(in) + 1)); /* to the end: gzip's checksum stands there */
  if (root.tag == TORCH_SEGMENTS) {             /* torch.cuda.memory_snapshot(): segments alone */
    t->segments = root.v;
    t->has_root = true;
  }
  if (!t->has_root || (root.tag != TORCH_ROOT && root.tag != TORCH_SEGMENTS))
    return stow_fail(STOW_ERR_FORMAT,
                     "%s: a pickle of %s, not a memory snapshot: that is a dict with \"segments\" "
                     "and \"device_traces\"",
                     in->name,
                     root.tag == TORCH_SETTINGS ? "another dict" : pickle_tag_name(root.tag));
  return torch_finish(t);
}

stow_status torch_snapshot_read(recording *r, input *in, uint64_t max_work_bytes) {
  torch_reader *t = calloc(1, sizeof *t);
  if (t == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to read a snapshot");
  t->r = r;
  r->source = SOURCE_TORCH;
  stow_status status = read_all(t, in, max_work_bytes);
  pickle_free(&t->machine);
  free(t->traces.data);
  free(t->notes.data);
  free(t->pairs.data);
  free(t->histories.data);
  free(t->names.data);
  free(t);
  return status;
}
/* NOLINTEND(clang-analyzer-core.NullDereference) */
