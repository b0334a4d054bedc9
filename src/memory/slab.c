/* Slab: blocks of one size in a span (slab.h). */
#include "memory/slab.h"

#include <string.h>

#include "base/assert.h"

#define KIND(units)                                                                                \
  { (units) << UNIT_SHIFT, (65536 + (units)-1) / (units), SLAB_UNITS / (units) }
const slab_kind slab_kinds[SLAB_CLASSES] = {
    {0},      KIND(1),  KIND(2),  KIND(3),  KIND(4),  KIND(5),  KIND(6),  KIND(7), KIND(8),
    KIND(10), KIND(12), KIND(14), KIND(16), KIND(20), KIND(24), KIND(28), KIND(32)};

_Static_assert(sizeof(slab) == 32, "two slabs to a cache line");

uint32_t slab_class_units(uint32_t class) {
  ASSERT(class < SLAB_CLASSES);
  return slab_kinds[class].bytes >> UNIT_SHIFT;
}

stow_status slabs_open(slabs *s, const arena *a) {
  ASSERT(a->base != 0 && a->bytes > 0);
  memset(s, 0, sizeof *s);
  s->at_bytes = ((a->bytes >> SLAB_SHIFT) + 1) * sizeof(slab);
  s->store_count = (a->bytes >> SLAB_SHIFT) * SLAB_UNITS;
  s->base = a->base;
  s->at = lazy_map(s->at_bytes);
  s->store = lazy_map(s->store_count * sizeof *s->store);
  if (s->at && s->store) return STOW_OK;
  slabs_close(s);
  return stow_fail(STOW_ERR_HOST_MEMORY, "slab: no addresses left for the table");
}

/* Returns the next live span after i that is a slab (the first one for i 0); 0 at the end. */
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

/* ---- lists of slabs with a free block ---- */

static slab *numbered(const slabs *s, uint32_t number) {
  return number ? &s->at[number - 1] : NULL;
}

void slab_list(slabs *s, slab *b) {
  ASSERT(!b->listed);
  ASSERT(b->class > 0 && b->class < SLAB_CLASSES);
  slab *next = s->room[b->class];
  b->prev = 0;
  b->next = next ? slab_number(s, next) : 0;
  if (next) next->prev = slab_number(s, b);
  s->room[b->class] = b;
  b->listed = true;
}

void slab_filled(slabs *s, slab *b) {
  ASSERT(b->listed);
  slab *next = numbered(s, b->next);
  if (next) next->prev = b->prev;
  if (b->prev)
    numbered(s, b->prev)->next = b->next;
  else
    s->room[b->class] = next;
  b->listed = false;
}

/* ---- creating and removing slabs ---- */

/* Allocates the marks of a new slab. Returns false if there is no space for them. */
static bool marks_new(slabs *s, uint32_t *marks, uint32_t class) {
  ASSERT(class > 0 && class < SLAB_CLASSES);
  uint32_t count = slab_kinds[class].slots;
  if (s->spare[class]) {
    *marks = s->spare[class] - 1;
    s->spare[class] = s->store[*marks];
    memset(&s->store[*marks], 0, count * sizeof *s->store);
    return true;
  }
  if (s->store_count - s->store_used < count) return false;
  *marks = (uint32_t)s->store_used;
  s->store_used += count;
  return true;
}

stow_status slab_adopt(slabs *s, arena *a, uint32_t span_index, uint32_t class) {
  ASSERT(class > 0 && class < SLAB_CLASSES);
  ASSERT(span_state_of(&a->spans[span_index]) == SPAN_LIVE);
  ASSERT(span_units(a, span_index) == SLAB_UNITS);
  uint32_t slots = slab_kinds[class].slots, marks;
  slab *b = slab_of(s, a, span_index);
  if (!marks_new(s, &marks, class))
    return stow_fail(STOW_ERR_HOST_MEMORY, "slab: no memory for a slab of %u blocks", slots);
  *b = (slab){.marks = marks, .class = (uint8_t) class};
  for (uint32_t k = slots; k < 128; k++) b->busy[k / 64] |= UINT64_C(1) << (k & 63);
  a->spans[span_index].mark |= MARK_SLAB;
  slab_list(s, b);
  return STOW_OK;
}

static void retire(slabs *s, arena *a, slab *b) {
  ASSERT(b->used == 0);
  uint32_t span_index = slab_span(s, a, b);
  slab_filled(s, b);
  a->spans[span_index].mark &= ~MARK_SLAB;
  s->store[b->marks] = s->spare[b->class];
  s->spare[b->class] = b->marks + 1;
  *b = (slab){0};
  arena_free(a, span_index);
}

void slab_drained(slabs *s, arena *a, slab *b) {
  ASSERT(b->used == 0);
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
  if (b->class == 0 || slab_span(s, a, b) != i || slab_base(s, b) != span_addr(a, i) ||
      span_units(a, i) != SLAB_UNITS)
    return stow_fail(STOW_ERR_STATE, "slab of span %u: not where its span is", i);
  uint32_t used = 0, slots = slab_kinds[b->class].slots;
  for (uint32_t k = 0; k < slots; k++) used += slab_busy(b, k);
  if (used != b->used || (used < slots) != b->listed)
    return stow_fail(STOW_ERR_STATE, "slab of span %u: %u of %u blocks counted, %u kept", i, used,
                     slots, b->used);
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
    for (const slab *b = s->room[c], *next; b; b = next, listed--) {
      next = numbered(s, b->next);
      if (b->class != c || !b->listed || (next && next->prev != slab_number(s, b)) || listed == 0)
        return stow_fail(STOW_ERR_STATE, "slabs of class %u: a broken list", c);
    }
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
    bytes += (uint64_t)b->used * slab_kinds[b->class].bytes;
    *span_total += span_bytes(a, i);
  }
  return bytes;
}

uint64_t slabs_metadata_bytes(const slabs *s, const arena *a) {
  return (arena_used_units(a) / SLAB_UNITS) * sizeof(slab) + s->store_used * sizeof *s->store;
}
