/* Prefetch, the readers' side: tasks, and their order. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "data/huge_alloc.h"
#include "data/prefetch_read.h"

/* ---- batches and windows ---- */

static uint64_t batch_first(const prefetch *p, uint64_t batch) {
  return p->plan->first_place + batch * p->plan->batch_rows;
}

/* Returns the end of the positions of the batches before `batch`. */
static uint64_t batch_end(const prefetch *p, uint64_t batch) {
  uint64_t end = p->plan->first_place + p->plan->rank_rows, at = batch_first(p, batch);
  return at < end ? at : end;
}

uint64_t prefetch_window_of(const prefetch *p, uint64_t batch) {
  return batch * p->plan->batch_rows / p->plan->window_rows;
}

uint64_t prefetch_window_count(const prefetch *p) {
  return p->plan->batch_count == 0 ? 0 : prefetch_window_of(p, p->plan->batch_count - 1) + 1;
}

/* Returns the first batch after window `number`. */
static uint64_t window_last_batch(const prefetch *p, uint64_t number) {
  if (number + 1 >= prefetch_window_count(p)) return p->plan->batch_count;
  return (number + 1) * p->plan->window_rows / p->plan->batch_rows;
}

static bool window_ready(const prefetch *p, uint64_t number) {
  const window *w = &p->windows[number % p->plan->windows];
  return w->number == number && w->drawn && w->loaded == w->end - w->first;
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

/* Fills a whole batch of one part. If the buffer has room, its rows get the same page alignment as
 * in the file, so that a direct read goes straight into it. */
static stow_status fill_one(prefetch *p, rows *part, uint32_t number, uint64_t batch) {
  uint64_t first = batch_first(p, batch), end = batch_end(p, batch + 1), offset;
  void **data = &p->slots[batch % p->plan->ahead].data[number];
  if (!plan_room(p->plan, number) || !rows_offset(part, first, &offset) ||
      offset % BUFFER_POOL_ALIGN != 0)
    return read_places(p, part, first, end, *data);
  buffer_pool_kept kept;
  *data = buffer_pool_shift(*data, (size_t)(offset % SOURCE_DIRECT_UNIT), &kept);
  part->from.from->room = true;
  stow_status status = read_places(p, part, first, end, *data);
  part->from.from->room = false;
  buffer_pool_settle(*data, &kept);
  return status;
}

static stow_status fill_from_file(prefetch *p, reader *r, uint64_t batch, uint64_t count) {
  for (uint32_t i = 0; i < p->plan->parts; i++) {
    rows *part = &r->parts[i];
    uint64_t first = batch_first(p, batch), end = batch_end(p, batch + count);
    if (count == 1) {
      STOW_TRY(fill_one(p, part, i, batch));
      continue;
    }
    STOW_TRY(read_places(p, part, first, end, r->stage));
    const char *from = r->stage;
    for (uint64_t b = batch; b < batch + count; b++) {
      size_t bytes = (size_t)((batch_end(p, b + 1) - batch_first(p, b)) * part->row_bytes);
      memcpy(p->slots[b % p->plan->ahead].data[i], from, bytes);
      from += bytes;
    }
  }
  return STOW_OK;
}

/* Copies rows of a window in the drawn order. They are scattered, so prefetch them. */
static void gather(char *to, const char *from, const uint32_t *numbers, uint64_t count,
                   size_t bytes) {
  enum { EARLY = 16 };
  if (bytes == 4) {
    for (uint64_t i = 0; i < count; i++) memcpy(to + i * 4, from + (size_t)numbers[i] * 4, 4);
    return;
  }
  if (bytes == 8) {
    for (uint64_t i = 0; i < count; i++) memcpy(to + i * 8, from + (size_t)numbers[i] * 8, 8);
    return;
  }
  for (uint64_t i = 0; i < count; i++) {
    if (i + EARLY < count)
      for (size_t at = 0; at < bytes && at < 512; at += 64)
        __builtin_prefetch(from + numbers[i + EARLY] * bytes + at);
    memcpy(to + i * bytes, from + numbers[i] * bytes, bytes);
  }
}

static void fill_from_window(prefetch *p, uint64_t batch, uint64_t count) {
  const window *w = &p->windows[prefetch_window_of(p, batch) % p->plan->windows];
  for (uint64_t b = batch; b < batch + count; b++) {
    uint64_t first = batch_first(p, b), end = batch_end(p, b + 1);
    for (uint32_t i = 0; i < p->plan->parts; i++)
      gather(p->slots[b % p->plan->ahead].data[i], w->rows[i], w->permutation + (first - w->first),
             end - first, (size_t)p->plan->row_bytes[i]);
  }
}

static stow_status load_piece(prefetch *p, reader *r, window *w, uint64_t first, uint64_t count) {
  for (uint32_t i = 0; i < p->plan->parts; i++)
    STOW_TRY(read_places(p, &r->parts[i], first, first + count,
                         w->rows[i] + (first - w->first) * p->plan->row_bytes[i]));
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
    if (part->opened_from == NULL) STOW_TRY(rows_open(part, &p->origins[i]));
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

/* Returns how many batches from `claimed` on one task may fill now. */
uint64_t prefetch_claimable(const prefetch *p) {
  uint64_t group = p->plan->group, last = p->plan->batch_count;
  if (p->plan->window_rows == 0) {
    if (p->failed != STOW_OK) return 0; /* it failed before `claimed` */
  } else {
    if (p->claimed >= last || !window_ready(p, prefetch_window_of(p, p->claimed))) return 0;
    last = window_last_batch(p, prefetch_window_of(p, p->claimed));
  }
  if (last - p->claimed < group) group = last - p->claimed;
  uint64_t armed = p->armed - p->claimed;
  return armed >= group ? group : p->scarce ? armed : 0;
}

bool prefetch_alone(const prefetch *p) {
  return p->plan->one_core && p->plan->caller_reads && !p->waits;
}

/* Returns how often this thread has blocked: a read from the page cache does not. */
static long times_waited(void) {
  struct rusage use;
  return getrusage(RUSAGE_THREAD, &use) == 0 ? use.ru_nvcsw : 0;
}

static void run_fill(prefetch *p, reader *r, uint64_t count) {
  uint64_t batch = p->claimed;
  bool windowed = p->plan->window_rows > 0;
  p->claimed += count;
  for (uint64_t b = batch; b < batch + count; b++)
    p->slots[b % p->plan->ahead].state = SLOT_FILLING;
  pthread_mutex_unlock(&p->guard);
  stow_status status = STOW_OK;
  long waited = times_waited();
  if (windowed)
    fill_from_window(p, batch, count);
  else
    status = fill_from_file(p, r, batch, count);
  waited = times_waited() - waited;
  pthread_mutex_lock(&p->guard);
  if (!windowed) p->waits = waited > 0;
  if (windowed) {
    window *w = &p->windows[prefetch_window_of(p, batch) % p->plan->windows];
    w->unfilled -= count;
    if (w->unfilled == 0) pthread_cond_broadcast(&p->work); /* the window can be reused */
  }
  for (uint64_t b = batch; status == STOW_OK && b < batch + count; b++)
    p->slots[b % p->plan->ahead].state = SLOT_READY;
  if (p->taken >= batch && p->taken < batch + count) pthread_cond_signal(&p->ready);
  end_task(p, status);
}

/* Returns the batches of the window not yet claimed; 0 while it is being read. */
uint64_t prefetch_unfilled(const prefetch *p, uint64_t number) {
  uint64_t first = number == 0 ? 0 : window_last_batch(p, number - 1);
  return window_last_batch(p, number) - (first > p->claimed ? first : p->claimed);
}

/* Returns the window to read next, if one of the two is free. */
static window *window_to_load(prefetch *p) {
  if (p->plan->window_rows == 0 || p->next_window >= prefetch_window_count(p)) return NULL;
  window *w = &p->windows[p->next_window % p->plan->windows];
  if (w->number != p->next_window) {
    if (w->number != UINT64_MAX && w->unfilled > 0) return NULL;
    uint64_t end = p->plan->first_place + p->plan->rank_rows;
    w->number = p->next_window;
    w->first = p->plan->first_place + w->number * p->plan->window_rows;
    w->end = end - w->first > p->plan->window_rows ? w->first + p->plan->window_rows : end;
    w->claimed = w->first;
    w->loaded = 0;
    w->drawing = w->drawn = false;
    w->unfilled = prefetch_unfilled(p, w->number);
  }
  return w;
}

static void run_draw(prefetch *p, window *w) {
  uint64_t key = shuffle_key(p->seed, p->epoch, w->first + 1);
  w->drawing = true;
  pthread_mutex_unlock(&p->guard);
  shuffle_draw(w->permutation, (uint32_t)(w->end - w->first), key);
  pthread_mutex_lock(&p->guard);
  w->drawn = true;
  if (window_ready(p, w->number)) pthread_cond_broadcast(&p->work);
  end_task(p, STOW_OK);
}

static void run_load(prefetch *p, reader *r, window *w) {
  uint64_t first = w->claimed, row, run = sequence_run(&p->order, first, &row);
  if (run > w->end - first) run = w->end - first;
  if (run > p->plan->piece_rows) run = p->plan->piece_rows;
  w->claimed += run;
  if (w->claimed == w->end && w->drawing) p->next_window++;
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

bool prefetch_run_task(prefetch *p, reader *r) {
  if (p->paused) return false;
  if (!r->opened && p->failed == STOW_OK && p->claimed < p->plan->batch_count) {
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
  window *w = count == 0 && p->failed == STOW_OK ? window_to_load(p) : NULL;
  if (count == 0 && w == NULL) return false;
  p->busy++;
  if (count > 0) {
    run_fill(p, r, count);
  } else if (!w->drawing) {
    if (w->claimed == w->end)
      p->next_window++; /* kept since the last epoch: only its order is drawn again */
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
