/* Space: units by address, blocks that cross their edges, and words resolved to units. */
#include "residency/space.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/compare.h"

#define ARENA_BYTES (UINT64_C(64) << 20) /* a larger block may be an arena */
enum {
  ARENA_WORDS = 8,        /* a block with more words than this is one */
  ARENA_WORDS_MAX = 4096, /* words kept per arena */
  ARENA_PAUSE_LEAST = 64, /* launches */
  ARENA_LEARNS = 256,     /* launches after a new word during which others are expected */
  ARENA_SIZES = 256,      /* ranges that are looked at */
  ARENAS_MAX = 256,
  EXTENTS = 4096,    /* parameters that are remembered */
  EXTENT_WORDS = 24, /* of the first so many words of a launch */
  EXTENT_PART = 4,   /* what one of so many launches names is what all of them use */
  EXTENT_SCORE = 16  /* the highest score of a number of bytes */
};

void space_free(space *s) {
  for (uint32_t i = 0; i < s->arena_count; i++) {
    free(s->arenas[i].words);
    free(s->arenas[i].seen);
    free(s->arenas[i].pauses);
  }
  free(s->arenas);
  free(s->units);
  free(s->table);
  free(s->blocks);
  free(s->small);
  free(s->extents);
  *s = (space){0};
}

/* ---- units ---- */

static inline uint64_t place_of(const space *s, uint64_t granule) {
  return (granule * UINT64_C(0x9e3779b97f4a7c15)) >> 20 & s->table_mask;
}

static inline uint32_t find_granule(const space *s, uint64_t granule) {
  for (uint64_t at = place_of(s, granule);; at = (at + 1) & s->table_mask) {
    if (s->table[at].granule == granule + 1) return s->table[at].unit;
    if (s->table[at].granule == 0) return SPACE_NO_UNIT;
  }
}

uint32_t space_find(const space *s, uint64_t addr) {
  if (addr < s->low || addr >= s->high) return SPACE_NO_UNIT;
  return find_granule(s, addr >> SPACE_GRANULE_BITS);
}

uint64_t space_step(const space *s, uint64_t addr, uint32_t *unit) {
  *unit = space_find(s, addr);
  if (*unit == SPACE_NO_UNIT) return ((addr >> SPACE_GRANULE_BITS) + 1) << SPACE_GRANULE_BITS;
  return s->units[*unit].addr + s->units[*unit].bytes;
}

static void put_granule(space *s, uint64_t granule, uint32_t unit) {
  ASSERT(s->table != NULL);
  uint64_t at = place_of(s, granule);
  while (s->table[at].granule != 0) at = (at + 1) & s->table_mask;
  s->table[at] = (space_slot){granule + 1, unit};
}

static void remove_granule(space *s, uint64_t granule) {
  ASSERT(s->table_used > 0);
  uint64_t at = place_of(s, granule);
  while (s->table[at].granule != granule + 1) at = (at + 1) & s->table_mask;
  for (uint64_t next = at;;) {
    next = (next + 1) & s->table_mask;
    if (s->table[next].granule == 0) break;
    uint64_t home = place_of(s, s->table[next].granule - 1);
    if (((next - home) & s->table_mask) < ((next - at) & s->table_mask)) continue;
    s->table[at] = s->table[next];
    at = next;
  }
  s->table[at] = (space_slot){0};
  s->table_used--;
}

static stow_status no_memory(void) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "residency: no host memory for the table of units");
}

static stow_status table_room(space *s, uint64_t more) {
  if (s->table != NULL && (s->table_used + more) * 2 <= s->table_mask + 1) return STOW_OK;
  uint64_t size = s->table != NULL ? s->table_mask + 1 : 1024;
  while ((s->table_used + more) * 2 > size) size *= 2;
  space_slot *old = s->table, *table = calloc(size, sizeof *table);
  if (table == NULL) return no_memory();
  uint64_t old_size = old != NULL ? s->table_mask + 1 : 0;
  s->table = table;
  s->table_mask = size - 1;
  for (uint64_t i = 0; i < old_size; i++)
    if (old[i].granule != 0) put_granule(s, old[i].granule - 1, old[i].unit);
  free(old);
  return STOW_OK;
}

