/* Ranges: see ranges.h. */
#include "data/ranges.h"

#include "data/crew.h"

#define ITEMS_EACH (UINT64_C(1) << 18) /* fewer are not worth a thread */

typedef struct job_ranges {
  ranges shared;
  array *a;
  unsigned threads;
  range_work work;
  void *context;
} job_ranges;

unsigned ranges_threads(const array *a, const budget *b) {
  array copy;
  source from;
  if (b->threads <= 1 || !array_fork(&copy, &from, a, 0)) return 1;
  uint64_t most = a->count / ITEMS_EACH;
  return most < 1 ? 1 : most < b->threads ? (unsigned)most : b->threads;
}

static stow_status run_one(void *context, unsigned number) {
  job_ranges *j = context;
  array own;
  source from;
  /* Cut at multiples of 4096 items, so that no page of the output is written by two. */
  uint64_t blocks = (j->a->count + 4095) / 4096;
  uint64_t first = blocks * number / j->threads * 4096;
  uint64_t end = number + 1 == j->threads ? j->a->count : blocks * (number + 1) / j->threads * 4096;
  range r = {.all = &j->shared, .number = number, .a = j->a, .first = first, .end = end};
  if (j->threads > 1 && array_fork(&own, &from, j->a, first)) r.a = &own;
  stow_status status = j->work(j->context, &r);
  if (status != STOW_OK) atomic_store(&j->shared.stop, true);
  return status;
}

stow_status ranges_run(array *a, const budget *b, uint64_t *done, uint64_t total, range_work work,
                       void *context) {
  job_ranges j = {.shared = {.budget = b, .before = *done, .total = total},
                  .a = a,
                  .threads = ranges_threads(a, b),
                  .work = work,
                  .context = context};
  stow_status status = crew_run(j.threads, run_one, &j);
  *done += atomic_load(&j.shared.done);
  return status;
}

stow_status range_tell(range *r, uint64_t bytes) {
  uint64_t done = atomic_fetch_add(&r->all->done, bytes) + bytes;
  if (atomic_load(&r->all->stop)) return stow_fail(STOW_ERR_INTERRUPTED, "another thread failed");
  /* One thread speaks: the caller's own. */
  return r->number == 0 ? budget_tell(r->all->budget, r->all->before + done, r->all->total)
                        : STOW_OK;
}
