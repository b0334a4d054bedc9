/* Prefetch, the caller's side: opens, begins an epoch, takes batches. */
#include "data/prefetch.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/huge_alloc.h"
#include "data/prefetch_read.h"

/* Blocks signals, which are for the program's own threads. One started reader suffices. */
static stow_status start_readers(prefetch *p) {
  if (p->started) return STOW_OK;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  p->started = true;
  for (uint32_t i = 0; i < p->plan->readers; i++) {
    reader *r = &p->readers[i];
    if (!r->started) r->started = pthread_create(&r->thread, NULL, prefetch_read_ahead, r) == 0;
    p->started = p->started && r->started;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!p->readers[0].started)
    return stow_fail(STOW_ERR_HOST_MEMORY, "cannot start a thread to read batches");
  return STOW_OK;
}

/* Readers with threads, plus the caller's. */
static uint32_t all_readers(const prefetch *p) {
  return p->readers == NULL ? 0 : p->plan->readers + 1;
}

/* ---- the caller's side ---- */

static stow_status make_windows(prefetch *p) {
  const plan *made = p->plan;
  for (uint32_t i = 0; i < 2; i++) p->windows[i].number = UINT64_MAX;
  if (made->own_windows) return STOW_OK; /* the readers' */
  /* Never more than a share has. */
  uint64_t held = p->rank_order->share_rows;
  if (made->window_rows < held) held = made->window_rows;
  for (uint32_t i = 0; held > 0 && i < made->windows && i < prefetch_window_count(p); i++) {
    window *w = &p->windows[i];
    w->permutation = huge_alloc(held * sizeof *w->permutation);
    bool there = w->permutation != NULL;
    for (uint32_t part = 0; part < made->parts; part++) {
      w->memory[part] = huge_alloc(held * made->row_bytes[part] + plan_shift(made));
      there = there && w->memory[part] != NULL;
    }
    if (!there)
      return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a window of %zu rows",
                       (size_t)held);
  }
  return STOW_OK;
}

stow_status prefetch_open(prefetch **out, const plan *made, const rank_order *along,
                          disk_shuffle *from, const origin *origins, rows *first,
                          buffer_pool *buffers) {
  prefetch *p = calloc(1, sizeof *p);
  if (p == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for batches");
  p->plan = made;
  p->rank_order = along;
  p->disk = from;
  p->built = from == NULL;
  if (from != NULL) disk_shuffle_cancel(from, false);
  p->origins = origins;
  p->buffers = buffers;
  pthread_mutex_init(&p->guard, NULL);
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&p->work, NULL);
  pthread_cond_init(&p->ready, &monotonic);
  pthread_condattr_destroy(&monotonic);
  p->slots = calloc(made->ahead, sizeof *p->slots);
  p->readers = calloc(made->readers + 1, sizeof *p->readers);
  p->waits = !made->one_core; /* until a reader finds the file cached, or the caller finds it not
                               * cached */
  stow_status status = p->slots != NULL && p->readers != NULL
                           ? sequence_open(&p->order, made->rows, made->block_rows)
                           : stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for batches");
  if (status == STOW_OK) status = make_windows(p);
  if (status == STOW_OK) {
    for (uint32_t i = 0; i <= made->readers; i++) p->readers[i].owner = p;
    memcpy(p->readers[0].parts, first, made->parts * sizeof *first);
    memset(first, 0, made->parts * sizeof *first);
  }
  if (status == STOW_OK && made->caller_reads && p->built) {
    reader *caller = &p->readers[made->readers];
    status = prefetch_open_parts(p, caller);
    caller->opened = status == STOW_OK;
  }
  if (status == STOW_OK)
    *out = p;
  else
    prefetch_close(p);
  return status;
}

void prefetch_close(prefetch *p) {
  if (p == NULL) return;
  pthread_mutex_lock(&p->guard);
  p->stop = true;
  pthread_cond_broadcast(&p->work);
  pthread_mutex_unlock(&p->guard);
  if (p->disk != NULL) disk_shuffle_cancel(p->disk, true);
  /* Join all readers before closing any: one that is still opening its files uses those of the
   * first. */
  for (uint32_t i = 0; i < all_readers(p); i++)
    if (p->readers[i].started) pthread_join(p->readers[i].thread, NULL);
  for (uint32_t i = 0; i < all_readers(p); i++) {
    reader *r = &p->readers[i];
    for (uint32_t part = 0; part < p->plan->parts; part++)
      if (r->parts[part].opened_from != NULL) rows_close(&r->parts[part]);
    free(r->stage);
    free(r->bounce);
    free(r->own.rows);
  }
  for (uint32_t i = 0; p->slots != NULL && i < p->plan->ahead; i++)
    for (uint32_t part = 0; part < p->plan->parts; part++)
      if (p->slots[i].data[part] != NULL) buffer_pool_put(p->slots[i].data[part]);
  for (uint32_t i = 0; i < 2; i++) {
    for (uint32_t part = 0; part < p->plan->parts; part++) free(p->windows[i].memory[part]);
    free(p->windows[i].permutation);
  }
  sequence_close(&p->order);
  pthread_cond_destroy(&p->work);
  pthread_cond_destroy(&p->ready);
  pthread_mutex_destroy(&p->guard);
  free(p->slots);
  free(p->readers);
  free(p);
}