static stow_status take_number(space *s, uint32_t *unit) {
  for (uint32_t i = s->free_list; i > 0;) {
    *unit = i - 1;
    s->free_list = s->units[*unit].live;
    return STOW_OK;
  }
  if (s->count == s->capacity) {
    uint32_t capacity = s->capacity > 0 ? 2 * s->capacity : 256;
    space_unit *units = realloc(s->units, capacity * sizeof *units);
    if (units == NULL) return no_memory();
    s->units = units;
    s->capacity = capacity;
  }
  *unit = s->count++;
  return STOW_OK;
}

stow_status space_add(space *s, uint64_t addr, uint64_t bytes, uint32_t *unit) {
  const uint64_t mask = (UINT64_C(1) << SPACE_GRANULE_BITS) - 1;
  uint64_t granules = bytes >> SPACE_GRANULE_BITS, first = addr >> SPACE_GRANULE_BITS;
  if (bytes == 0 || ((addr | bytes) & mask) != 0 || addr + bytes < addr)
    return stow_fail(STOW_ERR_INVALID,
                     "residency: unit of %llu bytes at 0x%llx: not a multiple of 2 MiB",
                     (unsigned long long)bytes, (unsigned long long)addr);
  STOW_TRY(table_room(s, granules));
  for (uint64_t i = 0; i < granules; i++)
    if (find_granule(s, first + i) != SPACE_NO_UNIT)
      return stow_fail(STOW_ERR_INVALID, "residency: unit at 0x%llx: overlaps another one",
                       (unsigned long long)addr);
  STOW_TRY(take_number(s, unit));
  s->units[*unit] =
      (space_unit){.addr = addr, .bytes = bytes, .head_end = addr, .tail_start = addr + bytes};
  for (uint64_t i = 0; i < granules; i++) put_granule(s, first + i, *unit);
  s->table_used += granules;
  if (s->high == 0 || addr < s->low) s->low = addr;
  if (addr + bytes > s->high) s->high = addr + bytes;
  return STOW_OK;
}

uint32_t space_remove(space *s, uint64_t addr) {
  uint32_t unit = space_find(s, addr);
  if (unit == SPACE_NO_UNIT || s->units[unit].addr != addr) return SPACE_NO_UNIT;
  space_unit *u = &s->units[unit];
  for (uint64_t i = 0; i < u->bytes >> SPACE_GRANULE_BITS; i++)
    remove_granule(s, (addr >> SPACE_GRANULE_BITS) + i);
  *u = (space_unit){.live = s->free_list};
  s->free_list = unit + 1;
  return unit;
}

/* ---- blocks ---- */

static inline uint64_t block_place(const space *s, uint64_t addr) {
  return ((addr >> 9) * UINT64_C(0x9e3779b97f4a7c15)) >> 24 & s->block_mask;
}

/* Returns the block that begins at the address; NULL if there is none. */
static inline space_block *block_at(const space *s, uint64_t addr) {
  if (s->blocks == NULL) return NULL;
  for (uint64_t at = block_place(s, addr);; at = (at + 1) & s->block_mask) {
    if (s->blocks[at].addr == addr) return &s->blocks[at];
    if (s->blocks[at].addr == 0) return NULL;
  }
}

static void block_put(space *s, const space_block *b) {
  ASSERT(b->addr != 0 && b->bytes > 0);
  uint64_t at = block_place(s, b->addr);
  while (s->blocks[at].addr != 0) at = (at + 1) & s->block_mask;
  s->blocks[at] = *b;
}

static stow_status block_room(space *s) {
  if (s->small == NULL) s->small = malloc(SPACE_SMALL_MAX * sizeof *s->small);
  if (s->small == NULL) return no_memory();
  if (s->blocks != NULL && (s->block_count + 1) * 2 <= s->block_mask + 1) return STOW_OK;
  uint64_t size = s->blocks != NULL ? 2 * (s->block_mask + 1) : 1024;
  space_block *old = s->blocks, *blocks = calloc(size, sizeof *blocks);
  if (blocks == NULL) return no_memory();
  uint64_t old_size = old != NULL ? s->block_mask + 1 : 0;
  s->blocks = blocks;
  s->block_mask = size - 1;
  for (uint64_t i = 0; i < old_size; i++)
    if (old[i].addr != 0) block_put(s, &old[i]);
  free(old);
  return STOW_OK;
}

