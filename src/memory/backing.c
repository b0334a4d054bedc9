/* Backing: which pages are mapped at which spans, and how free pages move.
 *
 * If no free span fits, the request goes to the place that lacks the fewest pages. The missing
 * pages come from the pool, from the device within the limit, or from under other free spans
 * (strip): completely free pages inside holes can move. The figures below come from replays of
 * recorded training and generation loops at limits within 1% of their peak live bytes, with the
 * measured cost of every page call (H200: create 11 us, map 1, access 25 to 50, unmap 17 to 26,
 * release 11 to 54; all per page, a longer range saves nothing):
 *
 *  - A page created for a request is at most 1/48 of it (2 MiB for most, 64 MiB from 3 GiB up). At
 *    peak a hole wastes about half a page at each end and a loop has 30 to 150 holes, so pages near
 *    the size of the blocks cost several percent of the limit; much smaller ones cost 1.5% to 3% of
 *    the step time whenever the working set grows. Holes mostly begin and end near the ends of the
 *    blocks that were there: well inside a large one, pages twice as large cost a sixth less time
 *    and no more memory.
 *  - A request may use a larger existing page, up to 8 times its own size, so a small block never
 *    pins 64 MiB. Keeping each block on pages smaller than itself costs 5% of the step time in page
 *    calls. So live blocks hold, in pages: live bytes / page size, + 2 for each block that is not
 *    in a slab, + one slab for each size class and stream. In bytes a block's two pages are of at
 *    most max(2 MiB, 8 x block). A full slab counts as live bytes, each block with its share of the
 *    64 KiB. If a program has freed all but one block in each slab, a class has as many slabs as
 *    its peak needed, because blocks do not move.
 *  - Pages are taken from the shortest free spans first, which are the least likely to fit the next
 *    request: taking from the longest made a generation loop move 17 times more pages. A request
 *    for large pages takes large pages first, anywhere: a move costs per page, not per byte.
 *  - To move a page, it is mapped at its new address while the old address stays mapped (an alias,
 *    the stale span), so that nothing waits: the order of the same stream is enough, and another
 *    stream waits for an event on the device. The old address is unmapped when it is needed again
 *    and its ticket has passed, only as far as needed, or when no page was requested for a while.
 *    Most old addresses are never needed, and unmapping was a third of the cost of a move. */
#include "base/assert.h"
#include "memory/arena.h"

#define PAGE_PART 48 /* a page created for a request is at most 1/48 of it */
#define PAGE_FAR  12 /* or twice that, if 12 such pages fit between it and either end */

static uint32_t slot_unit(const arena *a, uint32_t slot) {
  return slot << a->slot_shift;
}
static stow_addr slot_addr(const arena *a, uint32_t slot) {
  return a->base + ((uint64_t)slot << (a->slot_shift + UNIT_SHIFT));
}

static uint8_t order_made(const arena *a, uint32_t units) {
  uint64_t bytes = ((uint64_t)units << UNIT_SHIFT) / PAGE_PART;
  uint8_t o = 0;
  if (!a->fine)
    while (o < a->pool->order_max && (a->pool->page_bytes << (o + 1)) <= bytes) o++;
  return o;
}

/* ---- stale spans ---- */

/* Returns the number of slots of the mapping that begins at `slot`. */
static uint32_t slots_at(const arena *a, uint32_t slot) {
  ASSERT(a->slots[slot] != 0);
  return 1u << pool_page(a->pool, a->slots[slot] - 1)->order;
}

static uint32_t stale_ticket(const arena *a, uint32_t i) {
  ASSERT(span_state_of(&a->spans[i]) == SPAN_STALE);
  return a->stale_tickets[arena_slot(a, a->spans[i].at)];
}

