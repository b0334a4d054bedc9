/* Plan: greedy layouts of lifetimes, the best of which is kept.
 *
 * Every layout places blocks one by one, each into a gap between those already placed that live at
 * the same time. Layouts differ in the order of blocks (size, area, lifetime, start) and in the gap
 * (lowest or tightest). A search then moves the block that ends highest to earlier places of the
 * best order. One more layout, best fit in the order of the program, takes O(n log n) and is always
 * complete, so a plan exists for a recording of any length.
 *
 * The other layouts take time proportional to the number of blocks that live at once. In long
 * recordings small blocks are most of the work and few of the bytes: blocks below a threshold then
 * share an arena on top, which best fit fills. All work is counted, not timed, so the plan does not
 * depend on the machine. */
#include "replay/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/status.h"
#include "replay/policies/fit.h"

#define WORK_DEFAULT UINT64_C(120000000)
/* Parts of `work` for each threshold; the search gets what is left. */
#define WORK_SHARE 4

/* Addresses of best fit end here: order.h sorts those below 2^57. */
#define ADDRESS_MAX (UINT64_C(1) << 56)
/* More live bytes than any device has, and far fewer than the addresses. */
#define LIVE_MAX (UINT64_C(1) << 50)

typedef struct span {
  uint64_t from, upto; /* bytes */
} span;

typedef struct packer {
  plan *p;
  uint64_t work;        /* left */
  uint64_t least_bytes; /* smaller blocks go to the arena */
  uint64_t arena_bytes;
  uint64_t *offsets, *best; /* by block */
  uint64_t *spare;          /* by block: the offsets before a trial */
  uint32_t *order, *trial;  /* blocks of at least least_bytes */
  uint32_t order_count;
  uint32_t *until; /* tree: the latest end of placed blocks below a node; leaves are blocks */
  uint32_t leaves;
  span *spans;
} packer;

enum { ORDER_SIZE, ORDER_AREA, ORDER_LIFE, ORDER_START, ORDERS };
static const char *const order_names[ORDERS] = {"by size", "by area", "by lifetime", "by start"};

static uint32_t block_life(const plan_block *b) {
  return b->until - b->step;
}

/* ---- lifetimes ---- */

static stow_status collect(plan *out, const steps *s) {
  uint32_t *block_of = malloc((s->id_count + 1) * sizeof *block_of);
  out->blocks = malloc((s->count + 1) * sizeof *out->blocks);
  if (block_of == NULL || out->blocks == NULL) {
    free(block_of);
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to plan %zu steps", s->count);
  }
  memset(block_of, 0xff, (s->id_count + 1) * sizeof *block_of);
  uint64_t live = 0;
  out->step_count = s->count;
  for (size_t i = 0; i < s->count; i++) {
    const step *at = &s->list[i];
    if (at->kind == STEP_FREE && block_of[at->id] != UINT32_MAX) {
      plan_block *b = &out->blocks[block_of[at->id]];
      b->until = (uint32_t)i;
      live -= b->bytes;
      block_of[at->id] = UINT32_MAX;
    }
    if ((at->kind != STEP_ALLOC && at->kind != STEP_FAIL) || at->bytes > POLICY_REQUEST_MAX)
      continue;
    uint64_t bytes = round_up(at->bytes + (at->bytes == 0), PLAN_ALIGN_BYTES);
    if (live + bytes > LIVE_MAX) {
      out->step_count = i;
      break;
    }
    out->blocks[out->count] =
        (plan_block){.bytes = bytes,
                     .step = (uint32_t)i,
                     .until = at->kind == STEP_FAIL ? (uint32_t)i + 1 : (uint32_t)s->count};
    if (at->kind == STEP_ALLOC) block_of[at->id] = out->count;
    out->count++;
    if (live + bytes > out->bound_bytes) out->bound_bytes = live + bytes;
    if (at->kind == STEP_ALLOC) live += bytes;
  }
  free(block_of);
  return STOW_OK;
}

/* ---- best fit in the order of the program ---- */

static int compare_ends(const void *a, const void *b) {
  const span *x = a, *y = b;
  if (x->from != y->from) return x->from < y->from ? -1 : 1;
  return (x->upto > y->upto) - (x->upto < y->upto);
}

