/* Space: units by address, blocks that cross their edges, and words resolved to units. */
#include "residency/space.h"

#include <stdlib.h>

enum { APART_WORDS = 8 }; /* different words seen before a block is split */
#define APART_BYTES (UINT64_C(64) << 20)

void space_free(space *s) {
  free(s->units);
  free(s->table);
  free(s->blocks);
  free(s->small);
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

static void put_granule(space *s, uint64_t granule, uint32_t unit) {
  uint64_t at = place_of(s, granule);
  while (s->table[at].granule != 0) at = (at + 1) & s->table_mask;
  s->table[at] = (space_slot){granule + 1, unit};
}

static void remove_granule(space *s, uint64_t granule) {
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

/* Returns the bytes of the block that begins at the address; 0 if there is none. */
static inline uint64_t block_bytes(const space *s, uint64_t addr) {
  if (s->blocks == NULL) return 0;
  for (uint64_t at = block_place(s, addr);; at = (at + 1) & s->block_mask) {
    if (s->blocks[at].addr == addr) return s->blocks[at].bytes;
    if (s->blocks[at].addr == 0) return 0;
  }
}

static void block_put(space *s, uint64_t addr, uint64_t bytes) {
  uint64_t at = block_place(s, addr);
  while (s->blocks[at].addr != 0) at = (at + 1) & s->block_mask;
  s->blocks[at] = (space_block){addr, bytes};
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
    if (old[i].addr != 0) block_put(s, old[i].addr, old[i].bytes);
  free(old);
  return STOW_OK;
}

static bool block_take(space *s, uint64_t addr, uint64_t *bytes) {
  if (s->blocks == NULL || addr == 0) return false;
  uint64_t at = block_place(s, addr);
  while (s->blocks[at].addr != addr) {
    if (s->blocks[at].addr == 0) return false;
    at = (at + 1) & s->block_mask;
  }
  *bytes = s->blocks[at].bytes;
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

/* Adds (`on`) or removes the part of a live block that lies in one unit. A unit with an edge inside
 * the block records that the block crosses it. */
static void cover_unit(space *s, uint32_t unit, uint64_t addr, uint64_t bytes, bool on,
                       space_changed changed, void *context) {
  space_unit *u = &s->units[unit];
  uint64_t end = addr + bytes, unit_end = u->addr + u->bytes;
  if (addr < u->addr) u->head_end = on ? (end < unit_end ? end : unit_end) : u->addr;
  if (end > unit_end && addr >= u->addr) {
    u->tail_start = on ? addr : unit_end;
    if (on && (u->tail_addr != addr || u->tail_bytes != bytes)) u->tail_words = 0;
    u->tail_addr = addr;
    u->tail_bytes = bytes;
  }
  if (on && (addr < u->addr || end > unit_end) && (u->word_low < addr || u->word_high >= end))
    u->word_low = u->word_high = 0; /* forget words of another block */
  if (on ? u->live++ == 0 : u->live > 0 && --u->live == 0)
    if (changed != NULL) changed(context, unit);
}

static void cover(space *s, uint64_t addr, uint64_t bytes, bool on, space_changed changed,
                  void *context) {
  for (uint64_t at = addr; at < addr + bytes;) {
    uint32_t unit = space_find(s, at);
    if (unit == SPACE_NO_UNIT) {
      at = ((at >> SPACE_GRANULE_BITS) + 1) << SPACE_GRANULE_BITS;
      continue;
    }
    cover_unit(s, unit, addr, bytes, on, changed, context);
    at = s->units[unit].addr + s->units[unit].bytes;
  }
}

stow_status space_block_add(space *s, uint64_t addr, uint64_t bytes, space_changed changed,
                            void *context) {
  if (bytes == 0 || addr == 0) return STOW_OK;
  STOW_TRY(block_room(s));
  space_block_remove(s, addr, changed, context); /* its free was not reported */
  block_put(s, addr, bytes);
  s->block_count++;
  cover(s, addr, bytes, true, changed, context);
  return STOW_OK;
}

void space_count_blocks(space *s, uint32_t unit, space_changed changed, void *context) {
  const uint64_t addr = s->units[unit].addr, end = addr + s->units[unit].bytes;
  for (uint64_t i = 0; s->block_count > 0 && i <= s->block_mask; i++) {
    const space_block *b = &s->blocks[i];
    if (b->addr != 0 && b->addr < end && b->addr + b->bytes > addr)
      cover_unit(s, unit, b->addr, b->bytes, true, changed, context);
  }
}

void space_block_remove(space *s, uint64_t addr, space_changed changed, void *context) {
  uint64_t bytes;
  if (block_take(s, addr, &bytes)) cover(s, addr, bytes, false, changed, context);
}

/* ---- words ---- */

typedef struct naming {
  space *s;
  uint64_t stamp;
  uint32_t *units;
  uint32_t count, max;
} naming;

static void name_small(space *s, uint32_t unit, uint64_t bytes) {
  if (s->small_count < SPACE_SMALL_MAX)
    s->small[s->small_count++] = (space_small){unit, (uint32_t)bytes};
}

/* Names a unit; `bytes` is how much of it is touched. */
static inline void name(naming *n, uint32_t unit, uint64_t bytes) {
  space_unit *u = &n->s->units[unit];
  if (u->stamp == n->stamp || n->count == n->max) return;
  if (bytes < SPACE_SMALL_BYTES) {
    name_small(n->s, unit, bytes);
    return;
  }
  u->stamp = n->stamp;
  n->units[n->count++] = unit;
}

/* Names the units after `unit` that the block at their edge reaches. `apart`: only up to the next
 * word seen. */
static void name_behind(naming *n, uint32_t unit, bool apart) {
  space *s = n->s;
  for (;;) {
    const space_unit *u = &s->units[unit];
    unit = space_find(s, u->addr + u->bytes);
    if (unit == SPACE_NO_UNIT) return;
    u = &s->units[unit];
    if (u->head_end == u->addr) return;
    if (apart && u->word_low != 0 && u->word_low <= u->addr) return;
    name(n, unit, u->head_end - u->addr);
    if (u->head_end < u->addr + u->bytes || (apart && u->word_low != 0)) return;
  }
}

/* Returns the unit in which the block begins. */
static uint32_t first_of(const space *s, uint32_t unit) {
  for (;;) {
    const space_unit *u = &s->units[unit];
    if (u->head_end == u->addr) return unit;
    uint32_t before = space_find(s, u->addr - 1);
    if (before == SPACE_NO_UNIT) return unit;
    const space_unit *b = &s->units[before];
    if (b->tail_start < b->addr + b->bytes) return before; /* the block begins here */
    if (b->head_end < b->addr + b->bytes) return unit;
    unit = before;
  }
}

/* Returns whether the word is new to the unit. All words between the lowest and the highest count
 * as one. */
static bool see_word(space_unit *u, uint64_t word) {
  if (u->word_low != 0 && word >= u->word_low && word <= u->word_high) return false;
  if (u->word_low == 0 || word < u->word_low) u->word_low = word;
  if (word > u->word_high) u->word_high = word;
  return true;
}

/* Names the units of a word that lies in a block across an edge of its unit. */
static void name_block(naming *n, uint32_t unit, uint64_t word) {
  space *s = n->s;
  space_unit *u = &s->units[unit];
  uint32_t first = word < u->head_end ? first_of(s, unit) : unit;
  space_unit *begin = &s->units[first];
  if (begin->tail_bytes > APART_BYTES && see_word(u, word)) begin->tail_words++;
  if (begin->tail_bytes <= APART_BYTES || begin->tail_words <= APART_WORDS) {
    name(n, first, begin->addr + begin->bytes - begin->tail_start);
    name_behind(n, first, false);
    return;
  }
  name(n, unit, u->bytes);
  bool ends_here = word < u->head_end && u->head_end < u->addr + u->bytes;
  if (word >= u->word_high && !ends_here) name_behind(n, unit, true);
}

uint32_t space_resolve(space *s, const uint64_t *words, size_t count, uint64_t stamp,
                       uint32_t *units, uint32_t max) {
  s->small_count = 0;
  naming n = {.s = s, .stamp = stamp, .units = units, .max = max};
  for (size_t i = 0; i < count; i++) {
    uint64_t word = words[i];
    if (word < s->low || word >= s->high) continue;
    uint32_t unit = find_granule(s, word >> SPACE_GRANULE_BITS);
    if (unit == SPACE_NO_UNIT) continue;
    const space_unit *u = &s->units[unit];
    if (word < u->head_end || word >= u->tail_start)
      name_block(&n, unit, word);
    else {
      uint64_t bytes = block_bytes(s, word);
      name(&n, unit, bytes != 0 ? bytes : u->bytes); /* inside a block: the size is unknown */
    }
  }
  return n.count;
}