static bool block_take(space *s, uint64_t addr, space_block *taken) {
  if (s->blocks == NULL || addr == 0) return false;
  uint64_t at = block_place(s, addr);
  while (s->blocks[at].addr != addr) {
    if (s->blocks[at].addr == 0) return false;
    at = (at + 1) & s->block_mask;
  }
  *taken = s->blocks[at];
  for (uint64_t next = at;;) {
    next = (next + 1) & s->block_mask;
    if (s->blocks[next].addr == 0) break;
    uint64_t home = block_place(s, s->blocks[next].addr);
    if (((next - home) & s->block_mask) < ((next - at) & s->block_mask)) continue;
    s->blocks[at] = s->blocks[next];
    at = next;
  }
  s->blocks[at] = (space_block){0};
  s->block_count--;
  return true;
}

/* ---- arenas ---- */

/* Returns the number, plus 1, of the arena for a block that was allocated; 0: it is too small, or
 * there is no memory for one. */
static uint32_t arena_begin(space *s, uint64_t addr, uint64_t bytes) {
  if (bytes <= ARENA_BYTES) return 0;
  uint32_t at = 0;
  while (at < s->arena_count && (s->arenas[at].addr != addr || s->arenas[at].bytes != bytes)) at++;
  if (at == s->arena_count && at < ARENAS_MAX) {
    space_arena *arenas = s->arenas;
    if (arenas == NULL) arenas = calloc(ARENAS_MAX, sizeof *arenas);
    if (arenas == NULL) return 0;
    s->arenas = arenas;
    s->arenas[s->arena_count++] = (space_arena){.addr = addr, .bytes = bytes};
  } else if (at == s->arena_count) {
    uint32_t left = ARENAS_MAX;
    while (left > 0 && s->arenas[s->arena_next].live)
      s->arena_next = (s->arena_next + 1) % ARENAS_MAX, left--;
    if (left == 0) return 0;
    at = s->arena_next;
    s->arena_next = (at + 1) % ARENAS_MAX;
    space_arena *a = &s->arenas[at];
    *a = (space_arena){.addr = addr,
                       .bytes = bytes,
                       .words = a->words,
                       .seen = a->seen,
                       .pauses = a->pauses,
                       .capacity = a->capacity};
  }
  s->arenas[at].live = true;
  return at + 1;
}

static inline bool is_arena(const space_arena *a) {
  return a->live && a->count > ARENA_WORDS;
}

bool space_in_arena(const space *s, uint32_t unit) {
  ASSERT(unit < s->count);
  const space_unit *u = &s->units[unit];
  for (int edge = 0; edge < 2; edge++) {
    bool crossed = edge == 0 ? u->head_end > u->addr : u->tail_start < u->addr + u->bytes;
    const space_block *b = crossed ? block_at(s, edge == 0 ? u->head_addr : u->tail_addr) : NULL;
    if (b != NULL && b->arena > 0 && is_arena(&s->arenas[b->arena - 1])) return true;
  }
  return false;
}

/* Returns the index of the first word that is not below `word`. */
static uint32_t arena_find(const space_arena *a, uint64_t word) {
  uint32_t low = 0, high = a->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (a->words[middle] < word)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Returns whether a word was not seen for twice as long as `pause`. */
static inline bool is_old(const space_arena *a, uint32_t at, uint64_t stamp, uint64_t pause) {
  if (pause < ARENA_PAUSE_LEAST) pause = ARENA_PAUSE_LEAST;
  return a->pause > 0 && a->seen[at] + 2 * pause < stamp;
}

static void arena_drop_old(space_arena *a, uint64_t stamp) {
  ASSERT(a->count <= a->capacity);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < a->count; i++) {
    if (is_old(a, i, stamp, a->pause)) continue;
    a->words[kept] = a->words[i];
    a->pauses[kept] = a->pauses[i];
    a->seen[kept++] = a->seen[i];
  }
  if (kept > ARENA_WORDS) a->count = kept; /* it stays an arena */
}

static bool grow(uint64_t **list, uint32_t capacity) {
  uint64_t *grown = realloc(*list, capacity * sizeof *grown);
  if (grown != NULL) *list = grown;
  return grown != NULL;
}

