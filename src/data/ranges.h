/* Ranges: splits the items of an array among the threads of the budget.
 *
 * Called by inspect and shrink. Each thread gets its own reader and a contiguous range; one of them
 * reports the progress of all. */
#ifndef DATA_RANGES_H
#define DATA_RANGES_H

#include <stdatomic.h>

#include "data/array.h"
#include "data/budget.h"

typedef struct ranges {
  const budget *budget;
  uint64_t before, total; /* progress: bytes done before this, and of the whole job */
  _Atomic uint64_t done;  /* bytes, by all threads */
  _Atomic bool stop;      /* one failed: the others stop */
} ranges;

/* One thread's part: items [first, end) of `a`. */
typedef struct range {
  ranges *all;
  unsigned number;
  array *a;
  uint64_t first, end;
} range;

typedef stow_status (*range_work)(void *context, range *r);

typedef struct ranges_job {
  const budget *budget;
  uint64_t *done; /* the job's progress in bytes, before and after */
  uint64_t total;
  range_work work;
  void *context;
  uint64_t from; /* earlier items are done already */
  uint64_t step; /* its number for the checkpoint; 0: none */
  void *state;   /* plain bytes that the work updates; saved with it */
  size_t state_bytes;
} ranges_job;

/* Returns how many threads would work on it: 1 for an archive's member or a small array. */
unsigned ranges_threads(const array *a, const budget *b);
/* Runs the work over all items; in a team, over this rank's, and then agrees. With a checkpoint it
 * runs in pieces, starting where the last run stopped. */
stow_status ranges_run(array *a, const ranges_job *job);
/* Runs it in rounds: each of `threads` processes its own part, some items per round, after the
 * first `done` ones; `between` is called after each round with the new `done`. */
stow_status ranges_rounds(array *a, const ranges_job *job, unsigned threads, uint64_t done,
                          stow_status (*between)(void *context, uint64_t done));
/* Reports that another `bytes` are done; STOW_ERR_INTERRUPTED if another thread failed. */
stow_status range_report(range *r, uint64_t bytes);

#endif