/* Places all blocks smaller than `below` into packer.offsets and returns the height in *height. */
static stow_status place_in_time(packer *k, uint64_t below, uint64_t *height) {
  plan *p = k->p;
  uint32_t count = 0, next = 0;
  for (uint32_t i = 0; i < p->count; i++)
    if (p->blocks[i].bytes < below)
      k->spans[count++] = (span){p->blocks[i].until, i}; /* deaths, in order of time */
  qsort(k->spans, count, sizeof *k->spans, compare_ends);
  *height = 0;
  fit f;
  stow_status status = fit_init(&f, p->count);
  if (status == STOW_OK && fit_add(&f, 0, ADDRESS_MAX, 0) == 0) status = STOW_ERR_HOST_MEMORY;
  for (uint32_t i = 0; status == STOW_OK && i < p->count; i++) {
    const plan_block *b = &p->blocks[i];
    if (b->bytes >= below) continue;
    for (; next < count && k->spans[next].from <= b->step; next++)
      if (!fit_release(&f, (uint32_t)k->spans[next].upto)) status = STOW_ERR_HOST_MEMORY;
    uint32_t chunk = status == STOW_OK ? fit_find(&f, b->bytes) : 0;
    if (chunk == 0 || (f.chunks[chunk].bytes > b->bytes && !fit_split(&f, chunk, b->bytes))) {
      status = STOW_ERR_HOST_MEMORY;
      break;
    }
    fit_own(&f, chunk, i);
    k->offsets[i] = f.chunks[chunk].addr;
    if (k->offsets[i] + b->bytes > *height) *height = k->offsets[i] + b->bytes;
  }
  fit_free(&f);
  if (status != STOW_OK) return stow_fail(status, "no host memory to plan %u blocks", p->count);
  return STOW_OK;
}

/* ---- placing one block into a gap ---- */

static void mark_placed(packer *k, uint32_t index) {
  uint32_t until = k->p->blocks[index].until;
  for (uint32_t at = k->leaves + index; at > 0 && k->until[at] < until; at /= 2)
    k->until[at] = until;
}

/* Fills packer.spans with the placed blocks that live together with `b`; returns their number. */
static uint32_t neighbours(packer *k, const plan_block *b) {
  const plan *p = k->p;
  uint32_t open[80], depth = 0, found = 0;
  open[depth++] = 1;
  while (depth > 0) {
    uint32_t node = open[--depth];
    k->work -= k->work > 0;
    if (k->until[node] <= b->step) continue;
    if (node >= k->leaves) {
      uint32_t i = node - k->leaves;
      if (p->blocks[i].step < b->until)
        k->spans[found++] = (span){k->offsets[i], k->offsets[i] + p->blocks[i].bytes};
      continue;
    }
    /* The first block of the right half: if it starts too late, so does the rest. */
    uint32_t right = node * 2 + 1;
    uint64_t first = right;
    while (first < k->leaves) first *= 2;
    first -= k->leaves;
    if (first < p->count && p->blocks[first].step < b->until) open[depth++] = right;
    open[depth++] = node * 2;
  }
  return found;
}

/* Returns the lowest gap of `bytes`, or the tightest one; above all neighbours if there is none. */
static uint64_t find_gap(packer *k, uint32_t count, uint64_t bytes, bool tightest) {
  uint64_t top = 0, best = UINT64_MAX, best_gap = UINT64_MAX;
  for (uint32_t i = 0; i < count; i++) {
    const span *at = &k->spans[i];
    uint64_t gap = at->from > top ? at->from - top : 0;
    if (gap >= bytes && gap < best_gap) {
      best = top, best_gap = gap;
      if (!tightest) return best;
    }
    if (at->upto > top) top = at->upto;
  }
  return best != UINT64_MAX ? best : top;
}

/* Places the blocks of `sequence`. Gives up (false) when the height reaches `under`, or when no
 * work is left. */
static bool place_all(packer *k, const uint32_t *sequence, bool tightest, uint64_t under,
                      uint64_t *height) {
  const plan *p = k->p;
  *height = 0;
  memset(k->until, 0, (size_t)k->leaves * 2 * sizeof *k->until);
  k->work -= k->work < k->leaves / 4 ? k->work : k->leaves / 4;
  for (uint32_t i = 0; i < k->order_count; i++) {
    uint32_t index = sequence[i];
    const plan_block *b = &p->blocks[index];
    uint32_t count = neighbours(k, b);
    uint64_t cost = count;
    for (uint32_t n = count; n > 1; n /= 2) cost += count;
    k->work -= k->work < cost ? k->work : cost;
    if (k->work == 0) return false;
    qsort(k->spans, count, sizeof *k->spans, compare_ends);
    uint64_t at = find_gap(k, count, b->bytes, tightest);
    if (at + b->bytes >= under) return false;
    k->offsets[index] = at;
    if (at + b->bytes > *height) *height = at + b->bytes;
    mark_placed(k, index);
  }
  return true;
}

