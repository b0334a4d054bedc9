/* Rank order: see rank_order.h. */
#include "data/rank_order.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/status.h"

enum { WORLD_MOST = 1 << 16 }; /* of a state: bounds what a damaged one can make us allocate */

/* Parts of shares, one after another. */
typedef struct parts {
  stretch *list;
  size_t count;
  uint64_t rows;
} parts;

static uint64_t least(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

static void append(parts *to, stretch s) {
  if (s.from == s.to) return;
  s.index = to->rows;
  to->rows += s.to - s.from;
  to->list[to->count++] = s;
}

/* Appends rows `first` to `end` of `from`. */
static void append_range(parts *to, const parts *from, uint64_t first, uint64_t end) {
  for (size_t i = 0; i < from->count; i++) {
    stretch s = from->list[i];
    uint64_t at = s.index, stop = at + (s.to - s.from);
    if (stop <= first || at >= end) continue;
    if (stop > end) s.to -= stop - end;
    if (at < first) s.from += first - at;
    append(to, s);
  }
}

static stow_status make_parts(parts *p, size_t capacity) {
  *p = (parts){.list = malloc(capacity * sizeof *p->list)};
  if (p->list != NULL) return STOW_OK;
  return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for the order of batches");
}

static stow_status check_earlier(const stow_batches_earlier *e) {
  if (e->world >= 1 && e->world <= WORLD_MOST && e->batch_rows >= 1) return STOW_OK;
  return stow_fail(STOW_ERR_INVALID,
                   "the state continues a world of %" PRIu64 " with batches of %" PRIu64
                   " rows: must be 1 to %d, and at least 1",
                   e->world, e->batch_rows, (int)WORLD_MOST);
}

/* Replaces `left` by what remains of it after every rank of that world took its batches. */
static stow_status take_batches(parts *left, const stow_batches_earlier *e, bool first_world) {
  STOW_TRY(check_earlier(e));
  uint64_t taken;
  if (!checked_mul(&taken, e->batch_rows, e->next_batch)) taken = UINT64_MAX;
  parts after;
  STOW_TRY(make_parts(&after, left->count + (size_t)e->world));
  for (uint32_t rank = 0; rank < e->world; rank++) {
    uint64_t first, end;
    shard_range(&(shard){rank, (uint32_t)e->world}, left->rows, &first, &end);
    uint64_t done = least(taken, end - first);
    if (first_world)
      append(&after, (stretch){.first = first, .end = end, .from = done, .to = end - first});
    else
      append_range(&after, left, first + done, end);
  }
  free(left->list);
  *left = after;
  return STOW_OK;
}

/* Keeps this rank's part of what is left. */
static stow_status keep_share(rank_order *c, const parts *left, const shard *s, bool first_world) {
  parts mine;
  uint64_t first, end;
  STOW_TRY(make_parts(&mine, left->count + 1));
  shard_range(s, left->rows, &first, &end);
  if (first_world)
    append(&mine, (stretch){.first = first, .end = end, .from = 0, .to = end - first});
  else
    append_range(&mine, left, first, end);
  *c = (rank_order){
      .stretches = mine.list, .count = mine.count, .rows = mine.rows, .total = left->rows};
  for (size_t i = 0; i < mine.count; i++)
    c->share_rows = most(c->share_rows, mine.list[i].end - mine.list[i].first);
  return STOW_OK;
}

stow_status rank_order_make(rank_order *c, uint64_t rows, const shard *s,
                            const stow_batches_earlier *earlier, uint32_t earlier_count) {
  parts left = {.rows = rows};
  stow_status status = STOW_OK;
  for (uint32_t i = 0; i < earlier_count && status == STOW_OK; i++)
    status = take_batches(&left, &earlier[i], i == 0);
  if (status == STOW_OK) status = keep_share(c, &left, s, earlier_count == 0);
  free(left.list);
  return status;
}

void rank_order_free(rank_order *c) {
  free(c->stretches);
  *c = (rank_order){0};
}

/* ---- windows ---- */

void rank_order_divide(rank_order *c, uint64_t window_rows) {
  c->window_rows = window_rows;
  c->windows = 0;
  for (size_t i = 0; window_rows > 0 && i < c->count; i++) {
    stretch *s = &c->stretches[i];
    s->window = c->windows;
    c->windows += (s->to - 1) / window_rows - s->from / window_rows + 1;
  }
}

/* Returns the last stretch whose first row (or window) is not behind that number. */
static const stretch *find(const rank_order *c, uint64_t number, bool window) {
  size_t low = 0, high = c->count;
  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;
    const stretch *s = &c->stretches[middle];
    if ((window ? s->window : s->index) <= number)
      low = middle;
    else
      high = middle;
  }
  return &c->stretches[low];
}

uint64_t rank_order_run(const rank_order *c, uint64_t index, uint64_t *place) {
  const stretch *s = find(c, index, false);
  uint64_t within = s->from + (index - s->index);
  *place = s->first + within;
  return s->to - within;
}

uint64_t rank_order_window_of(const rank_order *c, uint64_t index) {
  const stretch *s = find(c, index, false);
  uint64_t within = s->from + (index - s->index);
  return s->window + within / c->window_rows - s->from / c->window_rows;
}

rank_order_window rank_order_window_at(const rank_order *c, uint64_t number) {
  const stretch *s = find(c, number, true);
  uint64_t start = (number - s->window + s->from / c->window_rows) * c->window_rows;
  uint64_t stop = least(c->window_rows, (s->end - s->first) - start) + start;
  uint64_t from = most(start, s->from), to = least(stop, s->to);
  return (rank_order_window){.first = s->first + start,
                             .end = s->first + stop,
                             .from = s->index + (from - s->from),
                             .to = s->index + (to - s->from),
                             .slot = from - start};
}