/* Checks whether the ticket of stale span i has passed, so that nothing uses its addresses. */
static void stale_passed(arena *a, uint32_t i) {
  ASSERT(span_state_of(&a->spans[i]) == SPAN_STALE);
  uint32_t first = arena_slot(a, a->spans[i].at), last = first + arena_slot(a, span_units(a, i));
  uint32_t ticket = a->stale_tickets[first];
  for (uint32_t slot = first; slot < last; slot += slots_at(a, slot)) {
    page *g = pool_page(a->pool, a->slots[slot] - 1);
    if (ticket == 0 || g->ticket != ticket) continue;
    order_drop(a->order, ticket);
    g->ticket = 0;
  }
  a->stale_tickets[first] = 0;
  order_drop(a->order, ticket);
}

/* Unmaps the mappings at slots [from, to) of stale span i, whose ticket has passed, and makes them
 * bare. */
static stow_status stale_unmap(arena *a, uint32_t i, uint32_t from, uint32_t to) {
  ASSERT(span_state_of(&a->spans[i]) == SPAN_STALE);
  ASSERT(stale_ticket(a, i) == 0);
  ASSERT(from < to);
  uint32_t low = arena_slot(a, a->spans[i].at), high;
  for (uint32_t n; low + (n = slots_at(a, low)) <= from;)
    low += n; /* a mapping is unmapped as a
               * whole */
  for (high = low; high < to;) high += slots_at(a, high);
  uint32_t cut = span_cut(a, i, slot_unit(a, low), slot_unit(a, high - low), SPAN_STALE);
  if (cut == 0) return stow_fail(STOW_ERR_HOST_MEMORY, "arena: its span table is full");
  stow_addr at = slot_addr(a, low);
  uint64_t bytes = slot_addr(a, high) - at;
  stow_status status = device_unmap(a->pool->device, at, bytes);
  if (status != STOW_OK) {
    list_add(a, &a->stale, cut);
    return status;
  }
  atomic_fetch_add_explicit(&a->pool->unmaps, 1, memory_order_relaxed);
  if (a->unmapped) a->unmapped(a->owner, at, bytes, (stow_tier)a->tier);
  for (uint32_t slot = low, count; slot < high; slot += count) {
    count = slots_at(a, slot);
    pool_page(a->pool, a->slots[slot] - 1)->maps--;
    for (uint32_t k = 0; k < count; k++) a->slots[slot + k] = 0;
  }
  a->spans[cut].mark = SPAN_BARE;
  span_settle(a, cut);
  return STOW_OK;
}

/* ---- planning ---- */

typedef struct candidate {
  window w;
  bool over;       /* uses pages larger than itself */
  uint64_t length; /* length of the run of free and bare spans around it */
} candidate;

static bool better(const candidate *x, const candidate *y) {
  if (x->w.missing != y->w.missing) return x->w.missing < y->w.missing;
  if (x->over != y->over) return y->over;
  return x->length < y->length;
}

/* Returns the bytes of slots under [at, at+units) that have no page. The range must be inside one
 * run. */
static uint64_t missing_under(const arena *a, uint32_t run, uint32_t at, uint32_t units) {
  ASSERT(units > 0);
  uint64_t slots = 0;
  for (uint32_t i = run; a->spans[i].at < at + units; i = a->spans[i].next) {
    uint32_t end = a->spans[a->spans[i].next].at;
    if (span_state_of(&a->spans[i]) == SPAN_FREE || end <= at) continue;
    uint32_t from = a->spans[i].at > at ? a->spans[i].at : at;
    uint32_t to = end < at + units ? end : at + units;
    slots += arena_slot(a, to - 1) - arena_slot(a, from) + 1;
  }
  return slots * a->pool->page_bytes;
}

/* Returns the order of the largest page behind a window inside one run. Only the free spans of a
 * run have pages of their own. */
static uint8_t order_in_run(const arena *a, uint32_t run, uint32_t at, uint32_t units) {
  uint8_t most = 0;
  for (uint32_t i = run; a->spans[i].at < at + units; i = a->spans[i].next) {
    uint32_t end = a->spans[a->spans[i].next].at;
    if (span_state_of(&a->spans[i]) != SPAN_FREE || end <= at) continue;
    uint32_t from = a->spans[i].at > at ? a->spans[i].at : at;
    uint8_t o = order_behind(a, from, (end < at + units ? end : at + units) - from);
    if (o > most) most = o;
  }
  return most;
}