static bool arena_room(space_arena *a, uint64_t stamp) {
  if (a->count == ARENA_WORDS_MAX) arena_drop_old(a, stamp);
  if (a->count < a->capacity) return true;
  if (a->count == ARENA_WORDS_MAX) return false;
  uint32_t capacity = a->capacity > 0 ? 2 * a->capacity : 16;
  if (!grow(&a->words, capacity) || !grow(&a->seen, capacity) || !grow(&a->pauses, capacity))
    return false;
  a->capacity = capacity;
  return true;
}

/* Notes a word and returns its index; if there is no room for it, the index of the first word after
 * it, and false in `*noted`. */
static uint32_t arena_see(space_arena *a, uint64_t word, uint64_t stamp, bool *noted) {
  ASSERT(word >= a->addr && word < a->addr + a->bytes);
  uint32_t at = arena_find(a, word);
  *noted = true;
  if (at < a->count && a->words[at] == word) {
    uint64_t pause = stamp - a->seen[at];
    if (pause > a->pauses[at]) a->pauses[at] = pause;
    if (pause > a->pause) a->pause = pause;
    a->seen[at] = stamp;
    a->latest = pause;
    return at;
  }
  a->latest = a->pause;
  *noted = arena_room(a, stamp);
  at = arena_find(a, word); /* words may have gone */
  if (!*noted) return at;
  memmove(a->words + at + 1, a->words + at, (a->count - at) * sizeof *a->words);
  memmove(a->seen + at + 1, a->seen + at, (a->count - at) * sizeof *a->seen);
  memmove(a->pauses + at + 1, a->pauses + at, (a->count - at) * sizeof *a->pauses);
  a->words[at] = word;
  a->seen[at] = stamp;
  a->pauses[at] = 0;
  a->newest = stamp;
  a->count++;
  return at;
}

/* Measures the ranges between words in use, from time to time: the largest, and the size that few
 * exceed. */
static void arena_measure(space_arena *a, uint64_t stamp) {
  if (a->measured_at > 0 && stamp < a->measured_at + ARENA_PAUSE_LEAST) return;
  uint64_t last = 0, sizes[ARENA_SIZES];
  uint32_t count = 0;
  a->most = 0;
  a->measured_at = stamp;
  for (uint32_t i = 0; i < a->count; i++) {
    if (is_old(a, i, stamp, a->pause)) continue;
    uint64_t size = last != 0 ? a->words[i] - last : 0;
    last = a->words[i];
    if (size > a->most) a->most = size;
    if (size < SPACE_SMALL_BYTES) continue;
    /* If there are more, the later ones replace others evenly. */
    sizes[count < ARENA_SIZES ? count : (count * UINT32_C(2654435761)) % ARENA_SIZES] = size;
    count++;
  }
  a->typical = 0;
  if (count < ARENA_WORDS) return;
  if (count > ARENA_SIZES) count = ARENA_SIZES;
  qsort(sizes, count, sizeof *sizes, compare_u64);
  a->typical = sizes[count - 1 - count / 10];
}

/* Returns whether words may be missing: a new one was seen not long ago. */
static inline bool is_learning(const space_arena *a, uint64_t stamp) {
  return stamp < a->newest + ARENA_LEARNS;
}

/* Returns whether a range is larger than most. */
static inline bool is_large(const space_arena *a, uint64_t bytes) {
  return a->typical > 0 && bytes > 2 * a->typical;
}

/* Returns the end of the range that the word seen last names, at the index `at`: the next word of a
 * buffer that is there. A buffer is gone if its word stayed away for twice as long as it ever did,
 * and as the word that is asked about just did: not longer than that, because it may not have come
 * back since an earlier phase of the program. The memory after the last word is often free and much
 * larger than the buffer, so this range is assumed to be as large as the largest of the others.
 * While new words appear, a range that is larger than most is assumed to be like them: the words in
 * it have not been seen yet. */
static uint64_t arena_end(space_arena *a, uint32_t at, uint64_t stamp) {
  ASSERT(at < a->count);
  uint64_t word = a->words[at], end = 0;
  for (at++; at < a->count && end == 0; at++)
    if (!is_old(a, at, stamp, a->pauses[at] > a->latest ? a->pauses[at] : a->latest))
      end = a->words[at];
  arena_measure(a, stamp);
  if (end == 0) {
    end = a->addr + a->bytes;
    if (a->most > 0 && a->most < end - word) end = word + a->most;
  }
  bool unsure = is_learning(a, stamp) && is_large(a, end - word);
  return unsure ? word + a->typical : end;
}

