/* Slab: blocks of one size in a span (slab.h). */
#include "memory/slab.h"

#include <string.h>

static const uint8_t class_units[SLAB_CLASSES] = {0,  1,  2,  3,  4,  5,  6,  7, 8,
                                                  10, 12, 14, 16, 20, 24, 28, 32};

uint32_t slab_class_units(uint32_t class) {
  return class_units[class];
}

_Static_assert(sizeof(slab) == 64, "a slab is one cache line");

stow_status slabs_open(slabs *s, const arena *a) {
  memset(s, 0, sizeof *s);
  s->at_bytes = ((a->bytes >> SLAB_SHIFT) + 1) * sizeof(slab);
  s->store_count = (a->bytes >> SLAB_SHIFT) * SLAB_UNITS;
  s->at = lazy_map(s->at_bytes);
  s->store = lazy_map(s->store_count * sizeof *s->store);
  if (s->at && s->store) return STOW_OK;
  slabs_close(s);
  return stow_fail(STOW_ERR_HOST_MEMORY, "slab: no room for their table");
}

/* The live span after i that is a slab, from the arena's first with i 0; 0 at the end. */
static uint32_t next_slab(const arena *a, uint32_t i) {
  i = i ? a->spans[i].next : a->first;
  while (i != 1 && !(span_state_of(&a->spans[i]) == SPAN_LIVE && (a->spans[i].mark & MARK_SLAB)))
    i = a->spans[i].next;
  return i == 1 ? 0 : i;
}

static slab *slab_of(const slabs *s, const arena *a, uint32_t span_index) {
  return &s->at[a->spans[span_index].at / SLAB_UNITS];
}

void slabs_close(slabs *s) {
  lazy_unmap(s->at, s->at_bytes);
  lazy_unmap(s->store, s->store_count * sizeof *s->store);
  memset(s, 0, sizeof *s);
}

/* ---- lists of those with room ---- */

void slab_list(slabs *s, slab *b) {
  b->prev = NULL;
  b->next = s->room[b->class];
  if (b->next) b->next->prev = b;
  s->room[b->class] = b;
  b->listed = true;
}

void slab_filled(slabs *s, slab *b) {
  if (b->next) b->next->prev = b->prev;
  if (b->prev)
    b->prev->next = b->next;
  else
    s->room[b->class] = b->next;
  b->listed = false;
}

/* ---- coming and going ---- */

static uint32_t *marks_new(slabs *s, uint32_t class) {
  uint32_t count = SLAB_UNITS / class_units[class];
  if (s->spare[class]) {
    uint32_t *marks = &s->store[s->spare[class] - 1];
    s->spare[class] = marks[0];
    memset(marks, 0, count * sizeof *marks);
    return marks;
  }
  if (s->store_count - s->store_used < count) return NULL;
  s->store_used += count;
  return &s->store[s->store_used - count];
}

stow_status slab_adopt(slabs *s, arena *a, uint32_t span_index, uint32_t class) {
  uint32_t slots = SLAB_UNITS / class_units[class];
  slab *b = slab_of(s, a, span_index);
  uint32_t *marks = marks_new(s, class);
  if (!marks)
    return stow_fail(STOW_ERR_HOST_MEMORY, "slab: no memory for a slab of %u blocks", slots);
  *b = (slab){.base = span_addr(a, span_index), .marks = marks};
  b->span = span_index;
  b->bytes = (uint32_t)class_units[class] << UNIT_SHIFT;
  b->inverse = (65536 + class_units[class] - 1u) / class_units[class];
  b->class = (uint8_t) class;
  b->slots = (uint8_t)slots;
  for (uint32_t k = slots; k < 128; k++) b->busy[k / 64] |= UINT64_C(1) << (k & 63);
  a->spans[span_index].mark |= MARK_SLAB;
  slab_list(s, b);
  return STOW_OK;
}

static void retire(slabs *s, arena *a, slab *b) {
  uint32_t span_index = b->span;
  slab_filled(s, b);
  a->spans[span_index].mark &= ~MARK_SLAB;
  b->marks[0] = s->spare[b->class];
  s->spare[b->class] = (uint32_t)(b->marks - s->store) + 1;
  *b = (slab){0};
  arena_give(a, span_index);
}

void slab_drained(slabs *s, arena *a, slab *b) {
  slab *other = s->empty[b->class];
  s->empty[b->class] = b;
  b->odd = false;
  if (other && other->used == 0) retire(s, a, other);
}

void slabs_trim(slabs *s, arena *a) {
  for (uint32_t c = 1; c < SLAB_CLASSES; c++) {
    if (s->empty[c] && s->empty[c]->used == 0) retire(s, a, s->empty[c]);
    s->empty[c] = NULL;
  }
}

/* ---- validity ---- */

static stow_status check_one(const slabs *s, const arena *a, uint32_t i) {
  const slab *b = slab_of(s, a, i);
  if (b->slots == 0 || b->span != i || b->base != span_addr(a, i) || span_units(a, i) != SLAB_UNITS)
    return stow_fail(STOW_ERR_STATE, "slab of span %u: not where its span is", i);
  uint32_t used = 0;
  for (uint32_t k = 0; k < b->slots; k++) used += slab_busy(b, k);
  if (used != b->used || (used < b->slots) != b->listed)
    return stow_fail(STOW_ERR_STATE, "slab of span %u: %u of %u blocks counted, %u kept", i, used,
                     b->slots, b->used);
  if (used == 0 && s->empty[b->class] != b)
    return stow_fail(STOW_ERR_STATE, "slab of span %u: a second empty one of class %u", i,
                     b->class);
  return STOW_OK;
}

stow_status slabs_check(const slabs *s, const arena *a) {
  uint64_t listed = 0;
  for (uint32_t i = next_slab(a, 0); i != 0; i = next_slab(a, i)) {
    STOW_TRY(check_one(s, a, i));
    listed += slab_of(s, a, i)->listed;
  }
  for (uint32_t c = 1; c < SLAB_CLASSES; c++)
    for (const slab *b = s->room[c]; b; b = b->next, listed--)
      if (b->class != c || !b->listed || (b->next && b->next->prev != b) || listed == 0)
        return stow_fail(STOW_ERR_STATE, "slabs of class %u: a broken list", c);
  if (listed != 0)
    return stow_fail(STOW_ERR_STATE, "slabs: %llu with room are in no list",
                     (unsigned long long)listed);
  return STOW_OK;
}

uint64_t slabs_live_bytes(const slabs *s, const arena *a, uint64_t *span_total) {
  uint64_t bytes = 0;
  *span_total = 0;
  for (uint32_t i = next_slab(a, 0); i != 0; i = next_slab(a, i)) {
    const slab *b = slab_of(s, a, i);
    bytes += (uint64_t)b->used * b->bytes;
    *span_total += span_bytes(a, i);
  }
  return bytes;
}

uint64_t slabs_book_bytes(const slabs *s, const arena *a) {
  return (arena_used_units(a) / SLAB_UNITS) * sizeof(slab) + s->store_used * sizeof *s->store;
}