static void consider(const arena *a, candidate *best, uint32_t run, uint32_t at, uint32_t units,
                     uint64_t length) {
  uint8_t behind = a->coarse ? order_in_run(a, run, at, units) : 0;
  uint64_t bytes = (uint64_t)units << UNIT_SHIFT;
  if (behind > 0 && order_bytes(a, behind) > PAGE_OVER * bytes) return;
  candidate c = {{at, units, missing_under(a, run, at, units), run}, false, length};
  c.over = behind > 0 && order_bytes(a, behind) > bytes;
  if (best->w.units == 0 || better(&c, best)) *best = c;
}

/* Returns whether span i can be part of a window. A stale span can once its addresses are
 * unused. */
static bool loose(const arena *a, uint32_t i) {
  uint32_t state = span_state_of(&a->spans[i]);
  return state == SPAN_FREE || state == SPAN_BARE ||
         (state == SPAN_STALE && stale_ticket(a, i) == 0);
}

/* How many bare or stale spans one plan examines, not counting the tail. Bounds the cost when
 * thousands of holes were stripped. */
#define PLAN_MAX 512

static void consider_run(const arena *a, candidate *best, uint32_t bare, uint32_t units,
                         uint32_t align) {
  ASSERT(units > 0);
  ASSERT(align != 0 && (align & (align - 1)) == 0);
  uint32_t low = bare, high = bare;
  while (a->spans[low].prev != 0 && loose(a, a->spans[low].prev)) low = a->spans[low].prev;
  while (a->spans[high].next != 1 && loose(a, a->spans[high].next)) high = a->spans[high].next;
  uint32_t begin = a->spans[low].at, end = a->spans[a->spans[high].next].at;
  if (end - begin < units) return;
  bool tail = a->spans[high].next == 1;
  uint64_t length = tail ? UINT64_MAX : end - begin;
  uint32_t mask = ~(align - 1);
  uint32_t starts[4] = {
      (begin + align - 1) & mask, (a->spans[bare].at + align - 1) & mask, (end - units) & mask,
      a->spans[a->spans[bare].next].at >= units ? (a->spans[a->spans[bare].next].at - units) & mask
                                                : 0};
  for (int k = 0; k < (tail ? 2 : 4); k++)
    if (starts[k] >= begin && (uint64_t)starts[k] + units <= end)
      consider(a, best, low, starts[k], units, length);
}

/* Finds the stale spans whose addresses are unused. Unmaps those beyond the newest PLAN_MAX, which
 * no plan examines. Ignores errors: whoever waits or maps reports them. */
static void query_tickets(arena *a) {
  int looked = 0;
  for (uint32_t i = a->stale, after; i != 0; i = after, looked++) {
    after = a->spans[i].b;
    uint32_t ticket = stale_ticket(a, i), from = arena_slot(a, a->spans[i].at);
    if (ticket != 0 && order_query(a->order, ticket) != STOW_OK) continue;
    if (ticket != 0) stale_passed(a, i);
    if (looked >= PLAN_MAX) (void)stale_unmap(a, i, from, from + arena_slot(a, span_units(a, i)));
  }
}

bool arena_plan(arena *a, window *w, uint32_t units, uint32_t align) {
  ASSERT(units > 0);
  ASSERT(align != 0 && (align & (align - 1)) == 0);
  candidate best = {{0, 0, 0, 0}, false, 0};
  uint32_t last = a->spans[1].prev;
  query_tickets(a);
  if (span_state_of(&a->spans[last]) == SPAN_BARE) consider_run(a, &best, last, units, align);
  int looked = 0;
  for (uint32_t i = a->bare; i != 0 && looked < PLAN_MAX; i = a->spans[i].b, looked++)
    if (i != last) consider_run(a, &best, i, units, align);
  looked = 0;
  for (uint32_t i = a->stale; i != 0 && looked < PLAN_MAX; i = a->spans[i].b, looked++)
    if (loose(a, i)) consider_run(a, &best, i, units, align);
  *w = best.w;
  return best.w.units != 0;
}

/* ---- mapping pages at a window ---- */