/* ---- extents ---- */

/* Keeps the most bytes that one of EXTENT_PART launches shows; one launch alone is no proof. A
 * score rises by EXTENT_PART with each launch that shows the number, and falls by 1 with each
 * other. */
static void level_learn(space_level *v, uint64_t bytes) {
  ASSERT(v->score <= EXTENT_SCORE);
  bool more = bytes > v->bytes && v->score > 0 && (v->more_score == 0 || v->more == bytes);
  if (more) {
    v->more = bytes;
    v->more_score += EXTENT_PART;
    if (v->more_score >= 2 * EXTENT_PART)
      *v = (space_level){.bytes = bytes, .score = v->more_score};
    return;
  }
  if (v->more_score > 0) v->more_score--;
  if (v->score == 0) *v = (space_level){.bytes = bytes, .score = 1};
  if (v->bytes != bytes)
    v->score--;
  else if ((v->score += EXTENT_PART) > EXTENT_SCORE)
    v->score = EXTENT_SCORE;
}

/* Notes a word of a parameter. Its next one is looked for below `limit`. */
static void peer_learn(space_extent *e, uint64_t word, uint64_t limit) {
  ASSERT(word < limit);
  uint64_t next = limit;
  bool known = false;
  for (uint32_t i = 0; i < SPACE_PEERS; i++) {
    known |= e->peers[i] == word;
    if (e->peers[i] > word && e->peers[i] < next) next = e->peers[i];
  }
  if (next < limit) level_learn(&e->wide, next - word);
  if (!known) e->peers[e->next++ % SPACE_PEERS] = word;
}

/* Returns what is known about a parameter of the launches that `shape` identifies. */
static space_extent *extent_of(space *s, uint64_t shape, size_t index) {
  ASSERT(s->extents != NULL);
  uint64_t key = hash_u64(hash_u64(shape, 0), index) | 1;
  space_extent *e = &s->extents[(key ^ key >> 32) % EXTENTS];
  if (e->key != key) *e = (space_extent){.key = key};
  return e;
}

/* ---- coverage ---- */

/* Adds (`on`) or removes the part of a live block that lies in one unit. A unit with an edge inside
 * the block records that the block crosses it. */
static void cover_unit(space *s, uint32_t unit, const space_block *b, bool on,
                       space_changed changed, void *context) {
  ASSERT(unit < s->count);
  space_unit *u = &s->units[unit];
  uint64_t end = b->addr + b->bytes, unit_end = u->addr + u->bytes;
  if (b->addr < u->addr) {
    u->head_end = on ? (end < unit_end ? end : unit_end) : u->addr;
    u->head_addr = b->addr;
  } else if (end > unit_end) {
    u->tail_start = on ? b->addr : unit_end;
    u->tail_addr = b->addr;
  }
  if (on ? u->live++ == 0 : u->live > 0 && --u->live == 0)
    if (changed != NULL) changed(context, unit);
}

static void cover(space *s, const space_block *b, bool on, space_changed changed, void *context) {
  uint32_t unit;
  for (uint64_t at = b->addr; at < b->addr + b->bytes;) {
    at = space_step(s, at, &unit);
    if (unit != SPACE_NO_UNIT) cover_unit(s, unit, b, on, changed, context);
  }
}

stow_status space_block_add(space *s, uint64_t addr, uint64_t bytes, space_changed changed,
                            void *context) {
  if (bytes == 0 || addr == 0) return STOW_OK;
  STOW_TRY(block_room(s));
  space_block_remove(s, addr, changed, context); /* its free was not reported */
  space_block b = {.addr = addr, .bytes = bytes, .arena = arena_begin(s, addr, bytes)};
  block_put(s, &b);
  s->block_count++;
  cover(s, &b, true, changed, context);
  return STOW_OK;
}

void space_count_blocks(space *s, uint32_t unit, space_changed changed, void *context) {
  const uint64_t addr = s->units[unit].addr, end = addr + s->units[unit].bytes;
  for (uint64_t i = 0; s->block_count > 0 && i <= s->block_mask; i++) {
    const space_block *b = &s->blocks[i];
    if (b->addr != 0 && b->addr < end && b->addr + b->bytes > addr)
      cover_unit(s, unit, b, true, changed, context);
  }
}

