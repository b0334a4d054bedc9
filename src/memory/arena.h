/* Arena: one reserved range of addresses of one stream and tier, cut into spans.
 *
 *   address →  | live | free | live |  bare (no pages)  | free | stale | live | bare …        end|
 *   slots   →  [ page ][   page    ][    ][    ][  page   ][  page  ][ page  ][    …
 *
 * A span is a run of 512 B units in one state:
 *   live   allocated
 *   free   not allocated; pages behind all of it
 *   bare   not allocated; no pages behind it; whole slots
 *   stale  not allocated; still mapped to pages that are now used elsewhere; whole slots. Becomes
 *          bare when it is unmapped, after its ticket has passed: for a new request, or when idle.
 * Neighbours are never both free, nor both bare. A page is completely free exactly if one free span
 * covers it, so pages need no counters and the hot path never accesses them.
 *
 * Spans are 24 bytes, named by 32-bit index; free ones are in bins by length (16 per octave, found
 * by two levels of bitmap). A live span is found from its address through `cells`: no two live
 * spans begin in one cell, because none is shorter than a cell.
 *
 * The lock of the arena's owner (a lane) guards it; code that changes pages also holds the heap's
 * lock. */
#ifndef MEMORY_ARENA_H
#define MEMORY_ARENA_H

#include "base/assert.h"
#include "memory/order.h"
#include "memory/pool.h"

#define UNIT_SHIFT 9 /* 512 B */

typedef enum span_state { SPAN_LIVE = 0, SPAN_FREE = 1, SPAN_BARE = 2, SPAN_STALE = 3 } span_state;

/* span.mark: bits 0-1 state, then flags, then 16 bits of tag. */
#define MARK_STATE     0x3u
#define MARK_SLAB      0x4u  /* live: a slab, cut into blocks (slab.h) */
#define MARK_PENDING   0x8u  /* live: freed, but waiting for an event */
#define MARK_RECORDED  0x10u /* live: other streams use it */
#define MARK_HOT       0x20u
#define MARK_COLD      0x40u
#define MARK_MOVED     0x80u /* live: some pages are not of the arena's tier */
#define MARK_DISK      0x100u
#define MARK_QUICK     0x200u /* marked live, but free: its lane keeps it for reuse */
#define MARK_TAG_SHIFT 16

typedef struct span {
  uint32_t at;         /* first unit */
  uint32_t prev, next; /* neighbours by address */
  uint32_t a, b;       /* links of the list that holds a free, bare or stale span */
  uint32_t mark;       /* state, flags, tag */
} span;

#define BIN_SUB   16
#define BIN_COUNT (29 * BIN_SUB)

typedef struct arena {
  stow_addr base;
  uint64_t bytes;
  uint32_t units, slot_shift, cell_shift; /* units per slot and per cell, as powers of two */
  uint16_t id, lane;
  uint8_t tier;
  bool fine;   /* only pages of the smallest size */
  span *spans; /* [0] is unused, [1] is the end mark */
  uint32_t span_count, span_max, spare;
  uint32_t *cells;         /* live span that begins in a cell; 0: none */
  uint32_t *slots;         /* page index + 1 behind a slot; 0: none */
  uint32_t *stale_tickets; /* by slot: ticket of the stale span that begins there */
  uint32_t first;
  uint32_t bins[BIN_COUNT], sub[29], top;
  uint32_t changes;     /* how often the bins have changed */
  uint32_t bare, stale; /* list heads */
  uint32_t coarse;      /* number of pages larger than one slot */
  uint64_t live_bytes, live_count;
  pool *pool;
  ordering *order;
  stow_stream stream;
  void (*unmapped)(void *owner, stow_addr ptr, uint64_t bytes, stow_tier tier); /* may be NULL */
  void *owner;
} arena;

static inline uint32_t span_state_of(const span *s) {
  return s->mark & MARK_STATE;
}
static inline uint32_t span_units(const arena *a, uint32_t i) {
  return a->spans[a->spans[i].next].at - a->spans[i].at;
}
static inline stow_addr span_addr(const arena *a, uint32_t i) {
  return a->base + ((uint64_t)a->spans[i].at << UNIT_SHIFT);
}
static inline uint64_t span_bytes(const arena *a, uint32_t i) {
  return (uint64_t)span_units(a, i) << UNIT_SHIFT;
}