/* Waits until no reader runs a task, and prevents new ones. The lock is held. */
static void pause_readers(prefetch *p) {
  p->paused = true;
  while (p->busy > 0) pthread_cond_wait(&p->ready, &p->guard);
}

/* Returns whether the one window holds all rows in file order: then it is valid for every epoch. */
static bool window_stays(const prefetch *p) {
  const window *w = &p->windows[0];
  return p->plan->windows == 1 && p->order.blocks == NULL && w->number == 0 &&
         w->loaded == w->at.end - w->at.first;
}

stow_status prefetch_begin(prefetch *p, uint64_t seed, uint64_t epoch, uint64_t batch) {
  pthread_mutex_lock(&p->guard);
  pause_readers(p);
  p->seed = seed;
  p->epoch = epoch;
  p->taken = p->armed = batch;
  p->claimed = batch * p->plan->batch_rows;
  p->failed = STOW_OK;
  for (uint32_t i = 0; i < p->plan->ahead; i++) {
    p->slots[i].state = SLOT_EMPTY;
    p->slots[i].filled = 0;
  }
  sequence_draw(&p->order, shuffle_key(seed, epoch, 0));
  if (!window_stays(p))
    for (uint32_t i = 0; i < 2; i++) p->windows[i].number = UINT64_MAX;
  p->windows[0].drawing = p->windows[0].drawn = false;
  if (p->plan->window_rows > 0) {
    bool left = batch < p->plan->batch_count;
    p->next_window = left ? prefetch_window_of(p, batch) : prefetch_window_count(p);
    p->windows[0].unfilled = left ? prefetch_unfilled(p, &p->windows[0].at) : 0;
  }
  p->paused = false;
  pthread_cond_broadcast(&p->work);
  pthread_mutex_unlock(&p->guard);
  return STOW_OK;
}

/* Wakes readers after slots got buffers. The lock is held. Waking a reader costs about as much as
 * reading a cached batch, so it sleeps until half of the batches ahead can be filled at once. For a
 * server the latency dominates, so each batch is requested immediately. */
static void wake_readers(prefetch *p, uint64_t armed) {
  if (prefetch_alone(p)) return;
  uint64_t waiting = p->armed - p->claimed / p->plan->batch_rows;
  bool worth = p->plan->remote || waiting * 2 >= p->plan->ahead || p->armed == p->plan->batch_count;
  if (armed > p->plan->group)
    pthread_cond_broadcast(&p->work);
  else if (worth && prefetch_claimable(p) > 0)
    pthread_cond_signal(&p->work);
}

/* Returns the batches from the next one to the end of the window of its last row. */
static uint64_t batches_of_window(const prefetch *p) {
  uint64_t end = prefetch_rows(p), next = (p->taken + 1) * p->plan->batch_rows;
  uint64_t last = (next < end ? next : end) - 1;
  end = rank_order_window_at(p->rank_order, rank_order_window_of(p->rank_order, last)).to;
  return (end + p->plan->batch_rows - 1) / p->plan->batch_rows - p->taken;
}

/* Returns how far to read ahead. A caller that reads alone reads no further than needed: into the
 * buffer it just returned, which is still in the CPU cache; or into the batches of one window. */
static uint64_t batches_ahead(prefetch *p) {
  if (!p->plan->one_core) return p->plan->ahead;
  pthread_mutex_lock(&p->guard);
  uint64_t needed = p->plan->own_windows ? batches_of_window(p) : 1;
  if (needed < p->plan->group) needed = p->plan->group;
  uint64_t ahead = prefetch_alone(p) && needed < p->plan->ahead ? needed : p->plan->ahead;
  pthread_mutex_unlock(&p->guard);
  return ahead;
}

/* Gets buffers for the batches to fill next. Only this thread does so, so it allocates without the
 * lock. */
