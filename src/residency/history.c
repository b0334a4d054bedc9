/* History: the log, the index of past positions, and next uses. */
#include "residency/history.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"

enum {
  MISMATCHES_MAX = 16, /* new launches in a row that count as insertions */
  MISMATCHES_SKIP = 4, /* after so many, a function alone shows that launches are missing */
  SKIP_MAX = 16,       /* forecast launches that may be missing */
  RARE = 64,           /* a unit that no launch named for so long is rarely used */
  VOTERS_MAX = 4,      /* units of a launch that are asked */
  UNITS_COMPARED = 8,
  VOTES_LEAST = 4, /* a jump needs so many */
  UNSURE_MAX = 8,  /* after so many launches that nothing confirmed, 8 keys elsewhere are better */
  VOTES_WINDOW = 64, /* launches after which votes count half */
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
  ASSERT(unit < h->unit_capacity);
  h->units[unit] = (history_unit){HISTORY_NEVER, HISTORY_NEVER};
}

/* ---- the cursor ---- */

static uint32_t *slot(const history *h, uint64_t hash) {
  return &h->index[(hash ^ hash >> 32) & h->index_mask];
}

/* Return the hash of the eight keys, and of the eight functions, up to `position`; 0 if fewer are
 * kept. */
static uint64_t eight(const history *h, uint64_t position) {
  if (position < h->base + 8) return 0;
  return hash_u64(history_at(h, position)->four, history_at(h, position - 4)->four) | 1;
}

static uint64_t names_eight(const history *h, uint64_t position) {
  if (position < h->base + 8) return 0;
  return hash_u64(history_at(h, position)->names_four, history_at(h, position - 4)->names_four) | 1;
}

/* Returns the position that the index has for a hash, if the log still holds it. */
static uint64_t find(const history *h, uint64_t hash, uint64_t now) {
  uint64_t position = (now & ~UINT64_C(0xffffffff)) | *slot(h, hash);
  if (position >= now) position -= UINT64_C(1) << 32;
  return position >= now || position < h->base ? HISTORY_NEVER : position;
}

/* Returns where the eight keys up to the launch at `now` occurred before. */
static uint64_t locate(const history *h, uint64_t now) {
  uint64_t hash = eight(h, now), found = hash != 0 ? find(h, hash, now) : HISTORY_NEVER;
  return found != HISTORY_NEVER && eight(h, found) == hash ? found : HISTORY_NEVER;
}

/* The same by weaker evidence: the last two keys; the eight functions. */
static uint64_t locate_pair(const history *h, uint64_t now) {
  uint64_t pair = history_at(h, now)->pair, found = find(h, pair, now);
  return found != HISTORY_NEVER && history_at(h, found)->pair == pair ? found : HISTORY_NEVER;
}

static uint64_t locate_names(const history *h, uint64_t now) {
  uint64_t hash = names_eight(h, now), found = hash != 0 ? find(h, hash, now) : HISTORY_NEVER;
  return found != HISTORY_NEVER && names_eight(h, found) == hash ? found : HISTORY_NEVER;
}

/* Returns the last position before an entry where the same function named its unit, if the unit is
 * rarely used. */
static uint64_t named_before(const history *h, uint64_t entry, uint64_t function) {
  ASSERT(entry >= h->entry_base && entry < h->entry_end);
  const history_entry *e = history_entry_at(h, entry);
  uint64_t now = history_position(h, e), rare = RARE;
  if (h->cursor != HISTORY_NEVER && (now - h->cursor) / 4 < rare) rare = (now - h->cursor) / 4;
  for (int i = 0; i < UNITS_COMPARED && e->prev != 0 && entry - e->prev >= h->entry_base; i++) {
    entry -= e->prev;
    e = history_entry_at(h, entry);
    uint64_t position = history_position(h, e);
    if (i == 0 && now - position < rare) break;
    if (position >= h->base && history_at(h, position)->function == function) return position;
  }
  return HISTORY_NEVER;
}

static history_vote *vote_for(history *h, uint64_t distance) {
  history_vote *least = &h->votes[0];
  for (int i = 0; i < HISTORY_VOTES; i++) {
    if (h->votes[i].distance == distance) return &h->votes[i];
    if (h->votes[i].count < least->count) least = &h->votes[i];
  }
  *least = (history_vote){.distance = distance};
  return least;
}

/* Asks the rarely used units of the launch at `now` which position the present repeats. Returns it
 * if one of them says `cursor`, or if they have agreed often enough on another one. */
