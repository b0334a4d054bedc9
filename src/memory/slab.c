/* Slab: blocks of one size in a span (slab.h). */
#include "memory/slab.h"

#include <stddef.h>
#include <string.h>

static const uint8_t class_units[SLAB_CLASSES] = {0,  1,  2,  3,  4,  5,  6,  7, 8,
                                                  10, 12, 14, 16, 20, 24, 28, 32};

uint32_t slab_class_units(uint32_t class) {
  return class_units[class];
}

static uint64_t record_bytes(uint32_t class) {
  uint64_t marks = SLAB_UNITS / class_units[class] * sizeof(uint32_t);
  return (offsetof(slab, marks) + marks + 63) / 64 * 64;
}

stow_status slabs_open(slabs *s, const arena *a) {
  memset(s, 0, sizeof *s);
  s->at_bytes = ((a->bytes >> SLAB_SHIFT) + 1) * sizeof(slab *);
  s->store_bytes = (a->bytes >> SLAB_SHIFT) * record_bytes(1);
  s->at = lazy_map(s->at_bytes);
  s->store = lazy_map(s->store_bytes);
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
  return s->at[a->spans[span_index].at / SLAB_UNITS];
}

void slabs_close(slabs *s) {
  lazy_unmap(s->at, s->at_bytes);
  lazy_unmap(s->store, s->store_bytes);
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

static slab *record_new(slabs *s, uint32_t class) {
  uint64_t bytes = record_bytes(class);
  slab *b = s->spare[class];
  if (b) {
    s->spare[class] = b->next;
    memset(b, 0, bytes);
    return b;
  }
  if (s->store_bytes - s->store_used < bytes) return NULL;
  b = (slab *)(void *)(s->store + s->store_used);
  s->store_used += bytes;
  return b;
}

stow_status slab_adopt(slabs *s, arena *a, uint32_t span_index, uint32_t class) {
  uint32_t slots = SLAB_UNITS / class_units[class];
  slab *b = record_new(s, class);
  if (!b) return stow_fail(STOW_ERR_HOST_MEMORY, "slab: no memory for a slab of %u blocks", slots);
  b->base = span_addr(a, span_index);
  b->span = span_index;
  b->bytes = (uint32_t)class_units[class] << UNIT_SHIFT;
  b->inverse = (65536 + class_units[class] - 1u) / class_units[class];
  b->class = (uint8_t) class;
  b->slots = (uint8_t)slots;
  for (uint32_t k = slots; k < 128; k++) b->busy[k / 64] |= UINT64_C(1) << (k & 63);
  a->spans[span_index].mark |= MARK_SLAB;
  s->at[a->spans[span_index].at / SLAB_UNITS] = b;
  slab_list(s, b);
  return STOW_OK;
}

static void retire(slabs *s, arena *a, slab *b) {
  uint32_t span_index = b->span;
  slab_filled(s, b);
  s->at[a->spans[span_index].at / SLAB_UNITS] = NULL;
  a->spans[span_index].mark &= ~MARK_SLAB;
  b->next = s->spare[b->class];
  s->spare[b->class] = b;
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
  if (!b || b->span != i || b->base != span_addr(a, i) || span_units(a, i) != SLAB_UNITS)
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
  return (arena_used_units(a) / SLAB_UNITS) * sizeof(slab *) + s->store_used;
}