/* Reserves `bytes` of addresses (halves the size down to `bytes_min` if that fails). No live span
 * may be shorter than 2^cell_shift units. */
stow_status arena_open(arena *a, pool *p, ordering *o, stow_stream stream, stow_tier tier,
                       bool fine, uint64_t bytes, uint64_t bytes_min, uint32_t cell_shift);
/* Closes the arena. Nothing may be mapped in it. */
stow_status arena_close(arena *a);

/* Takes a live span of `units`, aligned to `align` units, from the free spans. Returns 0 if nothing
 * fits. */
uint32_t arena_alloc(arena *a, uint32_t units, uint32_t align);
/* Frees a live span; its slots without pages become bare. */
void arena_free(arena *a, uint32_t i);
/* Returns the live span that begins at `addr`, or else in the cell of `addr`; 0 if there is none.
 */
uint32_t arena_find(const arena *a, stow_addr addr);

/* ---- pages (backing.c) ---- */

typedef struct window {
  uint32_t at, units; /* where the request would be placed */
  uint64_t missing;   /* bytes of pages that are missing there */
  uint32_t run;       /* first span of the free run that contains it */
} window;

/* Finds the place for `units` that lacks the fewest pages. Returns false if no run of addresses is
 * long enough. */
bool arena_plan(arena *a, window *w, uint32_t units, uint32_t align);
/* Maps pages at the window, then takes it. On error the part mapped so far stays free. */
stow_status arena_back(arena *a, uint32_t *out, const window *w);
/* Moves completely free pages outside `keep` (may be NULL) to the pool until `bytes` are there,
 * shortest free spans first. Returns the bytes moved. */
uint64_t arena_strip(arena *a, uint64_t bytes, const window *keep, stow_status *status);
/* Unmaps stale spans whose ticket has passed. With `wait`, waits for the tickets. */
stow_status arena_reap(arena *a, bool wait);
/* Returns the bytes of pages that live spans touch. */
uint64_t arena_pinned(const arena *a);
uint64_t arena_largest(const arena *a);

/* ---- for its own files ---- */
/* Returns the bin of a length: one bin for each length from 1 to 15, then 16 per octave. */
static inline uint32_t bin_of(uint32_t units) {
  if (units < BIN_SUB) return units;
  uint32_t log = 31u - (uint32_t)__builtin_clz(units);
  return (log - 3) * BIN_SUB + ((units >> (log - 4)) & (BIN_SUB - 1));
}
/* Makes [at, at+units) of span i a separate span in `state`, not on any list; the neighbours keep
 * the state and lists of i. Returns 0 if there is no memory. */
uint32_t span_cut(arena *a, uint32_t i, uint32_t at, uint32_t units, span_state state);
void list_add(arena *a, uint32_t *head, uint32_t i);
/* Merges span i (free or bare, not on any list) with neighbours in the same state and puts the
 * result on its list. */
uint32_t span_settle(arena *a, uint32_t i);
/* Carves a live span out of free span i. */
uint32_t span_carve(arena *a, uint32_t i, uint32_t at, uint32_t units);
/* A request never uses a page larger than this many times its size (page_fit.c). */
#define PAGE_OVER 8
static inline uint32_t arena_slot(const arena *a, uint32_t unit) {
  return unit >> a->slot_shift;
}
static inline uint64_t order_bytes(const arena *a, uint8_t order) {
  return a->pool->page_bytes << order;
}
/* Returns the order of the largest page behind [at, at+units), ignoring slots without a page. */
uint8_t order_behind(const arena *a, uint32_t at, uint32_t units);
/* Returns whether a request of `units` may use the pages behind [at, at+units) (page_fit.c). */
bool pages_fit(const arena *a, uint32_t at, uint32_t units);

stow_status arena_check(const arena *a); /* slow: checks everything */
uint64_t arena_metadata_bytes(const arena *a);
/* Returns the units up to the last address that has or had pages. */
uint64_t arena_used_units(const arena *a);

/* Reserves tables that grow when touched, in huge pages once they are long. Returns NULL if there
 * are no addresses left. */
void *lazy_map(uint64_t bytes);
void lazy_unmap(void *table, uint64_t bytes);

#endif