static uint64_t vote(history *h, uint64_t now, uint64_t cursor) {
  const history_launch *l = history_at(h, now);
  uint64_t said[VOTERS_MAX];
  int count = 0;
  for (uint32_t i = 0; i < l->count && count < VOTERS_MAX && i < 2 * VOTERS_MAX; i++) {
    uint64_t position = named_before(h, l->first + i, l->function);
    if (position == HISTORY_NEVER) continue;
    if (position == cursor) {
      h->support += h->support < VOTES_WINDOW;
      h->unsure = 0;
      return cursor;
    }
    said[count++] = position;
  }
  for (int i = 0; i < count; i++) {
    if (i > 0 && said[i] == said[i - 1]) continue;
    history_vote *v = vote_for(h, now - said[i]);
    v->count++;
    if (v->count < VOTES_LEAST || v->count <= 2 * h->support) continue;
    h->support = v->count;
    memset(h->votes, 0, sizeof h->votes);
    return said[i];
  }
  return HISTORY_NEVER;
}

/* Returns a position after the cursor that the launch at `now` repeats: launches are missing. */
static uint64_t skip(const history *h, uint64_t now, uint64_t cursor) {
  ASSERT(cursor < now);
  const history_launch *l = history_at(h, now);
  uint64_t same = HISTORY_NEVER;
  for (uint64_t i = 1; i <= SKIP_MAX && cursor + i < now; i++) {
    const history_launch *other = history_at(h, cursor + i);
    if (other->key == l->key) return cursor + i;
    if (same == HISTORY_NEVER && other->function == l->function && h->mismatches >= MISMATCHES_SKIP)
      same = cursor + i;
  }
  return same;
}

static void follow(history *h, uint64_t now) {
  ASSERT(now < h->end);
  uint64_t cursor = h->cursor;
  const history_launch *l = history_at(h, now);
  if (cursor != HISTORY_NEVER && (cursor < h->base || cursor >= now)) cursor = HISTORY_NEVER;
  const history_launch *expected = cursor != HISTORY_NEVER ? history_at(h, cursor) : NULL;
  if (now % VOTES_WINDOW == 0) {
    h->support /= 2;
    for (int i = 0; i < HISTORY_VOTES; i++) h->votes[i].count /= 2;
  }
  uint64_t found = HISTORY_NEVER;
  if (expected != NULL && expected->key == l->key) {
    found = cursor;
    h->unsure = 0;
    h->support += l->count > 0 && h->support < VOTES_WINDOW;
  } else if (expected != NULL && expected->function == l->function) {
    found = vote(h, now, cursor);
    if (found == HISTORY_NEVER && h->unsure++ >= UNSURE_MAX) found = locate(h, now);
    if (found == HISTORY_NEVER) found = cursor;
  }
  if (found == cursor && cursor != HISTORY_NEVER) {
    h->cursor = cursor + 1;
    h->matched++;
    h->mismatches = 0;
    h->hits++;
    return;
  }
  h->misses++;
  h->matched = 0;
  if (found == HISTORY_NEVER) found = locate(h, now);
  if (found == HISTORY_NEVER && cursor != HISTORY_NEVER) found = skip(h, now, cursor);
  if (found == HISTORY_NEVER) found = locate_pair(h, now);
  if (found == HISTORY_NEVER) found = vote(h, now, HISTORY_NEVER);
  bool lost = cursor == HISTORY_NEVER || h->mismatches >= MISMATCHES_MAX;
  if (found == HISTORY_NEVER && lost) found = locate_names(h, now);
  uint64_t next = found != HISTORY_NEVER ? found + 1 : HISTORY_NEVER;
  if (found == HISTORY_NEVER && ++h->mismatches <= MISMATCHES_MAX) next = cursor;
  if (found != HISTORY_NEVER) h->mismatches = 0;
  h->jumps += next != cursor;
  h->cursor = next;
}

/* ---- the log ---- */

static void drop_launch(history *h) {
  ASSERT(h->base < h->end);
  const history_launch *l = history_at(h, h->base++);
  h->entry_base = l->first + l->count;
}

static void add_entry(history *h, uint64_t position, uint32_t unit) {
  ASSERT(unit < h->unit_capacity);
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
  ASSERT(n->count == 0 || n->units != NULL);
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
  l->names = hash_u64(n->function, before != NULL ? before->function : 0);
  l->names_four = hash_u64(l->names, earlier != NULL ? earlier->names : 0);
  for (uint32_t i = 0; i < count; i++) add_entry(h, now, n->units[i]);
  follow(h, now);
  if (!is_due(h, now)) return;
  uint64_t hash = eight(h, now);
  if (hash != 0) {
    *slot(h, hash) = (uint32_t)now;
    *slot(h, names_eight(h, now)) = (uint32_t)now;
  }
  *slot(h, l->pair) = (uint32_t)now;
}

/* ---- the forecast ---- */

uint64_t history_next_use(history *h, uint32_t unit) {
  ASSERT(unit < h->unit_capacity);
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