static stow_status arm(prefetch *p) {
  uint64_t last = p->plan->batch_count - p->taken, ahead = batches_ahead(p);
  last = p->taken + (last < ahead ? last : ahead);
  uint64_t from = p->armed, at = from;
  stow_status status = STOW_OK;
  for (; at < last && status == STOW_OK; at += status == STOW_OK)
    for (uint32_t i = 0; i < p->plan->parts && status == STOW_OK; i++) {
      void **data = &p->slots[at % p->plan->ahead].data[i];
      if (*data == NULL) status = buffer_pool_take(p->buffers, i, data);
    }
  if (at == from && !p->scarce && status == STOW_OK) return STOW_OK;
  pthread_mutex_lock(&p->guard);
  p->armed = at;
  p->scarce = status != STOW_OK;
  wake_readers(p, at - from);
  pthread_mutex_unlock(&p->guard);
  return at > p->taken ? STOW_OK : status; /* short of memory, but something can be filled */
}

/* Returns whether a batch is ready or an error is due. The lock is held. */
static bool has_result(const prefetch *p) {
  return p->slots[p->taken % p->plan->ahead].state == SLOT_READY ||
         (p->failed != STOW_OK && p->busy == 0 && prefetch_claimable(p) == 0);
}

/* Waits for a result, at most until `end` if given. The lock is held. If reads do not block on a
 * disk, the caller reads in the meantime; if they do, waiting is better, so that the caller's own
 * work overlaps with the disk. */
static bool await(prefetch *p, const struct timespec *end) {
  int code = 0;
  while (!has_result(p) && code == 0) {
    if (!prefetch_alone(p) && prefetch_claimable(p) > 0) pthread_cond_signal(&p->work);
    if (p->plan->caller_reads && !p->waits && p->built &&
        prefetch_run_task(p, &p->readers[p->plan->readers]))
      continue;
    code = end != NULL ? pthread_cond_timedwait(&p->ready, &p->guard, end)
                       : pthread_cond_wait(&p->ready, &p->guard);
  }
  return has_result(p);
}

/* Waits until the scratch file is built, at most until `end` if given. Batches get their buffers
 * after that: while it is built, its groups take the budget. Returns false if time is up. */
static bool await_build(prefetch *p, const struct timespec *end) {
  int code = 0;
  pthread_mutex_lock(&p->guard);
  while (!p->built && (p->failed == STOW_OK || p->busy > 0) && code == 0)
    code = end != NULL ? pthread_cond_timedwait(&p->ready, &p->guard, end)
                       : pthread_cond_wait(&p->ready, &p->guard);
  pthread_mutex_unlock(&p->guard);
  return code == 0;
}

/* Makes the readers work: first on the scratch file, if there is one, then on the next batches.
 * Returns false if `end` came first. */
static bool set_to_work(prefetch *p, const struct timespec *end, stow_status *status) {
  bool built = p->disk == NULL;
  *status = built ? arm(p) : start_readers(p);
  if (*status != STOW_OK) return true;
  if (!built && !await_build(p, end)) return false;
  *status = built ? start_readers(p) : arm(p);
  return true;
}

bool prefetch_wait(prefetch *p, uint64_t wait_us) {
  stow_status status;
  uint64_t end_ns = clock_ns() + wait_us * 1000;
  struct timespec end = {.tv_sec = (time_t)(end_ns / 1000000000),
                         .tv_nsec = (long)(end_ns % 1000000000)};
  if (!set_to_work(p, &end, &status)) return false;
  if (status != STOW_OK) return true;
  pthread_mutex_lock(&p->guard);
  bool there = await(p, &end);
  pthread_mutex_unlock(&p->guard);
  return there;
}

stow_status prefetch_take(prefetch *p, void **data) {
  stow_status status;
  set_to_work(p, NULL, &status);
  STOW_TRY(status);
  pthread_mutex_lock(&p->guard);
  await(p, NULL);
  slot *s = &p->slots[p->taken % p->plan->ahead];
  status = s->state == SLOT_READY ? STOW_OK : p->failed;
  if (status == STOW_OK) {
    for (uint32_t i = 0; i < p->plan->parts; i++) {
      data[i] = s->data[i];
      s->data[i] = NULL;
    }
    s->state = SLOT_EMPTY;
    s->filled = 0;
    p->taken++;
  }
  pthread_mutex_unlock(&p->guard);
  if (status == STOW_OK) return STOW_OK;
  stow_fail(status, "%s", p->message);
  /* Start again from here if the caller retries. */
  STOW_TRY(prefetch_begin(p, p->seed, p->epoch, p->taken));
  return status;
}

stow_status prefetch_check(prefetch *p) {
  if (p->disk != NULL) return STOW_OK; /* checked when it was built */
  for (uint32_t i = 0; i < p->plan->parts; i++) STOW_TRY(rows_check(&p->readers[0].parts[i]));
  return STOW_OK;
}