void space_block_remove(space *s, uint64_t addr, space_changed changed, void *context) {
  space_block b;
  if (!block_take(s, addr, &b)) return;
  if (b.arena > 0) s->arenas[b.arena - 1].live = false;
  cover(s, &b, false, changed, context);
}

/* ---- words ---- */

typedef struct naming {
  space *s;
  const space_launch *launch;
  size_t index; /* of the word */
  uint32_t *units;
  uint32_t count, max;
  bool keyed; /* the units named now do not go into the key */
} naming;

static void name_small(space *s, uint32_t unit, uint64_t bytes) {
  ASSERT(bytes < SPACE_SMALL_BYTES);
  if (s->small_count < SPACE_SMALL_MAX)
    s->small[s->small_count++] = (space_small){unit, (uint32_t)bytes};
  else
    s->small_lost = true;
}

static inline void mix_key(space *s, uint32_t unit) {
  s->key = (s->key ^ unit) * UINT64_C(0xff51afd7ed558ccd);
  s->key ^= s->key >> 32;
}

/* Names a unit; `bytes` is how much of it is touched. */
static inline void name(naming *n, uint32_t unit, uint64_t bytes) {
  space_unit *u = &n->s->units[unit];
  if (u->stamp == n->launch->stamp || n->count == n->max) return;
  if (bytes < SPACE_SMALL_BYTES) {
    name_small(n->s, unit, bytes);
    return;
  }
  u->stamp = n->launch->stamp;
  n->units[n->count++] = unit;
  if (!n->keyed) mix_key(n->s, unit);
}

/* Names each unit that a range overlaps, with the bytes of the overlap. */
static void name_range(naming *n, uint64_t from, uint64_t to) {
  uint32_t unit;
  for (uint64_t at = from, end; at < to; at = end) {
    end = space_step(n->s, at, &unit);
    if (unit != SPACE_NO_UNIT) name(n, unit, (end < to ? end : to) - at);
  }
}

/* Returns where the bytes end that a word of an arena names, if they end at `end` at the earliest.
 * A buffer ends at the latest where another one of the same launch begins. */
static uint64_t extend(naming *n, const space_arena *a, uint64_t word, uint64_t end) {
  ASSERT(end > word);
  const space_launch *l = n->launch;
  space *s = n->s;
  uint64_t limit = a->addr + a->bytes;
  if (n->index >= EXTENT_WORDS) return end;
  if (s->extents == NULL) s->extents = calloc(EXTENTS, sizeof *s->extents);
  if (s->extents == NULL) return end;
  /* If a kernel is launched in one size only once in a step, its words in other sizes show where
   * buffers begin. */
  space_extent *e = extent_of(s, l->function, n->index);
  peer_learn(e, word, limit);
  uint64_t others = e->wide.bytes;
  /* A kernel that is launched in the same size uses the same bytes of each parameter. */
  e = extent_of(s, l->shape, n->index);
  level_learn(&e->near, end - word);
  peer_learn(e, word, limit);
  uint64_t wide_bytes = e->wide.bytes > 0 ? e->wide.bytes : others;
  if (e->near.bytes <= end - word && wide_bytes <= end - word) return end;
  for (size_t i = 0; i < l->count; i++)
    if (l->words[i] > word && l->words[i] < limit) limit = l->words[i];
  if (limit <= end) return end;
  uint64_t most = limit - word;
  if (e->near.bytes > end - word) end = word + (e->near.bytes < most ? e->near.bytes : most);
  uint64_t wide = word + (wide_bytes < most ? wide_bytes : most);
  if (wide <= end) return end;
  bool large = is_large(a, wide - word);
  if (large && is_learning(a, l->stamp)) return end; /* words in it may be missing */
  s->beyond_large |= large;
  if (s->beyond_count < SPACE_BEYOND) {
    s->beyond[s->beyond_count].from = end;
    s->beyond[s->beyond_count++].to = wide;
  }
  return l->wide > (large ? SPACE_WIDE : SPACE_NARROW) ? wide : end;
}

