/* Prefetch, the readers' side: tasks, and their order. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/uio.h>

#include "base/assert.h"
#include "base/huge_alloc.h"
#include "data/prefetch_read.h"

/* ---- batches and windows ---- */

/* Returns the index of the batch's first row, at most the end of what the batches take. */
static uint64_t batch_first(const prefetch *p, uint64_t batch) {
  uint64_t at = batch * p->plan->batch_rows;
  return at < p->plan->rank_rows ? at : p->plan->rank_rows;
}

uint64_t prefetch_rows(const prefetch *p) {
  return batch_first(p, p->plan->batch_count);
}

uint64_t prefetch_window_of(const prefetch *p, uint64_t batch) {
  return rank_order_window_of(p->rank_order, batch_first(p, batch));
}

uint64_t prefetch_window_count(const prefetch *p) {
  uint64_t last = prefetch_rows(p);
  return last == 0 ? 0 : rank_order_window_of(p->rank_order, last - 1) + 1;
}

static bool window_ready(const prefetch *p, uint64_t number) {
  const window *w = &p->windows[number % p->plan->windows];
  return w->number == number && w->drawn && w->loaded == w->at.end - w->at.first;
}

/* ---- tasks: called without the lock ---- */

/* Reads positions `first` to `end` of one part into memory for exactly these rows. */
static stow_status read_places(prefetch *p, rows *part, uint64_t first, uint64_t end, char *to) {
  while (first < end) {
    uint64_t row, run = sequence_run(&p->order, first, &row);
    if (run > end - first) run = end - first;
    STOW_TRY(rows_read(part, row, run, to));
    first += run;
    to += run * part->row_bytes;
  }
  return STOW_OK;
}

/* Reads rows `first` to `end` of the order. */
static stow_status read_in_order(prefetch *p, rows *part, uint64_t first, uint64_t end, char *to) {
  while (first < end) {
    uint64_t place, run = rank_order_run(p->rank_order, first, &place);
    if (run > end - first) run = end - first;
    STOW_TRY(read_places(p, part, place, place + run, to));
    first += run;
    to += run * part->row_bytes;
  }
  return STOW_OK;
}

/* Fills a whole batch of one part. If the buffer has room, its rows get the same page alignment as
 * in the file, so that a direct read goes straight into it. */
static stow_status fill_one(prefetch *p, rows *part, uint32_t number, uint64_t batch) {
  uint64_t first = batch_first(p, batch), end = batch_first(p, batch + 1), place, offset;
  void **data = &p->slots[batch % p->plan->ahead].data[number];
  bool whole = rank_order_run(p->rank_order, first, &place) >= end - first;
  if (!whole || !plan_room(p->plan, number) || !rows_offset(part, place, &offset) ||
      offset % BUFFER_POOL_ALIGN != 0)
    return read_in_order(p, part, first, end, *data);
  buffer_pool_kept kept;
  *data = buffer_pool_shift(*data, (size_t)(offset % SOURCE_DIRECT_UNIT), &kept);
  part->from.from->room = true;
  stow_status status = read_places(p, part, place, place + (end - first), *data);
  part->from.from->room = false;
  buffer_pool_settle(*data, &kept);
  return status;
}

static stow_status fill_from_file(prefetch *p, reader *r, uint64_t batch, uint64_t count) {
  for (uint32_t i = 0; i < p->plan->parts; i++) {
    rows *part = &r->parts[i];
    uint64_t first = batch_first(p, batch), end = batch_first(p, batch + count);
    if (count == 1) {
      STOW_TRY(fill_one(p, part, i, batch));
      continue;
    }
    STOW_TRY(read_in_order(p, part, first, end, r->stage));
    const char *from = r->stage;
    for (uint64_t b = batch; b < batch + count; b++) {
      size_t bytes = (size_t)((batch_first(p, b + 1) - batch_first(p, b)) * part->row_bytes);
      memcpy(p->slots[b % p->plan->ahead].data[i], from, bytes);
      from += bytes;
    }
  }
  return STOW_OK;
}

/* The rows of one batch that a task fills. */
typedef struct batch_range {
  char *data; /* of the first */
  uint64_t count;
} batch_range;

