/* Ranges: see ranges.h. */
#include "data/ranges.h"

#include <stdlib.h>

#include "base/variables.h"
#include "data/checkpoint.h"
#include "data/team.h"
#include "data/workers.h"

#define ITEMS_EACH (UINT64_C(1) << 18) /* fewer are not worth a thread */

#define PIECE_BYTES (UINT64_C(64) << 20) /* per thread, between two checkpoints */
/* Split at multiples, so that two threads never write the same page of the output. */
#define ALIGN_ITEMS UINT64_C(4096)

typedef struct piece {
  ranges shared;
  array *a;
  uint64_t first, end;
  unsigned threads;
  uint64_t before, step; /* which items of each thread's part to process; step 0: all */
  const ranges_job *job;
} piece;

/* Returns where part `number` of `count` begins. */
static uint64_t cut(uint64_t first, uint64_t end, unsigned number, unsigned count) {
  uint64_t blocks = (end - first + ALIGN_ITEMS - 1) / ALIGN_ITEMS;
  uint64_t at = first + blocks * number / count * ALIGN_ITEMS;
  return number == count || at > end ? end : at;
}

unsigned ranges_threads(const array *a, const budget *b) {
  array copy;
  source from;
  if (b->threads <= 1 || !array_fork(&copy, &from, a, 0)) return 1;
  uint64_t most = a->count / ITEMS_EACH;
  return most < 1 ? 1 : most < b->threads ? (unsigned)most : b->threads;
}

static stow_status run_one(void *context, unsigned number) {
  piece *p = context;
  array own;
  source from;
  range r = {.all = &p->shared,
             .number = number,
             .a = p->a,
             .first = cut(p->first, p->end, number, p->threads),
             .end = cut(p->first, p->end, number + 1, p->threads)};
  if (p->step > 0) {
    r.first += p->before < r.end - r.first ? p->before : r.end - r.first;
    if (r.end - r.first > p->step) r.end = r.first + p->step;
  }
  if (p->threads > 1 && array_fork(&own, &from, p->a, r.first)) r.a = &own;
  stow_status status = p->job->work(p->job->context, &r);
  if (status != STOW_OK) atomic_store(&p->shared.stop, true);
  return status;
}

static stow_status run_piece(array *a, const ranges_job *job, uint64_t first, uint64_t end) {
  piece p = {.shared = {.budget = job->budget, .before = *job->done, .total = job->total},
             .a = a,
             .first = first,
             .end = end,
             .threads = ranges_threads(a, job->budget),
             .job = job};
  stow_status status = workers_run(p.threads, run_one, &p);
  *job->done += atomic_load(&p.shared.done);
  return status;
}

/* Returns how many items a thread processes between two checkpoints. */
static uint64_t piece_items(const array *a, unsigned threads) {
  uint64_t items = PIECE_BYTES * threads / (a->item_bytes > 0 ? a->item_bytes : 1);
  const char *setting = getenv(ENV_CHECKPOINT_ITEMS); /* for tests */
  if (setting != NULL) items = strtoull(setting, NULL, 10) + 1;
  return (items + ALIGN_ITEMS - 1) / ALIGN_ITEMS * ALIGN_ITEMS;
}

/* Sets *end to the end of the piece that begins at `first`. Repeated items are no work, so they do
 * not count: a file may declare 2^60 of them. */
static stow_status piece_end(array *a, uint64_t first, uint64_t step, uint64_t *end) {
  uint64_t equal, left = *end - first;
  uint8_t value[8];
  STOW_TRY(array_repeats(a, first, &equal, value));
  if (equal > step) step = equal;
  if (step < left) *end = first + step;
  return STOW_OK;
}

static stow_status run_mine(array *a, const ranges_job *job, uint64_t first, uint64_t end) {
  const budget *b = job->budget;
  checkpoint *c = job->step != 0 ? b->checkpoint : NULL;
  uint64_t step = 0, place;
  if (job->from > first) {
    uint64_t from = job->from < end ? job->from : end;
    *job->done += (from - first) * a->item_bytes;
    first = from;
  }
  if (c != NULL && checkpoint_find(c, job->step, &place, job->state, job->state_bytes) &&
      place >= first && place <= end) {
    *job->done += (place - first) * a->item_bytes;
    first = place;
  }
  if (c != NULL) step = piece_items(a, ranges_threads(a, b));
  while (first < end) {
    uint64_t next = end;
    if (c != NULL) STOW_TRY(piece_end(a, first, step, &next));
    STOW_TRY(run_piece(a, job, first, next));
    first = next;
    STOW_TRY(checkpoint_note(c, job->step, first, job->state, job->state_bytes));
  }
  return STOW_OK;
}

stow_status ranges_run(array *a, const ranges_job *job) {
  team *t = job->budget->team;
  unsigned rank = t != NULL ? t->rank : 0, size = t != NULL ? t->size : 1;
  stow_status status =
      run_mine(a, job, cut(0, a->count, rank, size), cut(0, a->count, rank + 1, size));
  return team_agree(t, status);
}

stow_status ranges_rounds(array *a, const ranges_job *job, unsigned threads, uint64_t done,
                          stow_status (*between)(void *context, uint64_t done)) {
  uint64_t longest = cut(0, a->count, 1, threads), all = done * threads;
  for (unsigned i = 1; i < threads; i++) {
    uint64_t items = cut(0, a->count, i + 1, threads) - cut(0, a->count, i, threads);
    if (items > longest) longest = items;
  }
  piece p = {.shared = {.budget = job->budget, .before = *job->done, .total = job->total},
             .a = a,
             .end = a->count,
             .threads = threads,
             .step = job->budget->checkpoint != NULL ? piece_items(a, 1) : a->count + 1,
             .job = job};
  p.shared.before += (all < a->count ? all : a->count) * a->item_bytes;
  for (; done < longest; done += p.step) {
    p.before = done;
    STOW_TRY(workers_run(threads, run_one, &p));
    STOW_TRY(between(job->context, done + p.step));
  }
  *job->done += atomic_load(&p.shared.done);
  return STOW_OK;
}

stow_status range_report(range *r, uint64_t bytes) {
  uint64_t done = atomic_fetch_add(&r->all->done, bytes) + bytes;
  if (atomic_load(&r->all->stop)) return stow_fail(STOW_ERR_INTERRUPTED, "another thread failed");
  /* Only the caller's thread reports. */
  return r->number == 0 ? budget_report(r->all->budget, r->all->before + done, r->all->total)
                        : STOW_OK;
}