/* Names a range of which only the unit of the word goes into the key. */
static void name_from_word(naming *n, uint64_t word, uint64_t from, uint64_t to) {
  mix_key(n->s, space_find(n->s, word));
  n->keyed = true;
  name_range(n, from, to);
  n->keyed = false;
}

/* Names what a copy touches. The pieces of one buffer have different keys. */
static void name_copied(naming *n, const space_block *b, const space_arena *a, uint64_t word) {
  const space_launch *l = n->launch;
  uint64_t from = word, end = b->addr + b->bytes, to = word + l->copied_bytes;
  bool arena = a != NULL && is_arena(a);
  n->s->arena_named |= arena;
  if (!arena && (l->copied_bytes == 0 || l->fills)) {
    from = b->addr;
    to = end;
  }
  for (uint32_t i = 0; arena && i < a->count && to == word; i++) /* up to the next buffer */
    if (a->words[i] > word) to = a->words[i];
  name_from_word(n, word, from, to == word || to > end ? end : to);
}

/* Names the units of a word inside a block that crosses an edge of its unit. */
static void name_block(naming *n, uint64_t block, uint64_t word) {
  space *s = n->s;
  const space_block *b = block_at(s, block);
  if (b == NULL) return; /* cannot happen: a block leaves the edges when it leaves the table */
  space_arena *a = b->arena > 0 ? &s->arenas[b->arena - 1] : NULL;
  if (n->launch->copied) {
    name_copied(n, b, a, word);
    return;
  }
  bool was = a != NULL && is_arena(a);
  bool noted = false;
  uint32_t at = a != NULL ? arena_see(a, word, n->launch->stamp, &noted) : 0;
  if (a == NULL || !is_arena(a)) {
    name_range(n, b->addr, b->addr + b->bytes);
    return;
  }
  s->arena_named = true;
  s->arena_new |= !was;
  s->arena_learning |= is_learning(a, n->launch->stamp);
  uint64_t next = at < a->count ? a->words[at] : b->addr + b->bytes;
  name_from_word(n, word, word,
                 noted ? extend(n, a, word, arena_end(a, at, n->launch->stamp)) : next);
}

uint32_t space_resolve(space *s, const space_launch *l, uint32_t *units, uint32_t max) {
  ASSERT(units != NULL || max == 0);
  ASSERT(l->count == 0 || l->words != NULL);
  s->small_count = s->beyond_count = 0;
  s->small_lost = s->arena_named = s->arena_learning = s->beyond_large = false;
  naming n = {.s = s, .launch = l, .units = units, .max = max};
  uint32_t found = 0;
  s->key = 0;
  for (size_t i = 0; i < l->count; i++) {
    uint64_t word = l->words[i];
    if (word < s->low || word >= s->high) continue;
    uint32_t unit = find_granule(s, word >> SPACE_GRANULE_BITS);
    if (unit == SPACE_NO_UNIT) continue;
    const space_unit *u = &s->units[unit];
    found++;
    n.index = i;
    if (word < u->head_end || word >= u->tail_start)
      name_block(&n, word < u->head_end ? u->head_addr : u->tail_addr, word);
    else {
      const space_block *b = block_at(s, word);
      name(&n, unit, b != NULL ? b->bytes : u->bytes); /* inside a block: the size is unknown */
    }
  }
  /* Words that name nothing do not count, an address of pinned memory for example. */
  mix_key(s, found);
  return n.count;
}

/* ---- writes ---- */

void space_write(space *s, const uint64_t *words, size_t count, uint64_t stamp) {
  ASSERT(count == 0 || words != NULL);
  for (size_t i = 0; i < count; i++) {
    uint32_t unit = space_find(s, words[i]);
    if (unit == SPACE_NO_UNIT) continue;
    space_unit *u = &s->units[unit];
    uint64_t block = words[i] < u->head_end      ? u->head_addr
                     : words[i] >= u->tail_start ? u->tail_addr
                                                 : words[i];
    space_block *b = block_at(s, block);
    *(b != NULL ? &b->wrote : &u->wrote) = stamp;
  }
}

uint64_t space_written(const space *s, uint32_t unit, uint64_t addr, bool *known) {
  ASSERT(unit < s->count);
  const space_block *b = block_at(s, addr);
  *known = b != NULL;
  uint64_t last = s->units[unit].wrote;
  return b != NULL && b->wrote > last ? b->wrote : last;
}
