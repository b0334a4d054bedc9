/* Prefetch, the readers' side: tasks, and their order. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/uio.h>

#include "data/huge_alloc.h"
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

static bool reads_parts(const prefetch *p, const reader *r, const window *w, uint32_t part) {
  return w->scattered && plan_scatters(p->plan, part) && rows_reads_parts(&r->parts[part]);
}

/* Copies rows `first` to `end` of the order from the window that holds them. */
static void fill_from_window(prefetch *p, const reader *r, const window *w, uint64_t first,
                             uint64_t end) {
  while (first < end) {
    uint64_t batch = first / p->plan->batch_rows, start = batch * p->plan->batch_rows;
    uint64_t stop = start + p->plan->batch_rows < end ? start + p->plan->batch_rows : end;
    const uint32_t *numbers = w->permutation + w->at.slot + (first - w->at.from);
    for (uint32_t i = 0; i < p->plan->parts; i++) {
      if (reads_parts(p, r, w, i)) continue;
      size_t bytes = (size_t)p->plan->row_bytes[i];
      char *to = p->slots[batch % p->plan->ahead].data[i];
      shuffle_gather(to + (first - start) * bytes, w->rows[i], numbers, stop - first, bytes);
    }
    first = stop;
  }
}

/* Reads positions `first` to `end` of one part, each row to its place in its batch. */
static stow_status scatter_places(prefetch *p, rows *part, uint32_t number, const window *w,
                                  uint64_t first, uint64_t end) {
  struct iovec to[SOURCE_PARTS_MAX];
  size_t bytes = (size_t)part->row_bytes;
  while (first < end) {
    uint64_t row, run = sequence_run(&p->order, first, &row);
    if (run > end - first) run = end - first;
    if (run > SOURCE_PARTS_MAX) run = SOURCE_PARTS_MAX;
    const uint32_t *places = w->inverse + (first - w->at.first);
    for (uint64_t i = 0; i < run; i++) {
      uint64_t index = w->at.from + places[i], batch = index / p->plan->batch_rows;
      char *data = p->slots[batch % p->plan->ahead].data[number];
      to[i] = (struct iovec){data + (index - batch * p->plan->batch_rows) * bytes, bytes};
    }
    STOW_TRY(rows_read_parts(part, row, to, (size_t)run));
    first += run;
  }
  return STOW_OK;
}

static stow_status load_piece(prefetch *p, reader *r, window *w, uint64_t first, uint64_t count) {
  for (uint32_t i = 0; i < p->plan->parts; i++) {
    char *to = w->rows[i] + (first - w->at.first) * p->plan->row_bytes[i];
    STOW_TRY(reads_parts(p, r, w, i) ? scatter_places(p, &r->parts[i], i, w, first, first + count)
                                     : read_places(p, &r->parts[i], first, first + count, to));
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

static stow_status make_buffers(const plan *made, reader *r) {
  if (made->bounce_bytes > 0 && r->bounce == NULL) {
    r->bounce = huge_alloc(made->bounce_bytes);
    if (r->bounce == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a reader");
  }
  if (made->stage_bytes > 0 && r->stage == NULL) {
    r->stage = aligned_alloc(64, (size_t)made->stage_bytes);
    if (r->stage == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a reader");
  }
  return STOW_OK;
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

uint64_t prefetch_claimable(const prefetch *p) {
  uint64_t last = prefetch_rows(p);
  if (p->claimed >= last) return 0;
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
  bool windowed = p->plan->window_rows > 0;
  window *w =
      windowed ? &p->windows[rank_order_window_of(p->rank_order, first) % p->plan->windows] : NULL;
  p->claimed = end;
  for (uint64_t b = batch; batch_first(p, b) < end; b++)
    p->slots[b % p->plan->ahead].state = SLOT_FILLING;
  pthread_mutex_unlock(&p->guard);
  stow_status status = STOW_OK;
  long waited = times_waited();
  if (windowed)
    fill_from_window(p, r, w, first, end);
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

/* Returns whether all rows of the window go to batches that have their buffers already. */
static bool can_scatter(const prefetch *p, const rank_order_window *at) {
  return p->plan->scatter && at->slot == 0 && at->to - at->from == at->end - at->first &&
         at->from >= p->claimed && at->to <= batch_first(p, p->armed);
}

/* Returns the window to read next, if one of the two is free. */
static window *window_to_load(prefetch *p, const reader *r) {
  if (p->plan->window_rows == 0 || p->next_window >= prefetch_window_count(p)) return NULL;
  window *w = &p->windows[p->next_window % p->plan->windows];
  if (w->number != p->next_window) {
    if (w->number != UINT64_MAX && w->unfilled > 0) return NULL;
    w->number = p->next_window;
    w->at = rank_order_window_at(p->rank_order, w->number);
    w->claimed = w->at.first;
    w->loaded = 0;
    w->drawing = w->drawn = false;
    w->scattered = can_scatter(p, &w->at);
    w->unfilled = prefetch_unfilled(p, &w->at);
    place_rows(p, r, w);
  }
  return w;
}

static void run_draw(prefetch *p, window *w) {
  uint64_t key = shuffle_key(p->seed, p->epoch, w->at.first + 1);
  uint32_t count = (uint32_t)(w->at.end - w->at.first);
  w->drawing = true;
  pthread_mutex_unlock(&p->guard);
  shuffle_draw(w->permutation, count, key);
  for (uint32_t i = 0; i < count && w->scattered; i++) w->inverse[w->permutation[i]] = i;
  pthread_mutex_lock(&p->guard);
  w->drawn = true;
  if (w->scattered || window_ready(p, w->number)) pthread_cond_broadcast(&p->work);
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
  if (w != NULL && w->scattered && w->drawing && !w->drawn) return false; /* being drawn */
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