/* ---- orders ---- */

/* Sorts the order. qsort has no context argument, so it sorts pairs of key and block. */
static void sort_order(packer *k, int kind) {
  const plan *p = k->p;
  uint32_t count = 0;
  for (uint32_t i = 0; i < p->count; i++) {
    const plan_block *b = &p->blocks[i];
    if (b->bytes < k->least_bytes) continue;
    uint64_t units = b->bytes / PLAN_ALIGN_BYTES, life = block_life(b), key;
    switch (kind) {
    case ORDER_SIZE: key = units; break;
    case ORDER_AREA: key = units * life; break; /* below 2^31 * 2^32 */
    case ORDER_LIFE: key = life; break;
    default: key = UINT32_MAX - b->step; break;
    }
    k->spans[count++] = (span){UINT64_MAX - key, i};
  }
  qsort(k->spans, count, sizeof *k->spans, compare_ends);
  for (uint32_t i = 0; i < count; i++) k->order[i] = (uint32_t)k->spans[i].upto;
  k->order_count = count;
}

/* Keeps packer.offsets as the best layout: large blocks at the bottom, the arena above. */
static void keep(packer *k, const uint64_t *arena, uint64_t height, const char *name) {
  plan *p = k->p;
  for (uint32_t i = 0; i < p->count; i++)
    k->best[i] = p->blocks[i].bytes < k->least_bytes ? height + arena[i] : k->offsets[i];
  p->height_bytes = height + k->arena_bytes;
  p->found_by = name;
}

/* ---- search ---- */

