/* PyTorch memory snapshot: converts lists to ranges of rows, by their contents.
 *
 * A list of frames is a stack. A list of consecutive rows of a table is one range. A list of ranges
 * of events is the devices' traces. A list may be filled in several steps. */
#include <string.h>

#include "recordings/torch_reader.h"

/* Every handler gets the reader through the pickle machine's user pointer, which is never NULL; the
 * analyzer cannot see that. NOLINTBEGIN(clang-analyzer-core.NullDereference) */

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

/* Makes consecutive rows one range. Items that are not rows are counted; rows from elsewhere make
 * the list opaque. */
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

stow_status torch_take_list(void *reader, pickle_value *value, const pickle_value *items,
                            size_t count) {
  torch_reader *t = reader;
  size_t i = 0; /* the first usable item determines the kind of list */
  while (i + 1 < count && items[i].tag < PICKLE_SINK_FIRST && items[i].tag != PICKLE_EMPTY_LIST)
    i++;
  uint8_t kind = items[i].tag;
  switch (value->tag) { /* or its previous kind */
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

stow_status torch_take_tuple(void *reader, pickle_value *value, const pickle_value *items,
                             size_t count) {
  (void)reader;
  if (count != 2 || items[0].tag != PICKLE_INT || items[1].tag != PICKLE_INT) return STOW_OK;
  if ((int32_t)items[0].i != items[0].i || (int32_t)items[1].i != items[1].i) return STOW_OK;
  value->tag = TORCH_PAIR;
  value->v = (uint64_t)(uint32_t)items[0].i << 32 | (uint32_t)items[1].i;
  return STOW_OK;
}
/* NOLINTEND(clang-analyzer-core.NullDereference) */