static void unmap_range(arena *a, uint32_t from, uint32_t to) {
  ASSERT(from <= to);
  for (uint32_t slot = from; slot < to;) {
    uint32_t index = a->slots[slot] - 1;
    page *g = pool_page(a->pool, index);
    uint32_t count = 1u << g->order;
    if (device_unmap(a->pool->device, slot_addr(a, slot), g->bytes) != STOW_OK) {
      slot += count; /* the mapping stays and is unusable until the arena is closed */
      continue;
    }
    atomic_fetch_add_explicit(&a->pool->unmaps, 1, memory_order_relaxed);
    for (uint32_t k = 0; k < count; k++) a->slots[slot + k] = 0;
    g->maps--;
    a->coarse -= g->order > 0;
    pool_put(a->pool, index);
    slot += count;
  }
}

/* Maps one page of at most `most` slots at `slot`. */
static stow_status map_one(arena *a, uint32_t slot, uint32_t most, uint8_t order, uint32_t *count) {
  ASSERT(most > 0);
  uint8_t o = order;
  while (o > 0 && ((slot & ((1u << o) - 1)) != 0 || (1u << o) > most)) o--;
  uint32_t index;
  STOW_TRY(pool_get(a->pool, &index, (stow_tier)a->tier, o));
  page *g = pool_page(a->pool, index);
  stow_status status = order_after(a->order, g->ticket, a->stream);
  if (status == STOW_OK)
    status = device_map(a->pool->device, slot_addr(a, slot), g->bytes, g->handle);
  if (status != STOW_OK) {
    pool_put(a->pool, index);
    return status;
  }
  atomic_fetch_add_explicit(&a->pool->maps, 1, memory_order_relaxed);
  g->maps++;
  g->slot = slot;
  g->arena = a->id;
  if (g->ticket != 0 && order_query(a->order, g->ticket) == STOW_OK) {
    order_drop(a->order, g->ticket);
    g->ticket = 0;
  }
  *count = 1u << g->order;
  a->coarse += g->order > 0;
  for (uint32_t k = 0; k < *count; k++) a->slots[slot + k] = index + 1;
  return STOW_OK;
}

/* Returns the order of a page to create at `slot` of the window: `order`, or one more well inside
 * the window if pages are not the smallest anyway. */
static uint8_t order_at(const arena *a, const window *w, uint32_t slot, uint8_t order) {
  uint32_t low = arena_slot(a, w->at), high = arena_slot(a, w->at + w->units - 1) + 1;
  uint32_t far = (uint32_t)PAGE_FAR << (order + 1);
  bool inside = slot >= low + far && slot + far + (1u << (order + 1)) <= high;
  return inside && order > 0 && order < a->pool->order_max ? order + 1 : order;
}

/* Maps pages at slots [from, to) of one bare span and makes them free. All or nothing. */
static stow_status back_range(arena *a, uint32_t bare, uint32_t from, uint32_t to,
                              const window *w) {
  ASSERT(from < to);
  ASSERT(span_state_of(&a->spans[bare]) == SPAN_BARE);
  uint8_t order = order_made(a, w->units);
  uint32_t slot = from;
  stow_status status = STOW_OK;
  while (slot < to && status == STOW_OK) {
    uint32_t count = 0;
    status = map_one(a, slot, to - slot, order_at(a, w, slot, order), &count);
    slot += count;
  }
  if (status == STOW_OK) {
    status =
        device_access(a->pool->device, slot_addr(a, from), slot_addr(a, to) - slot_addr(a, from));
    atomic_fetch_add_explicit(&a->pool->accesses, 1, memory_order_relaxed);
  }
  uint32_t middle = 0;
  if (status == STOW_OK) {
    middle =
        span_cut(a, bare, slot_unit(a, from), slot_unit(a, to) - slot_unit(a, from), SPAN_FREE);
    if (middle == 0) status = stow_fail(STOW_ERR_HOST_MEMORY, "arena: its span table is full");
  }
  if (status != STOW_OK) {
    unmap_range(a, from, slot);
    return status;
  }
  span_settle(a, middle);
  return STOW_OK;
}

