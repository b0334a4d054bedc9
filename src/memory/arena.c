/* Arena: spans, bins, taking and freeing (arena.h). */
#include "memory/arena.h"

#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"

/* How many spans of a bin are checked for the best fit: enough for a bin of equal lengths, few
 * enough to keep a request O(1). */
#define SCAN_MAX 24

/* ---- tables that grow when touched ---- */

#define HUGE_PAGE (UINT64_C(2) << 20)

/* With ten million blocks the tables are hundreds of MiB, accessed at random: with pages of 4 KiB
 * each access would miss the TLB and the cache. A short table stays in small pages, so that a small
 * heap has a small footprint. */
void *lazy_map(uint64_t bytes) {
  ASSERT(bytes > 0);
  void *p =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return NULL;
  uint64_t at = (uint64_t)(uintptr_t)p, end = at + bytes;
  uint64_t from = (at + HUGE_PAGE + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  if (from < end) (void)madvise((void *)(uintptr_t)from, end - from, MADV_HUGEPAGE);
  return p;
}

void lazy_unmap(void *table, uint64_t bytes) {
  if (table) munmap(table, bytes);
}

static uint64_t cells_bytes(const arena *a) {
  return ((uint64_t)(a->units >> a->cell_shift) + 2) * sizeof *a->cells;
}
static uint64_t slots_bytes(const arena *a) {
  return ((uint64_t)(a->units >> a->slot_shift) + 2) * sizeof *a->slots;
}

/* ---- spans ---- */

static uint32_t span_new(arena *a) {
  uint32_t i = a->spare;
  if (i != 0) {
    a->spare = a->spans[i].next;
    return i;
  }
  if (a->span_count == a->span_max) return 0;
  return a->span_count++;
}

static void span_drop(arena *a, uint32_t i) {
  ASSERT(i > 1 && i < a->span_count);
  a->spans[i].next = a->spare;
  a->spare = i;
}

/* ---- bins ---- */

/* bin_add and bin_remove with the bin known. The links of span 0, the null span, are written like
 * all others and never read: a branch on whether there is a neighbour is unpredictable and costs
 * more than the write. */
static inline void bin_push(arena *a, uint32_t i, uint32_t bin) {
  ASSERT(i > 1 && bin < BIN_COUNT);
  a->changes++;
  span *s = &a->spans[i];
  s->a = 0;
  s->b = a->bins[bin];
  a->spans[s->b].a = i;
  a->bins[bin] = i;
  a->sub[bin / BIN_SUB] |= 1u << (bin % BIN_SUB);
  a->top |= 1u << (bin / BIN_SUB);
}

static inline void bin_pull(arena *a, uint32_t i, uint32_t bin) {
  ASSERT(i > 1 && bin < BIN_COUNT);
  a->changes++;
  const span *s = &a->spans[i];
  a->spans[s->b].a = s->a;
  if (s->a) {
    a->spans[s->a].b = s->b;
    return;
  }
  a->bins[bin] = s->b;
  if (s->b == 0) {
    a->sub[bin / BIN_SUB] &= ~(1u << (bin % BIN_SUB));
    if (a->sub[bin / BIN_SUB] == 0) a->top &= ~(1u << (bin / BIN_SUB));
  }
}

static void bin_add(arena *a, uint32_t i) {
  bin_push(a, i, bin_of(span_units(a, i)));
}

static void bin_remove(arena *a, uint32_t i) {
  bin_pull(a, i, bin_of(span_units(a, i)));
}

void list_add(arena *a, uint32_t *head, uint32_t i) {
  ASSERT(i > 1 && i < a->span_count);
  span *s = &a->spans[i];
  s->a = 0;
  s->b = *head;
  if (s->b) a->spans[s->b].a = i;
  *head = i;
}

static void list_remove(arena *a, uint32_t *head, uint32_t i) {
  ASSERT(i > 1 && i < a->span_count);
  const span *s = &a->spans[i];
  if (s->b) a->spans[s->b].a = s->a;
  if (s->a)
    a->spans[s->a].b = s->b;
  else
    *head = s->b;
}

static void enlist(arena *a, uint32_t i) {
  switch (span_state_of(&a->spans[i])) {
  case SPAN_FREE: bin_add(a, i); break;
  case SPAN_BARE: list_add(a, &a->bare, i); break;
  case SPAN_STALE: list_add(a, &a->stale, i); break;
  default: break;
  }
}

static void delist(arena *a, uint32_t i) {
  switch (span_state_of(&a->spans[i])) {
  case SPAN_FREE: bin_remove(a, i); break;
  case SPAN_BARE: list_remove(a, &a->bare, i); break;
  case SPAN_STALE: list_remove(a, &a->stale, i); break;
  default: break;
  }
}

/* Splits span i at unit `at`, strictly inside it; both halves are on no list. Returns the upper
 * half, or 0 without memory. */
static uint32_t split(arena *a, uint32_t i, uint32_t at) {
  ASSERT(at > a->spans[i].at && at < a->spans[a->spans[i].next].at);
  uint32_t upper = span_new(a);
  if (upper == 0) return 0;
  span *s = &a->spans[i], *u = &a->spans[upper];
  *u = (span){.at = at, .prev = i, .next = s->next, .mark = s->mark};
  a->spans[s->next].prev = upper;
  s->next = upper;
  return upper;
}

uint32_t span_cut(arena *a, uint32_t i, uint32_t at, uint32_t units, span_state state) {
  ASSERT(units > 0);
  ASSERT(at >= a->spans[i].at);
  ASSERT(at + units <= a->spans[a->spans[i].next].at);
  uint32_t begin = a->spans[i].at, end = begin + span_units(a, i);
  delist(a, i);
  uint32_t middle = i;
  if (at > begin) {
    middle = split(a, i, at);
    enlist(a, i);
    if (middle == 0) return 0;
  }
  if (at + units < end) {
    uint32_t rest = split(a, middle, at + units);
    if (rest == 0) {
      enlist(a, middle);
      return 0;
    }
    enlist(a, rest);
  }
  a->spans[middle].mark = (uint32_t)state;
  return middle;
}

/* Checks that a span and its neighbours agree on their boundaries, and that no two neighbours
 * should have been merged. */
static inline void valid_span(const arena *a, uint32_t i) {
#ifdef STOWAGE_CHECKS
  const span *s = &a->spans[i], *n = &a->spans[s->next];
  ASSERT_VALUES(i < a->span_count && n->prev == i && n->at > s->at, "span: links", i, s->next);
  ASSERT_VALUES(s->prev == 0 ? s->at == 0 && a->first == i : a->spans[s->prev].next == i,
                "span: links", i, s->prev);
  uint32_t state = span_state_of(s);
  if (state == SPAN_FREE || state == SPAN_BARE) {
    ASSERT_VALUES(s->next == 1 || span_state_of(n) != state, "span: not joined", i, s->next);
    ASSERT_VALUES(s->prev == 0 || span_state_of(&a->spans[s->prev]) != state, "span: not joined", i,
                  s->prev);
  }
  ASSERT_VALUES(state != SPAN_LIVE || a->cells[s->at >> a->cell_shift] == i, "span: cell", i,
                s->at);
#else
  (void)a, (void)i;
#endif
}

uint32_t span_settle(arena *a, uint32_t i) {
  ASSERT(span_state_of(&a->spans[i]) == SPAN_FREE || span_state_of(&a->spans[i]) == SPAN_BARE);
  span *s = &a->spans[i];
  uint32_t state = span_state_of(s), n = s->next, p = s->prev;
  if (span_state_of(&a->spans[n]) == state) {
    delist(a, n);
    s->next = a->spans[n].next;
    a->spans[s->next].prev = i;
    span_drop(a, n);
  }
  if (p != 0 && span_state_of(&a->spans[p]) == state) {
    delist(a, p);
    a->spans[p].next = s->next;
    a->spans[s->next].prev = p;
    span_drop(a, i);
    i = p;
  }
  a->spans[i].mark = state;
  enlist(a, i);
  valid_span(a, i);
  return i;
}

uint32_t span_carve(arena *a, uint32_t i, uint32_t at, uint32_t units) {
  ASSERT(span_state_of(&a->spans[i]) == SPAN_FREE);
  uint32_t taken = span_cut(a, i, at, units, SPAN_LIVE);
  if (taken == 0) return 0;
  a->spans[taken].a = 0;
  a->spans[taken].b = 0;
  a->cells[at >> a->cell_shift] = taken;
  a->live_bytes += (uint64_t)units << UNIT_SHIFT;
  a->live_count++;
  valid_span(a, taken);
  return taken;
}

/* ---- taking and giving ---- */

/* Returns where `units` aligned would begin in span i; UINT32_MAX if it does not fit, or if the
 * pages there are too large for it. */
static inline uint32_t fit_at(const arena *a, uint32_t i, uint32_t units, uint32_t align) {
  ASSERT(units > 0);
  ASSERT(align != 0 && (align & (align - 1)) == 0);
  uint32_t at = (a->spans[i].at + align - 1) & ~(align - 1);
  if (a->spans[a->spans[i].next].at < at + units) return UINT32_MAX;
  if (a->coarse && !pages_fit(a, at, units)) return UINT32_MAX;
  return at;
}

static uint32_t bin_next(const arena *a, uint32_t bin) {
  uint32_t first = bin / BIN_SUB;
  uint32_t subs = a->sub[first] & (~0u << (bin % BIN_SUB));
  if (subs == 0) {
    uint32_t tops = first + 1 < 32 ? a->top & (~0u << (first + 1)) : 0;
    if (tops == 0) return BIN_COUNT;
    first = (uint32_t)__builtin_ctz(tops);
    subs = a->sub[first];
  }
  return first * BIN_SUB + (uint32_t)__builtin_ctz(subs);
}

/* Does span_carve at the start of free span i, which is in `bin`: the most common case. */
static uint32_t carve_front(arena *a, uint32_t i, uint32_t bin, uint32_t units) {
  ASSERT(span_state_of(&a->spans[i]) == SPAN_FREE);
  ASSERT(span_units(a, i) >= units);
  uint32_t rest = span_units(a, i) - units, taken = i;
  if (rest > 0 && (taken = span_new(a)) == 0) return 0;
  span *s = &a->spans[i], *t = &a->spans[taken];
  uint32_t at = s->at;
  bin_pull(a, i, bin);
  if (rest > 0) {
    *t = (span){.at = at, .prev = s->prev, .next = i};
    if (s->prev)
      a->spans[s->prev].next = taken;
    else
      a->first = taken;
    s->prev = taken;
    s->at = at + units;
    bin_push(a, i, bin_of(rest));
  }
  t->a = t->b = 0;
  t->mark = SPAN_LIVE;
  a->cells[at >> a->cell_shift] = taken;
  a->live_bytes += (uint64_t)units << UNIT_SHIFT;
  a->live_count++;
  valid_span(a, taken);
  return taken;
}

uint32_t arena_alloc(arena *a, uint32_t units, uint32_t align) {
  ASSERT(units > 0);
  ASSERT(align != 0 && (align & (align - 1)) == 0);
  for (uint32_t bin = bin_next(a, bin_of(units)); bin < BIN_COUNT; bin = bin_next(a, bin + 1)) {
    uint32_t best = 0, best_at = 0, best_units = UINT32_MAX;
    int looked = 0;
    for (uint32_t i = a->bins[bin]; i != 0 && looked < SCAN_MAX; i = a->spans[i].b, looked++) {
      uint32_t length = span_units(a, i);
      if (length < units || length >= best_units) continue;
      uint32_t at = fit_at(a, i, units, align);
      if (at == UINT32_MAX) continue;
      best = i, best_at = at, best_units = length;
      if (length == units) break;
    }
    if (best && best_at == a->spans[best].at) return carve_front(a, best, bin, units);
    if (best) return span_carve(a, best, best_at, units);
    if (bin + 1 >= BIN_COUNT) break;
  }
  return 0;
}

/* Frees span i, which was live and has pages behind all of it: span_settle for the most common
 * case. */
static void give_free(arena *a, uint32_t i) {
  span *s = &a->spans[i];
  uint32_t n = s->next, p = s->prev;
  if (n != 1 && span_state_of(&a->spans[n]) == SPAN_FREE) {
    bin_remove(a, n);
    s->next = a->spans[n].next;
    a->spans[s->next].prev = i;
    span_drop(a, n);
  }
  if (p != 0 && span_state_of(&a->spans[p]) == SPAN_FREE) {
    bin_remove(a, p);
    a->spans[p].next = s->next;
    a->spans[s->next].prev = p;
    span_drop(a, i);
    i = p;
  }
  a->spans[i].mark = SPAN_FREE;
  bin_add(a, i);
  valid_span(a, i);
}

/* Splits span i, no longer live, at the boundaries between slots with and without pages, and
 * settles each part. Without memory for the parts, the whole span stays live: unusable, but
 * consistent. */
static void give_in_parts(arena *a, uint32_t i) {
  uint32_t end = a->spans[i].at + span_units(a, i);
  while (i != 1 && a->spans[i].at < end) {
    uint32_t at = a->spans[i].at, slot = at >> a->slot_shift, last = (end - 1) >> a->slot_shift;
    bool backed = a->slots[slot] != 0;
    while (slot <= last && (a->slots[slot] != 0) == backed) slot++;
    uint32_t until = slot << a->slot_shift, upper = a->spans[i].next;
    if (slot <= last && until < end) {
      upper = split(a, i, until);
      if (upper == 0) return;
    }
    a->spans[i].mark = backed ? SPAN_FREE : SPAN_BARE;
    span_settle(a, i);
    i = upper;
    if (a->spans[i].at >= end) break;
  }
}

void arena_free(arena *a, uint32_t i) {
  ASSERT(i > 1 && i < a->span_count);
  span *s = &a->spans[i];
  valid_span(a, i);
  ASSERT_VALUES(span_state_of(s) == SPAN_LIVE && a->live_bytes >= span_bytes(a, i),
                "span: given, not live", i, a->live_bytes);
  a->cells[s->at >> a->cell_shift] = 0;
  a->live_bytes -= span_bytes(a, i);
  a->live_count--;
  if (s->mark & (MARK_MOVED | MARK_DISK)) {
    s->mark = SPAN_LIVE;
    give_in_parts(a, i);
    return;
  }
  give_free(a, i);
}

uint32_t arena_find(const arena *a, stow_addr addr) {
  uint64_t offset = addr - a->base;
  if (offset >= a->bytes) return 0;
  uint32_t unit = (uint32_t)(offset >> UNIT_SHIFT), cell = unit >> a->cell_shift;
  return a->cells[cell];
}

/* ---- opening and closing ---- */

stow_status arena_open(arena *a, pool *p, ordering *o, stow_stream stream, stow_tier tier,
                       bool fine, uint64_t bytes, uint64_t bytes_min, uint32_t cell_shift) {
  ASSERT(p != NULL && o != NULL);
  ASSERT((unsigned)tier < POOL_TIERS);
  ASSERT(p->page_bytes >= UINT64_C(1) << UNIT_SHIFT);
  memset(a, 0, sizeof *a);
  a->pool = p;
  a->order = o;
  a->stream = stream;
  a->tier = (uint8_t)tier;
  a->fine = fine;
  a->cell_shift = cell_shift;
  a->slot_shift = (uint32_t)__builtin_ctzll(p->page_bytes) - UNIT_SHIFT;
  uint64_t align = p->page_bytes << (fine ? 0 : p->order_max);
  /* Offsets are 32 bits of units, and the last bin is never reached. */
  uint64_t most = (UINT64_C(1) << 40);
  bytes = (bytes > most ? most : bytes) / align * align;
  if (bytes < align) bytes = align;
  stow_status status;
  while ((status = device_reserve(p->device, &a->base, bytes, align)) == STOW_ERR_OUT_OF_MEMORY &&
         bytes / 2 >= bytes_min && bytes / 2 >= align)
    bytes = bytes / 2 / align * align;
  STOW_TRY(status);
  a->bytes = bytes;
  a->units = (uint32_t)(bytes >> UNIT_SHIFT);
  uint64_t spans = 2 * ((uint64_t)(a->units >> cell_shift) + 4) + 64;
  a->span_max = spans > UINT32_MAX - 1 ? UINT32_MAX - 1 : (uint32_t)spans;
  a->spans = lazy_map((uint64_t)a->span_max * sizeof *a->spans);
  a->cells = lazy_map(cells_bytes(a));
  a->slots = lazy_map(slots_bytes(a));
  a->stale_tickets = lazy_map(slots_bytes(a));
  if (!a->spans || !a->cells || !a->slots || !a->stale_tickets) {
    arena_close(a);
    return stow_fail(STOW_ERR_HOST_MEMORY, "arena: no addresses for the tables of %llu bytes",
                     (unsigned long long)bytes);
  }
  a->span_count = 3;
  a->spans[1] = (span){.at = a->units, .prev = 2, .mark = SPAN_LIVE};
  a->spans[2] = (span){.at = 0, .next = 1, .mark = SPAN_BARE};
  a->first = 2;
  list_add(a, &a->bare, 2);
  return STOW_OK;
}

stow_status arena_close(arena *a) {
  stow_status status = STOW_OK;
  if (a->base) status = device_unreserve(a->pool->device, a->base, a->bytes);
  if (status != STOW_OK) status = device_unreserve(a->pool->device, a->base, a->bytes);
  lazy_unmap(a->spans, (uint64_t)a->span_max * sizeof *a->spans);
  lazy_unmap(a->cells, cells_bytes(a));
  lazy_unmap(a->slots, slots_bytes(a));
  lazy_unmap(a->stale_tickets, slots_bytes(a));
  memset(a, 0, sizeof *a);
  return status;
}

/* ---- validity ---- */

static stow_status check_span(const arena *a, uint32_t i) {
  const span *s = &a->spans[i];
  uint32_t state = span_state_of(s), units = span_units(a, i);
  if (a->spans[s->next].prev != i || units == 0 || a->spans[s->next].at <= s->at)
    return stow_fail(STOW_ERR_STATE, "span %u: broken links", i);
  if (s->next != 1 && state != SPAN_LIVE && state != SPAN_STALE &&
      span_state_of(&a->spans[s->next]) == state)
    return stow_fail(STOW_ERR_STATE, "spans %u and %u: neighbours both in state %u", i, s->next,
                     state);
  uint32_t slot_units = 1u << a->slot_shift;
  if ((state == SPAN_BARE || state == SPAN_STALE) && ((s->at | units) & (slot_units - 1)) != 0)
    return stow_fail(STOW_ERR_STATE, "span %u: not whole slots", i);
  if (state == SPAN_LIVE && a->cells[s->at >> a->cell_shift] != i)
    return stow_fail(STOW_ERR_STATE, "span %u: cannot be found by address", i);
  for (uint32_t slot = s->at >> a->slot_shift; slot <= (s->at + units - 1) >> a->slot_shift;
       slot++) {
    bool backed = a->slots[slot] != 0;
    if ((state == SPAN_BARE && backed) || (state == SPAN_FREE && !backed) ||
        (state == SPAN_LIVE && !backed && !(s->mark & MARK_DISK)))
      return stow_fail(STOW_ERR_STATE, "span %u: slot %u in state %u has %s page", i, slot, state,
                       backed ? "a" : "no");
    if (!backed || state == SPAN_STALE) continue;
    const page *g = pool_page(a->pool, a->slots[slot] - 1);
    if (g->cached || g->maps == 0 || g->arena != a->id || slot < g->slot ||
        slot >= g->slot + (1u << g->order))
      return stow_fail(STOW_ERR_STATE, "span %u: page of slot %u is not at home", i, slot);
  }
  return STOW_OK;
}

stow_status arena_check(const arena *a) {
  uint64_t live = 0, count = 0, listed = 0, free_spans = 0;
  uint32_t at = 0;
  for (uint32_t i = a->first; i != 1; i = a->spans[i].next) {
    if (a->spans[i].at != at) return stow_fail(STOW_ERR_STATE, "span %u: gap before it", i);
    STOW_TRY(check_span(a, i));
    at += span_units(a, i);
    if (span_state_of(&a->spans[i]) == SPAN_LIVE) live += span_bytes(a, i), count++;
    if (span_state_of(&a->spans[i]) == SPAN_FREE) free_spans++;
  }
  if (at != a->units)
    return stow_fail(STOW_ERR_STATE, "arena: spans end at %u of %u", at, a->units);
  for (uint32_t bin = 0; bin < BIN_COUNT; bin++)
    for (uint32_t i = a->bins[bin]; i != 0; i = a->spans[i].b, listed++)
      if (span_state_of(&a->spans[i]) != SPAN_FREE || bin_of(span_units(a, i)) != bin)
        return stow_fail(STOW_ERR_STATE, "span %u: in the wrong bin", i);
  if (listed != free_spans)
    return stow_fail(STOW_ERR_STATE, "arena: %llu free spans, %llu in bins",
                     (unsigned long long)free_spans, (unsigned long long)listed);
  if (live != a->live_bytes || count != a->live_count)
    return stow_fail(STOW_ERR_STATE, "arena: %llu live bytes counted, %llu kept",
                     (unsigned long long)live, (unsigned long long)a->live_bytes);
  return STOW_OK;
}

uint64_t arena_largest(const arena *a) {
  uint64_t most = 0;
  if (a->top == 0) return 0;
  uint32_t first = 31u - (uint32_t)__builtin_clz(a->top);
  uint32_t bin = first * BIN_SUB + 31u - (uint32_t)__builtin_clz(a->sub[first]);
  for (uint32_t i = a->bins[bin]; i != 0; i = a->spans[i].b)
    if (span_bytes(a, i) > most) most = span_bytes(a, i);
  return most;
}

uint64_t arena_used_units(const arena *a) {
  for (uint32_t i = a->spans[1].prev; i != 0; i = a->spans[i].prev)
    if (span_state_of(&a->spans[i]) != SPAN_BARE) return a->spans[i].at + span_units(a, i);
  return 0;
}

uint64_t arena_metadata_bytes(const arena *a) {
  uint64_t used = arena_used_units(a); /* only the part of the tables that was touched */
  return sizeof *a + (uint64_t)a->span_count * sizeof *a->spans +
         (used >> a->cell_shift) * sizeof *a->cells +
         (used >> a->slot_shift) * 2 * sizeof *a->slots;
}
