/* Slab: blocks of one size in a span (slab.h). */
#include "memory/slab.h"

#include <stdlib.h>
#include <string.h>

/* Steps of one unit to 4 KiB, then four to an octave: at most a fifth of a block is lost. */
static const uint8_t class_units[SLAB_CLASSES] = {0,  1,  2,  3,  4,  5,  6,  7, 8,
                                                  10, 12, 14, 16, 20, 24, 28, 32};

uint32_t slab_class_units(uint32_t class) {
  return class_units[class];
}

uint32_t slab_class(uint32_t units) {
  if (units <= 8) return units;
  if (units <= 16) return 8 + (units - 8 + 1) / 2;
  return 12 + (units - 16 + 3) / 4;
}

static void room_add(slabs *s, uint32_t i) {
  slab *b = s->table[i];
  b->prev = 0;
  b->next = s->room[b->class];
  if (b->next) s->table[b->next]->prev = i;
  s->room[b->class] = i;
  b->listed = true;
}

static void room_remove(slabs *s, uint32_t i) {
  slab *b = s->table[i];
  if (b->next) s->table[b->next]->prev = b->prev;
  if (b->prev)
    s->table[b->prev]->next = b->next;
  else
    s->room[b->class] = b->next;
  b->listed = false;
}

stow_addr slab_take(slabs *s, const arena *a, uint32_t class, uint32_t mark) {
  uint32_t i = s->room[class];
  if (i == 0) return 0;
  slab *b = s->table[i];
  uint32_t word = ~b->busy[0] == 0;
  uint32_t block = word * 64 + (uint32_t)__builtin_ctzll(~b->busy[word]);
  b->busy[word] |= UINT64_C(1) << (block & 63);
  b->marks[block] = mark;
  if (b->used++ == 0 && s->empty[class] == i) s->empty[class] = 0;
  if (b->used == b->slots) room_remove(s, i);
  uint32_t units = class_units[class];
  s->live_bytes += (uint64_t)units << UNIT_SHIFT;
  s->live_count++;
  return a->base + ((uint64_t)(a->spans[b->span].at + block * units) << UNIT_SHIFT);
}

static stow_status table_grow(slabs *s) {
  uint32_t capacity = s->capacity ? s->capacity * 2 : 64;
  slab **table = realloc(s->table, capacity * sizeof(slab *));
  if (table) s->table = table;
  uint32_t *spares = realloc(s->free_list, capacity * sizeof *spares);
  if (spares) s->free_list = spares;
  if (!table || !spares) return stow_fail(STOW_ERR_HOST_MEMORY, "slab: no memory for its table");
  s->capacity = capacity;
  if (s->count == 0) s->table[s->count++] = NULL;
  return STOW_OK;
}

stow_status slab_adopt(slabs *s, arena *a, uint32_t span_index, uint32_t class) {
  if (s->spare == 0 && s->count == s->capacity) STOW_TRY(table_grow(s));
  uint32_t slots = SLAB_UNITS / class_units[class];
  slab *b = calloc(1, sizeof *b + slots * sizeof b->marks[0]);
  if (!b) return stow_fail(STOW_ERR_HOST_MEMORY, "slab: no memory for a slab of %u blocks", slots);
  b->span = span_index;
  b->class = (uint8_t) class;
  b->slots = (uint8_t)slots;
  /* Blocks past the last count as busy for ever. */
  for (uint32_t k = slots; k < 128; k++) b->busy[k / 64] |= UINT64_C(1) << (k & 63);
  uint32_t i = s->spare ? s->free_list[--s->spare] : s->count++;
  s->table[i] = b;
  a->spans[span_index].mark |= MARK_SLAB;
  a->spans[span_index].a = i;
  s->span_bytes += (uint64_t)SLAB_UNITS << UNIT_SHIFT;
  s->empty[class] = i;
  room_add(s, i);
  return STOW_OK;
}