stow_status arena_back(arena *a, uint32_t *out, const window *w) {
  ASSERT(out != NULL);
  ASSERT(w->units > 0);
  uint32_t end = w->at + w->units, i = w->run;
  while (a->spans[i].at < end) {
    uint32_t span_end = a->spans[a->spans[i].next].at, state = span_state_of(&a->spans[i]);
    if (state == SPAN_FREE || span_end <= w->at) {
      i = a->spans[i].next;
      continue;
    }
    uint32_t from = arena_slot(a, a->spans[i].at > w->at ? a->spans[i].at : w->at);
    uint32_t to = arena_slot(a, (span_end < end ? span_end : end) - 1) + 1;
    STOW_TRY(state == SPAN_STALE ? stale_unmap(a, i, from, to) : back_range(a, i, from, to, w));
    i = w->run; /* it was merged with its neighbours: only the first span of the run is certain to
                 * exist */
  }
  for (i = w->run; a->spans[a->spans[i].next].at <= w->at;) i = a->spans[i].next;
  *out = span_carve(a, i, w->at, w->units);
  return *out ? STOW_OK : stow_fail(STOW_ERR_HOST_MEMORY, "arena: its span table is full");
}

/* ---- releasing pages ---- */

/* Finds the slots [*from, *to) of whole pages inside free span i. Returns false if there are
 * none. */
static bool whole_pages(const arena *a, uint32_t i, uint32_t *from, uint32_t *to) {
  uint32_t begin = a->spans[i].at, end = a->spans[a->spans[i].next].at;
  uint32_t low = arena_slot(a, begin + slot_unit(a, 1) - 1), high = arena_slot(a, end);
  if (low >= high) return false;
  const page *g = pool_page(a->pool, a->slots[low] - 1);
  if (g->slot < low) low = g->slot + (1u << g->order);
  if (low >= high) return false;
  g = pool_page(a->pool, a->slots[high - 1] - 1);
  if (g->slot + (1u << g->order) > high) high = g->slot;
  *from = low;
  *to = high;
  return low < high;
}

/* Makes slots [from, to) of free span i stale and puts their pages into the pool. */
static stow_status let_go(arena *a, uint32_t i, uint32_t from, uint32_t to, uint32_t ticket) {
  uint32_t units = slot_unit(a, to) - slot_unit(a, from);
  uint32_t cut = span_cut(a, i, slot_unit(a, from), units, SPAN_STALE);
  if (cut == 0) return stow_fail(STOW_ERR_HOST_MEMORY, "arena: its span table is full");
  for (uint32_t slot = from; slot < to;) {
    uint32_t index = a->slots[slot] - 1;
    page *g = pool_page(a->pool, index);
    if (g->ticket != ticket) {
      order_drop(a->order, g->ticket);
      g->ticket = ticket;
      order_hold(a->order, ticket);
    }
    slot += 1u << g->order;
    a->coarse -= g->order > 0;
    pool_put(a->pool, index);
  }
  order_hold(a->order, ticket);
  a->stale_tickets[from] = ticket;
  list_add(a, &a->stale, cut);
  return STOW_OK;
}

/* Limits [*from, *to) to whole pages before or after the kept window, preferably before it. */
static void avoid(const arena *a, const window *keep, uint32_t *from, uint32_t *to) {
  if (!keep) return;
  uint32_t low = arena_slot(a, keep->at), high = arena_slot(a, keep->at + keep->units - 1) + 1;
  if (high <= *from || low >= *to) return;
  if (low > *from) {
    const page *g = a->slots[low] ? pool_page(a->pool, a->slots[low] - 1) : NULL;
    *to = g && g->slot < low ? g->slot : low;
  } else if (high >= *to) {
    *from = *to;
  } else {
    const page *g = a->slots[high - 1] ? pool_page(a->pool, a->slots[high - 1] - 1) : NULL;
    *from = g ? g->slot + (1u << g->order) : high;
  }
  if (*from > *to) *from = *to;
}

