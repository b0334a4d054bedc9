/* History: the log, the index of past positions, and next uses. */
#include "residency/history.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum {
  STRANGERS_MAX = 16, /* new launches in a row that count as insertions */
  SOFT_MAX = 64,      /* launches in a row that may match by function only */
  SKIP_MAX = 16,      /* forecast launches that may be missing */
};

static size_t power_of_two(size_t n) {
  size_t p = 64;
  while (p < n) p *= 2;
  return p;
}

stow_status history_open(history *h, size_t launches, size_t entries) {
  *h = (history){.cursor = HISTORY_NEVER};
  launches = power_of_two(launches);
  entries = power_of_two(entries);
  h->launch_mask = launches - 1;
  h->entry_mask = entries - 1;
  h->index_mask = 4 * launches - 1;
  h->launches = calloc(launches, sizeof *h->launches);
  h->entries = calloc(entries, sizeof *h->entries);
  h->index = calloc(4 * launches, sizeof *h->index);
  if (h->launches != NULL && h->entries != NULL && h->index != NULL) return STOW_OK;
  history_close(h);
  return stow_fail(STOW_ERR_HOST_MEMORY, "residency: no host memory for a history of %zu launches",
                   launches);
}

void history_close(history *h) {
  free(h->launches);
  free(h->entries);
  free(h->index);
  free(h->units);
  *h = (history){0};
}

stow_status history_reserve(history *h, size_t count) {
  if (count <= h->unit_capacity) return STOW_OK;
  size_t capacity = h->unit_capacity < 256 ? 256 : h->unit_capacity;
  while (capacity < count) capacity *= 2;
  history_unit *units = realloc(h->units, capacity * sizeof *units);
  if (units == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "residency: no host memory for %zu units", capacity);
  for (size_t i = h->unit_capacity; i < capacity; i++)
    units[i] = (history_unit){HISTORY_NEVER, HISTORY_NEVER};
  h->units = units;
  h->unit_capacity = capacity;
  return STOW_OK;
}

void history_forget(history *h, uint32_t unit) {
  h->units[unit] = (history_unit){HISTORY_NEVER, HISTORY_NEVER};
}

/* ---- the cursor ---- */

static uint32_t *slot(const history *h, uint64_t hash) {
  return &h->index[(hash ^ hash >> 32) & h->index_mask];
}

/* Returns the hash of the eight keys up to `position`; 0 if fewer are kept. */
static uint64_t eight(const history *h, uint64_t position) {
  if (position < h->base + 8) return 0;
  return hash_u64(history_at(h, position)->four, history_at(h, position - 4)->four) | 1;
}

/* Returns the position that the index has for a hash, if the log still holds it and the key
 * matches. */
static uint64_t find(const history *h, uint64_t hash, uint64_t now, uint64_t key) {
  uint64_t position = (now & ~UINT64_C(0xffffffff)) | *slot(h, hash);
  if (position >= now) position -= UINT64_C(1) << 32;
  if (position >= now || position < h->base) return HISTORY_NEVER;
  return history_at(h, position)->key == key ? position : HISTORY_NEVER;
}

/* Finds where the present, whose launch is at `now`, occurred before. The cursor then follows
 * it. */
static uint64_t locate(history *h, uint64_t now, uint64_t key) {
  uint64_t hash = eight(h, now), found = HISTORY_NEVER;
  if (hash != 0) {
    found = find(h, hash, now, key);
    if (found != HISTORY_NEVER && eight(h, found) == hash) return found + 1;
  }
  found = find(h, history_at(h, now)->pair, now, key);
  if (found != HISTORY_NEVER && history_at(h, found)->pair == history_at(h, now)->pair)
    return found + 1;
  return HISTORY_NEVER;
}

static void follow(history *h, uint64_t now, uint64_t key, uint64_t function) {
  uint64_t cursor = h->cursor;
  if (cursor != HISTORY_NEVER && cursor < h->base) cursor = HISTORY_NEVER; /* overwritten */
  if (cursor != HISTORY_NEVER && cursor < now && history_at(h, cursor)->key == key) {
    h->cursor = cursor + 1;
    h->matched++;
    h->strangers = h->soft = 0;
    h->hits++;
    return;
  }
  h->misses++;
  h->matched = 0;
  uint64_t found = locate(h, now, key);
  for (uint64_t i = 1; found == HISTORY_NEVER && cursor != HISTORY_NEVER && i <= SKIP_MAX; i++)
    if (cursor + i < now && history_at(h, cursor + i)->key == key) found = cursor + i + 1;
  if (found == HISTORY_NEVER && cursor != HISTORY_NEVER && cursor < now && h->soft < SOFT_MAX &&
      history_at(h, cursor)->function == function &&
      history_at(h, cursor)->count == history_at(h, now)->count) {
    h->cursor = cursor + 1;
    h->soft++;
    return;
  }
  if (found == HISTORY_NEVER && ++h->strangers <= STRANGERS_MAX) found = cursor;
  if (found != cursor) h->jumps++;
  if (found != HISTORY_NEVER && found != cursor) h->strangers = 0;
  h->cursor = found;
}