/* Returns the rows from `first` on that are in its batch, before `end`. */
static batch_range range_in_batch(const prefetch *p, uint32_t part, uint64_t first, uint64_t end) {
  uint64_t batch = first / p->plan->batch_rows, stop = batch_first(p, batch + 1);
  char *data = p->slots[batch % p->plan->ahead].data[part];
  return (batch_range){data + first % p->plan->batch_rows * p->plan->row_bytes[part],
                       (stop < end ? stop : end) - first};
}

/* Copies rows `first` to `end` of the order from the window that holds them. `numbers` are their
 * rows in the window. */
static void gather(prefetch *p, uint32_t part, const char *from, const uint32_t *numbers,
                   uint64_t first, uint64_t end) {
  while (first < end) {
    batch_range to = range_in_batch(p, part, first, end);
    shuffle_gather(to.data, from, numbers, to.count, (size_t)p->plan->row_bytes[part]);
    numbers += to.count;
    first += to.count;
  }
}

static void fill_from_window(prefetch *p, const window *w, uint64_t first, uint64_t end) {
  const uint32_t *numbers = w->permutation + w->at.slot + (first - w->at.from);
  for (uint32_t i = 0; i < p->plan->parts; i++) gather(p, i, w->rows[i], numbers, first, end);
}

static stow_status load_piece(prefetch *p, reader *r, window *w, uint64_t first, uint64_t count) {
  for (uint32_t i = 0; i < p->plan->parts; i++)
    STOW_TRY(read_places(p, &r->parts[i], first, first + count,
                         w->rows[i] + (first - w->at.first) * p->plan->row_bytes[i]));
  return STOW_OK;
}

static void draw_window(const prefetch *p, uint32_t *permutation, const rank_order_window *at) {
  shuffle_draw(permutation, (uint32_t)(at->end - at->first),
               shuffle_key(p->seed, p->epoch, at->first + 1));
}

/* ---- a reader's own window ---- */

/* Reads the positions of one part that have a place in a batch. */
static stow_status read_scattered(prefetch *p, rows *part, const rank_order_window *at,
                                  struct iovec *to) {
  for (uint64_t place = at->first; place < at->end;) {
    uint64_t row, from = 0, run = sequence_run(&p->order, place, &row);
    if (run > at->end - place) run = at->end - place;
    if (run > SOURCE_PARTS_MAX) run = SOURCE_PARTS_MAX;
    while (from < run && to[from].iov_base == NULL) from++;
    uint64_t stop = from;
    while (stop < run && to[stop].iov_base != NULL) stop++;
    if (stop > from) STOW_TRY(rows_read_parts(part, row + from, to + from, (size_t)(stop - from)));
    place += stop;
    to += stop;
  }
  return STOW_OK;
}

/* Reads rows `first` to `end` of the order straight into their batches. */
static stow_status scatter(prefetch *p, reader *r, uint32_t part, const rank_order_window *at,
                           const uint32_t *numbers, uint64_t first, uint64_t end) {
  ASSERT(rows_reads_parts(&r->parts[part])); /* the scratch file of a shuffle on disk */
  struct iovec *places = r->own.places;
  size_t bytes = (size_t)p->plan->row_bytes[part];
  if (end - first < at->end - at->first)
    memset(places, 0, (size_t)(at->end - at->first) * sizeof *places);
  while (first < end) {
    batch_range to = range_in_batch(p, part, first, end);
    for (uint64_t i = 0; i < to.count; i++)
      places[*numbers++] = (struct iovec){to.data + i * bytes, bytes};
    first += to.count;
  }
  return read_scattered(p, &r->parts[part], at, places);
}

/* Reads the window that holds rows `first` to `end` of the order, and fills their batches. */
static stow_status fill_from_own_window(prefetch *p, reader *r, uint64_t first, uint64_t end) {
  const rank_order *order = p->rank_order;
  rank_order_window at = rank_order_window_at(order, rank_order_window_of(order, first));
  const uint32_t *numbers = r->own.permutation + at.slot + (first - at.from);
  draw_window(p, r->own.permutation, &at);
  for (uint32_t i = 0; i < p->plan->parts; i++) {
    if (plan_scatters(p->plan, i)) {
      STOW_TRY(scatter(p, r, i, &at, numbers, first, end));
      continue;
    }
    STOW_TRY(read_places(p, &r->parts[i], at.first, at.end, r->own.rows));
    gather(p, i, r->own.rows, numbers, first, end);
  }
  return STOW_OK;
}