static uint64_t random_next(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

static void swap_offsets(packer *k) {
  uint64_t *other = k->spare;
  k->spare = k->offsets;
  k->offsets = other;
}

/* Moves the block that ends highest to a random earlier place of the order, and keeps the order if
 * the layout does not grow. The sequence is fixed. */
static void search(packer *k, const uint64_t *arena, bool tightest) {
  plan *p = k->p;
  uint64_t state = 0x9e3779b97f4a7c15u, height;
  uint64_t current = UINT64_MAX;
  if (!place_all(k, k->order, tightest, UINT64_MAX, &current)) return;
  while (k->work > 0 && p->height_bytes > p->bound_bytes) {
    uint32_t top = 0;
    for (uint32_t i = 0; i < k->order_count; i++)
      if (k->offsets[k->order[i]] + p->blocks[k->order[i]].bytes == current) top = i;
    if (top == 0) top = (uint32_t)(random_next(&state) % k->order_count);
    uint32_t to = (uint32_t)(random_next(&state) % (top + 1));
    memcpy(k->trial, k->order, k->order_count * sizeof *k->trial);
    memmove(k->trial + to + 1, k->trial + to, (top - to) * sizeof *k->trial);
    k->trial[to] = k->order[top];
    /* A second move of any block, sometimes: one alone may not be enough. */
    if ((random_next(&state) & 3) == 0) {
      uint32_t a = (uint32_t)(random_next(&state) % k->order_count);
      uint32_t b = (uint32_t)(random_next(&state) % k->order_count), moved = k->trial[a];
      k->trial[a] = k->trial[b], k->trial[b] = moved;
    }
    swap_offsets(k);
    k->work -= k->work < k->order_count ? k->work : k->order_count;
    if (!place_all(k, k->trial, tightest, current + 1, &height)) {
      swap_offsets(k);
      continue;
    }
    uint32_t *kept = k->trial;
    k->trial = k->order, k->order = kept;
    current = height;
    if (height + k->arena_bytes < p->height_bytes) keep(k, arena, height, "by search");
  }
}

/* Tries all orders with blocks below `least` in the arena. Sets *order and *tightest to the best
 * and returns true if one of them is the best so far. */
static stow_status try_orders(packer *k, uint64_t least, uint64_t *arena, uint64_t work, int *best,
                              bool *best_tightest, bool *better) {
  plan *p = k->p;
  k->least_bytes = least;
  STOW_TRY(place_in_time(k, least, &k->arena_bytes));
  for (uint32_t i = 0; i < p->count; i++) arena[i] = k->offsets[i];
  uint64_t rest = k->work - work;
  k->work = work;
  *better = false;
  for (int i = 0; i < ORDERS * 2 && k->work > 0 && p->height_bytes > p->bound_bytes; i++) {
    uint64_t height;
    if (p->height_bytes <= k->arena_bytes) break;
    sort_order(k, i / 2);
    if (!place_all(k, k->order, i % 2 != 0, p->height_bytes - k->arena_bytes, &height)) continue;
    keep(k, arena, height, order_names[i / 2]);
    *best = i / 2, *best_tightest = i % 2 != 0, *better = true;
  }
  k->work += rest;
  return STOW_OK;
}

static stow_status pack(packer *k, uint64_t *arena) {
  plan *p = k->p;
  uint64_t height, least = 0;
  STOW_TRY(place_in_time(k, UINT64_MAX, &height));
  keep(k, arena, height, "in time");
  int best = ORDER_SIZE;
  bool tightest = false;
  uint64_t share = k->work / WORK_SHARE;
  static const uint64_t parts[] = {0, 4096, 512}; /* fractions of the bound; 0: no arena */
  for (size_t i = 0; i < sizeof parts / sizeof parts[0] && p->height_bytes > p->bound_bytes; i++) {
    bool better;
    uint64_t threshold = parts[i] != 0 ? p->bound_bytes / parts[i] : 0;
    STOW_TRY(try_orders(k, threshold, arena, share, &best, &tightest, &better));
    if (better) least = threshold;
  }
  if (p->height_bytes <= p->bound_bytes) return STOW_OK;
  k->least_bytes = least;
  STOW_TRY(place_in_time(k, least, &k->arena_bytes));
  for (uint32_t i = 0; i < p->count; i++) arena[i] = k->offsets[i];
  sort_order(k, best);
  if (k->order_count > 1) search(k, arena, tightest);
  return STOW_OK;
}

stow_status plan_build(plan *out, const steps *s, uint64_t work) {
  *out = (plan){.found_by = "in time"};
  STOW_TRY(collect(out, s));
  if (out->count == 0) return STOW_OK;
  packer k = {.p = out, .work = work != 0 ? work : WORK_DEFAULT, .leaves = 1};
  while (k.leaves < out->count) k.leaves *= 2;
  size_t n = out->count;
  uint64_t *arena = calloc(n, sizeof *arena);
  k.offsets = calloc(n, sizeof *k.offsets);
  k.best = calloc(n, sizeof *k.best);
  k.spare = calloc(n, sizeof *k.spare);
  k.order = calloc(n, sizeof *k.order);
  k.trial = calloc(n, sizeof *k.trial);
  k.until = calloc((size_t)k.leaves * 2, sizeof *k.until);
  k.spans = calloc(n, sizeof *k.spans);
  stow_status status = STOW_OK;
  if (arena == NULL || k.offsets == NULL || k.best == NULL || k.spare == NULL || k.order == NULL ||
      k.trial == NULL || k.until == NULL || k.spans == NULL)
    status = stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to plan %u blocks", out->count);
  if (status == STOW_OK) status = pack(&k, arena);
  for (uint32_t i = 0; status == STOW_OK && i < out->count; i++) out->blocks[i].offset = k.best[i];
  free(arena);
  free(k.offsets);
  free(k.best);
  free(k.spare);
  free(k.order);
  free(k.trial);
  free(k.until);
  free(k.spans);
  return status;
}

void plan_free(plan *p) {
  free(p->blocks);
  *p = (plan){0};
}

/* Returns the step at which the most bytes live for the first time. */
static uint32_t peak_step(const plan *p, span *ends) {
  for (uint32_t i = 0; i < p->count; i++) ends[i] = (span){p->blocks[i].until, i};
  qsort(ends, p->count, sizeof *ends, compare_ends);
  uint64_t live = 0, most = 0;
  uint32_t next = 0, peak = 0;
  for (uint32_t i = 0; i < p->count; i++) {
    for (; ends[next].from <= p->blocks[i].step; next++) live -= p->blocks[ends[next].upto].bytes;
    live += p->blocks[i].bytes;
    if (live > most) most = live, peak = p->blocks[i].step;
  }
  return peak;
}

uint64_t plan_largest_hole(const plan *p) {
  span *spans = malloc((p->count + 1) * sizeof *spans);
  if (spans == NULL) return UINT64_MAX;
  uint32_t peak = peak_step(p, spans), count = 0;
  for (uint32_t i = 0; i < p->count; i++) {
    const plan_block *b = &p->blocks[i];
    if (b->step <= peak && b->until > peak)
      spans[count++] = (span){b->offset, b->offset + b->bytes};
  }
  qsort(spans, count, sizeof *spans, compare_ends);
  uint64_t top = 0, hole = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (spans[i].from > top && spans[i].from - top > hole) hole = spans[i].from - top;
    if (spans[i].upto > top) top = spans[i].upto;
  }
  if (p->height_bytes > top && p->height_bytes - top > hole) hole = p->height_bytes - top;
  free(spans);
  return hole;
}