/* ---- the log ---- */

static void drop_launch(history *h) {
  const history_launch *l = history_at(h, h->base++);
  h->entry_base = l->first + l->count;
}

static void add_entry(history *h, uint64_t position, uint32_t unit) {
  uint64_t number = h->entry_end++;
  history_unit *u = &h->units[unit];
  uint32_t back = 0;
  if (u->last != HISTORY_NEVER && u->last >= h->entry_base) {
    back = (uint32_t)(number - u->last);
    h->entries[u->last & h->entry_mask].next = back;
  }
  h->entries[number & h->entry_mask] = (history_entry){unit, (uint32_t)position, 0, back};
  u->last = number;
}

/* Returns whether the index should store this position. While the present repeats the past, old
 * index entries stay valid until the log drops them, so most positions are skipped: each would be a
 * cache miss. */
static bool is_due(const history *h, uint64_t now) {
  uint64_t part = (h->launch_mask + 1) / 8;
  return h->matched < 64 || (now & part) == 0;
}

void history_add(history *h, const history_new *n) {
  uint64_t key = n->key;
  uint32_t count = n->count;
  if (count > h->entry_mask / 2) count = (uint32_t)(h->entry_mask / 2);
  while (h->end - h->base > h->launch_mask ||
         (h->entry_end - h->entry_base + count > h->entry_mask + 1 && h->base < h->end))
    drop_launch(h);
  uint64_t now = h->end++;
  history_launch *l = &h->launches[now & h->launch_mask];
  const history_launch *before = now > h->base ? history_at(h, now - 1) : NULL;
  const history_launch *earlier = now >= h->base + 2 ? history_at(h, now - 2) : NULL;
  *l = (history_launch){.key = key,
                        .pair = hash_u64(key, before != NULL ? before->key : 0),
                        .words = n->words,
                        .function = n->function,
                        .time_ns = before != NULL ? before->time_ns : 0,
                        .first = h->entry_end,
                        .count = count,
                        .device_ns =
                            n->device_ns < UINT32_MAX ? (uint32_t)n->device_ns : UINT32_MAX};
  l->time_ns += n->time_ns; /* time up to the end of the launch */
  l->four = hash_u64(l->pair, earlier != NULL ? earlier->pair : 0);
  for (uint32_t i = 0; i < count; i++) add_entry(h, now, n->units[i]);
  follow(h, now, key, n->function);
  if (!is_due(h, now)) return;
  uint64_t hash = eight(h, now);
  if (hash != 0) *slot(h, hash) = (uint32_t)now;
  *slot(h, l->pair) = (uint32_t)now;
}

/* ---- the forecast ---- */

uint64_t history_next_use(history *h, uint32_t unit) {
  if (h->cursor == HISTORY_NEVER) return HISTORY_NEVER;
  history_unit *u = &h->units[unit];
  if (u->last == HISTORY_NEVER || u->last < h->entry_base) return HISTORY_NEVER;
  uint64_t at = u->hint;
  if (at == HISTORY_NEVER || at < h->entry_base || at > u->last) at = u->last;
  const history_entry *e = history_entry_at(h, at);
  if (history_position(h, e) >= h->cursor) {
    while (e->prev != 0 && at - e->prev >= h->entry_base) {
      const history_entry *before = history_entry_at(h, at - e->prev);
      if (history_position(h, before) < h->cursor) break;
      at -= e->prev;
      e = before;
    }
  } else {
    while (history_position(h, e) < h->cursor && e->next != 0)
      at += e->next, e = history_entry_at(h, at);
  }
  u->hint = at;
  return history_position(h, e) >= h->cursor ? history_position(h, e) : HISTORY_NEVER;
}

uint64_t history_time_to(const history *h, uint64_t position) {
  if (position == HISTORY_NEVER || h->cursor == HISTORY_NEVER) return UINT64_MAX;
  if (position <= h->cursor || h->cursor == h->base) return 0;
  return history_at(h, position - 1)->time_ns - history_at(h, h->cursor - 1)->time_ns;
}