static void retire(slabs *s, arena *a, uint32_t i) {
  slab *b = s->table[i];
  if (b->listed) room_remove(s, i);
  uint32_t span_index = b->span;
  a->spans[span_index].mark &= ~MARK_SLAB;
  s->span_bytes -= (uint64_t)SLAB_UNITS << UNIT_SHIFT;
  s->table[i] = NULL;
  s->free_list[s->spare++] = i;
  free(b);
  arena_give(a, span_index);
}

/* 65536 / units, rounded up: a product and a shift instead of a division, exact below 128 units. */
static const uint32_t class_inverse[SLAB_CLASSES] = {0,     65536, 32768, 21846, 16384, 13108,
                                                     10923, 9363,  8192,  6554,  5462,  4682,
                                                     4096,  3277,  2731,  2341,  2048};

uint32_t slab_block(const slabs *s, const arena *a, uint32_t index, stow_addr addr) {
  const slab *b = s->table[index];
  uint64_t offset = addr - span_addr(a, b->span);
  uint32_t units = (uint32_t)(offset >> UNIT_SHIFT), block = units * class_inverse[b->class] >> 16;
  if ((offset & ((1u << UNIT_SHIFT) - 1)) != 0 || block * class_units[b->class] != units ||
      block >= b->slots)
    return UINT32_MAX;
  return block;
}

bool slab_busy(const slabs *s, uint32_t index, uint32_t block) {
  return (s->table[index]->busy[block / 64] >> (block & 63)) & 1;
}

void slab_give(slabs *s, arena *a, uint32_t index, uint32_t block) {
  slab *b = s->table[index];
  b->busy[block / 64] &= ~(UINT64_C(1) << (block & 63));
  s->live_bytes -= (uint64_t)class_units[b->class] << UNIT_SHIFT;
  s->live_count--;
  b->used--;
  if (!b->listed) room_add(s, index);
  if (b->used > 0) return;
  uint32_t other = s->empty[b->class];
  s->empty[b->class] = index;
  if (other != 0 && other != index) retire(s, a, other);
}

void slabs_trim(slabs *s, arena *a) {
  for (uint32_t c = 1; c < SLAB_CLASSES; c++) {
    if (s->empty[c]) retire(s, a, s->empty[c]);
    s->empty[c] = 0;
  }
}

void slabs_close(slabs *s) {
  for (uint32_t i = 1; i < s->count; i++) free(s->table[i]);
  free(s->table);
  free(s->free_list);
  memset(s, 0, sizeof *s);
}

stow_status slabs_check(const slabs *s, const arena *a) {
  uint64_t bytes = 0, count = 0;
  for (uint32_t i = 1; i < s->count; i++) {
    const slab *b = s->table[i];
    if (!b) continue;
    uint32_t used = 0;
    for (uint32_t k = 0; k < b->slots; k++) used += (b->busy[k / 64] >> (k & 63)) & 1;
    const span *sp = &a->spans[b->span];
    if (used != b->used || (used < b->slots) != b->listed || sp->a != i ||
        !(sp->mark & MARK_SLAB) || span_units(a, b->span) != SLAB_UNITS)
      return stow_fail(STOW_ERR_STATE, "slab %u: %u of %u blocks counted, %u kept", i, used,
                       b->slots, b->used);
    if (used == 0 && s->empty[b->class] != i)
      return stow_fail(STOW_ERR_STATE, "slab %u: a second empty one of class %u", i, b->class);
    bytes += (uint64_t)used * class_units[b->class] << UNIT_SHIFT;
    count += used;
  }
  if (bytes != s->live_bytes || count != s->live_count)
    return stow_fail(STOW_ERR_STATE, "slabs: %llu live bytes counted, %llu kept",
                     (unsigned long long)bytes, (unsigned long long)s->live_bytes);
  return STOW_OK;
}

uint64_t slabs_book_bytes(const slabs *s) {
  uint64_t bytes = s->capacity * (sizeof(slab *) + sizeof(uint32_t));
  for (uint32_t i = 1; i < s->count; i++)
    if (s->table[i]) bytes += sizeof(slab) + s->table[i]->slots * sizeof(uint32_t);
  return bytes;
}