/* Advises the kernel: random reads must not trigger readahead, and a file too large for the cache
 * is not cached. */
static void advise(const prefetch *p, const reader *r, uint32_t number) {
  source *from = r->parts[number].from.from;
  if (from->fd < 0) return;
  from->drop = p->plan->drop_cache;
  if (p->plan->drop_bytes < from->drop_bytes) from->drop_bytes = p->plan->drop_bytes;
  uint64_t read_bytes = p->plan->group * p->plan->batch_rows * p->plan->row_bytes[number];
  if (r->bounce != NULL && (p->plan->shuffle || read_bytes >= SOURCE_DIRECT_LEAST))
    source_go_direct(from, r->bounce, (size_t)p->plan->bounce_bytes);
  if (p->plan->shuffle)
    posix_fadvise(from->fd, 0, 0, POSIX_FADV_RANDOM);
  else
    source_share(from, p->readers[0].parts[number].from.from);
}

static stow_status make_own_window(const plan *made, own_window *own) {
  if (own->rows != NULL) return STOW_OK;
  own->rows = huge_alloc(plan_own_bytes(made));
  if (own->rows == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a reader");
  own->places = (struct iovec *)(void *)(own->rows + plan_own_rows_bytes(made));
  own->permutation = (uint32_t *)(void *)(own->places + made->window_rows);
  return STOW_OK;
}

static stow_status make_buffers(const plan *made, reader *r) {
  if (made->bounce_bytes > 0 && r->bounce == NULL) {
    r->bounce = huge_alloc(made->bounce_bytes);
    if (r->bounce == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a reader");
  }
  if (made->stage_bytes > 0 && r->stage == NULL) {
    r->stage = aligned_alloc(64, (size_t)made->stage_bytes);
    if (r->stage == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a reader");
  }
  return made->own_windows ? make_own_window(made, &r->own) : STOW_OK;
}

stow_status prefetch_open_parts(prefetch *p, reader *r) {
  STOW_TRY(make_buffers(p->plan, r));
  for (uint32_t i = 0; i < p->plan->parts; i++) {
    rows *part = &r->parts[i];
    const origin *from = p->disk != NULL ? disk_shuffle_origin(p->disk, i) : &p->origins[i];
    if (part->opened_from == NULL) STOW_TRY(rows_open(part, from));
    STOW_TRY(rows_same(part, &p->readers[0].parts[i]));
    part->scratch_bytes = (size_t)p->plan->scratch_bytes;
    advise(p, r, i);
  }
  return STOW_OK;
}

/* ---- the readers ---- */

static void note_failure(prefetch *p, stow_status status) {
  if (p->failed != STOW_OK) return;
  p->failed = status;
  snprintf(p->message, sizeof p->message, "%s", stow_status_message());
}

static void end_task(prefetch *p, stow_status status) {
  if (status != STOW_OK) note_failure(p, status);
  if (--p->busy == 0 && (p->failed != STOW_OK || p->paused)) pthread_cond_broadcast(&p->ready);
}

/* Returns the rows of a window that a reader may read by itself now: all, or those that have
 * buffers if no more are to be had. */
static uint64_t claimable_of_own(const prefetch *p) {
  if (p->failed != STOW_OK) return 0;
  const rank_order *order = p->rank_order;
  uint64_t end = rank_order_window_at(order, rank_order_window_of(order, p->claimed)).to;
  uint64_t last = prefetch_rows(p), armed = batch_first(p, p->armed);
  if (end > last) end = last;
  if (end > armed) end = p->scarce && armed > p->claimed ? armed : p->claimed;
  return end - p->claimed;
}

uint64_t prefetch_claimable(const prefetch *p) {
  uint64_t last = prefetch_rows(p);
  if (p->claimed >= last) return 0;
  if (p->plan->own_windows) return claimable_of_own(p);
  if (p->plan->window_rows == 0) {
    if (p->failed != STOW_OK) return 0; /* it failed before `claimed` */
  } else {
    uint64_t number = rank_order_window_of(p->rank_order, p->claimed);
    if (!window_ready(p, number)) return 0;
    uint64_t end = p->windows[number % p->plan->windows].at.to;
    if (end < last) last = end;
  }
  uint64_t stop = batch_first(p, p->claimed / p->plan->batch_rows + p->plan->group);
  uint64_t armed = batch_first(p, p->armed);
  if (stop > last) stop = last;
  if (stop > armed) stop = p->scarce && armed > p->claimed ? armed : p->claimed;
  return stop - p->claimed;
}

bool prefetch_alone(const prefetch *p) {
  return p->plan->one_core && p->plan->caller_reads && !p->waits;
}

/* Returns how often this thread has blocked: a read from the page cache does not. */
static long times_waited(void) {
  struct rusage use;
  return getrusage(RUSAGE_THREAD, &use) == 0 ? use.ru_nvcsw : 0;
}

/* Counts rows `first` to `end` as filled; a batch is ready once all of its rows are. */
static void mark_filled(prefetch *p, uint64_t first, uint64_t end) {
  for (uint64_t batch = first / p->plan->batch_rows; batch_first(p, batch) < end; batch++) {
    slot *s = &p->slots[batch % p->plan->ahead];
    uint64_t from = batch_first(p, batch), to = batch_first(p, batch + 1);
    s->filled += (end < to ? end : to) - (first > from ? first : from);
    if (s->filled < to - from) continue;
    s->state = SLOT_READY;
    if (batch == p->taken) pthread_cond_signal(&p->ready);
  }
}

static void run_fill(prefetch *p, reader *r, uint64_t count) {
  uint64_t first = p->claimed, end = first + count, batch = first / p->plan->batch_rows;
  bool own = p->plan->own_windows, windowed = p->plan->window_rows > 0 && !own;
  window *w =
      windowed ? &p->windows[rank_order_window_of(p->rank_order, first) % p->plan->windows] : NULL;
  p->claimed = end;
  for (uint64_t b = batch; batch_first(p, b) < end; b++)
    p->slots[b % p->plan->ahead].state = SLOT_FILLING;
  pthread_mutex_unlock(&p->guard);
  stow_status status = STOW_OK;
  long waited = times_waited();
  if (windowed)
    fill_from_window(p, w, first, end);
  else if (own)
    status = fill_from_own_window(p, r, first, end);
  else
    status = fill_from_file(p, r, batch, (count - 1) / p->plan->batch_rows + 1);
  waited = times_waited() - waited;
  pthread_mutex_lock(&p->guard);
  if (!windowed) p->waits = waited > 0;
  if (windowed) {
    w->unfilled -= count;
    if (w->unfilled == 0) pthread_cond_broadcast(&p->work); /* the window can be reused */
  }
  if (status == STOW_OK) mark_filled(p, first, end);
  end_task(p, status);
}

uint64_t prefetch_unfilled(const prefetch *p, const rank_order_window *w) {
  uint64_t last = prefetch_rows(p), end = w->to < last ? w->to : last;
  uint64_t first = w->from > p->claimed ? w->from : p->claimed;
  return first < end ? end - first : 0;
}

/* Places the rows of a window so that direct reads go straight into it. */
static void place_rows(const prefetch *p, const reader *r, window *w) {
  uint64_t row, offset;
  sequence_run(&p->order, w->at.first, &row);
  for (uint32_t i = 0; i < p->plan->parts; i++) {
    bool shifts = plan_shift(p->plan) > 0 && rows_offset(&r->parts[i], row, &offset);
    w->rows[i] = w->memory[i] + (shifts ? offset % SOURCE_DIRECT_UNIT : 0);
  }
}

/* Returns the window to read next, if one of the two is free. */
static window *window_to_load(prefetch *p, const reader *r) {
  if (p->plan->window_rows == 0 || p->plan->own_windows) return NULL;
  if (p->next_window >= prefetch_window_count(p)) return NULL;
  window *w = &p->windows[p->next_window % p->plan->windows];
  if (w->number != p->next_window) {
    if (w->number != UINT64_MAX && w->unfilled > 0) return NULL;
    w->number = p->next_window;
    w->at = rank_order_window_at(p->rank_order, w->number);
    w->claimed = w->at.first;
    w->loaded = 0;
    w->drawing = w->drawn = false;
    w->unfilled = prefetch_unfilled(p, &w->at);
    place_rows(p, r, w);
  }
  return w;
}

static void run_draw(prefetch *p, window *w) {
  w->drawing = true;
  pthread_mutex_unlock(&p->guard);
  draw_window(p, w->permutation, &w->at);
  pthread_mutex_lock(&p->guard);
  w->drawn = true;
  if (window_ready(p, w->number)) pthread_cond_broadcast(&p->work);
  end_task(p, STOW_OK);
}

static void run_load(prefetch *p, reader *r, window *w) {
  uint64_t first = w->claimed, row, run = sequence_run(&p->order, first, &row);
  if (run > p->plan->piece_rows) run = p->plan->piece_rows;
  while (run < p->plan->piece_least && first + run < w->at.end) /* several small blocks */
    run += sequence_run(&p->order, first + run, &row);
  if (run > w->at.end - first) run = w->at.end - first;
  w->claimed += run;
  if (w->claimed == w->at.end && w->drawing) p->next_window++;
  pthread_mutex_unlock(&p->guard);
  long waited = times_waited();
  stow_status status = load_piece(p, r, w, first, run);
  waited = times_waited() - waited;
  pthread_mutex_lock(&p->guard);
  p->waits = waited > 0;
  if (status == STOW_OK) w->loaded += run;
  if (window_ready(p, w->number)) pthread_cond_broadcast(&p->work);
  end_task(p, status);
}

/* Builds the scratch file and opens the first reader's files; the other readers compare theirs. */
static void run_build(prefetch *p) {
  p->building = true;
  p->busy++;
  pthread_mutex_unlock(&p->guard);
  stow_status status = disk_shuffle_build(p->disk);
  if (status == STOW_OK) status = prefetch_open_parts(p, &p->readers[0]);
  pthread_mutex_lock(&p->guard);
  p->building = false;
  p->built = p->readers[0].opened = status == STOW_OK;
  pthread_cond_broadcast(&p->work);
  pthread_cond_broadcast(&p->ready); /* the caller gets buffers only now */
  end_task(p, status);
}

bool prefetch_run_task(prefetch *p, reader *r) {
  if (p->paused) return false;
  if (!p->built) {
    if (p->building || p->failed != STOW_OK || p->claimed >= prefetch_rows(p)) return false;
    run_build(p);
    return true;
  }
  if (!r->opened && p->failed == STOW_OK && p->claimed < prefetch_rows(p)) {
    p->busy++;
    pthread_mutex_unlock(&p->guard);
    stow_status status = prefetch_open_parts(p, r);
    pthread_mutex_lock(&p->guard);
    r->opened = status == STOW_OK;
    end_task(p, status);
    return true;
  }
  if (!r->opened) return false;
  uint64_t count = prefetch_claimable(p);
  /* If a window that is not loaded yet failed, the loaded one can still be used. */
  window *w = count == 0 && p->failed == STOW_OK ? window_to_load(p, r) : NULL;
  if (count == 0 && w == NULL) return false;
  p->busy++;
  if (count > 0) {
    run_fill(p, r, count);
  } else if (!w->drawing) {
    if (w->claimed == w->at.end)
      p->next_window++; /* kept since the last epoch: only its order is
                         * drawn again */
    run_draw(p, w);
  } else {
    run_load(p, r, w);
  }
  return true;
}

void *prefetch_read_ahead(void *argument) {
  reader *r = argument;
  prefetch *p = r->owner;
  pthread_mutex_lock(&p->guard);
  while (!p->stop)
    if (!prefetch_run_task(p, r)) pthread_cond_wait(&p->work, &p->guard);
  pthread_mutex_unlock(&p->guard);
  return NULL;
}