/* Returns how many slots from `from` on hold `bytes`, up to the end of a page. */
static uint32_t enough(const arena *a, uint32_t from, uint32_t to, uint64_t bytes) {
  ASSERT(from <= to);
  uint64_t have = 0;
  uint32_t slot = from;
  while (slot < to && have < bytes) {
    const page *g = pool_page(a->pool, a->slots[slot] - 1);
    have += g->bytes;
    slot += 1u << g->order;
  }
  return slot;
}

/* Limits [*from, *to) to its first run of pages of at least order `least`. */
static void only_large(const arena *a, uint8_t least, uint32_t *from, uint32_t *to) {
  ASSERT(*from <= *to);
  uint32_t low = *from, high;
  while (low < *to && pool_page(a->pool, a->slots[low] - 1)->order < least)
    low += 1u << pool_page(a->pool, a->slots[low] - 1)->order;
  for (high = low; high < *to && pool_page(a->pool, a->slots[high] - 1)->order >= least;)
    high += 1u << pool_page(a->pool, a->slots[high] - 1)->order;
  *from = low;
  *to = high;
}

/* Takes pages of at least order `least` from the free spans, the shortest first. */
static uint64_t strip_pass(arena *a, uint64_t bytes, uint8_t least, const window *keep,
                           uint32_t *ticket, stow_status *status) {
  ASSERT(bytes > 0);
  uint64_t got = 0;
  for (uint32_t bin = bin_of(slot_unit(a, 1) << least); bin < BIN_COUNT && got < bytes; bin++) {
    for (uint32_t i = a->bins[bin], after; i != 0 && got < bytes; i = after) {
      after = a->spans[i].b;
      uint32_t from, to;
      if (!whole_pages(a, i, &from, &to)) continue;
      avoid(a, keep, &from, &to);
      if (from < to && least > 0) only_large(a, least, &from, &to);
      if (from >= to) continue;
      to = enough(a, from, to, bytes - got);
      if (*ticket == 0 && (*status = order_ticket(a->order, ticket, a->stream)) != STOW_OK)
        return got;
      if ((*status = let_go(a, i, from, to, *ticket)) != STOW_OK) return got;
      got += slot_addr(a, to) - slot_addr(a, from);
    }
  }
  return got;
}

uint64_t arena_strip(arena *a, uint64_t bytes, const window *keep, stow_status *status) {
  uint64_t got = 0;
  uint32_t ticket = 0;
  *status = STOW_OK;
  int most = keep ? order_made(a, keep->units) : 0;
  for (int least = a->coarse ? most : 0; least >= 0 && got < bytes && *status == STOW_OK; least--)
    got += strip_pass(a, bytes - got, (uint8_t)least, keep, &ticket, status);
  order_drop(a->order, ticket);
  return got;
}

stow_status arena_reap(arena *a, bool wait) {
  for (uint32_t i = a->stale, after; i != 0; i = after) {
    after = a->spans[i].b;
    uint32_t ticket = stale_ticket(a, i), from = arena_slot(a, a->spans[i].at);
    stow_status status = wait ? order_wait(a->order, ticket) : order_query(a->order, ticket);
    if (status == STOW_ERR_NOT_READY) continue;
    STOW_TRY(status);
    stale_passed(a, i);
    STOW_TRY(stale_unmap(a, i, from, from + arena_slot(a, span_units(a, i))));
  }
  return STOW_OK;
}

uint64_t arena_pinned(const arena *a) {
  uint64_t bytes = 0;
  uint32_t counted = UINT32_MAX; /* the page counted last: neighbours in address order share
                                  * pages */
  for (uint32_t i = a->first; i != 1; i = a->spans[i].next) {
    if (span_state_of(&a->spans[i]) != SPAN_LIVE) continue;
    uint32_t last = arena_slot(a, a->spans[i].at + span_units(a, i) - 1);
    for (uint32_t slot = arena_slot(a, a->spans[i].at); slot <= last;) {
      uint32_t p = a->slots[slot];
      if (p == 0) {
        slot++;
        continue;
      }
      const page *g = pool_page(a->pool, p - 1);
      if (p != counted) bytes += g->bytes;
      counted = p;
      slot = g->slot + (1u << g->order);
    }
  }
  return bytes;
}
