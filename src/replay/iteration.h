/* Iterations: where one iteration of a loop ends and the next begins.
 *
 * Taken from repeating marks in the recording (a profiler step, an iteration, the end of an
 * optimizer step); otherwise guessed from an allocation that recurs at regular distances. If the
 * recording has neither, the result says so. */
#ifndef REPLAY_ITERATION_H
#define REPLAY_ITERATION_H

#include "replay/timeline.h"

typedef enum iteration_how { ITERATION_NONE, ITERATION_MARKS, ITERATION_GUESSED } iteration_how;

typedef struct iteration {
  uint32_t start, end; /* ticks [start, end) */
  uint32_t allocs;
  uint64_t peak_bytes, end_bytes; /* maximum live within it; live at its last tick */
} iteration;

typedef struct iterations {
  iteration_how how;
  uint32_t name_id;        /* name of the first mark */
  uint64_t guess_bytes;    /* size of the recurring allocation … */
  uint32_t guess_stack_id; /* … and where */
  bool first_is_setup;     /* the first interval lies before the first mark, so it is not a full
                            * iteration */
  bool last_is_partial;    /* the last stretch was cut by the end of the recording */
  iteration *list;
  uint32_t count;
  /* Bytes that remain from one full iteration to the next: the median of the differences of
   * end_bytes. 0 with fewer than three full iterations. */
  int64_t growth_bytes;
} iterations;

stow_status iterations_find(iterations *all, const timeline *t);
void iterations_free(iterations *all);

#endif
