/* Fix case: the state while the fixes of one explanation are found. Each cause has a function that
 * adds its fixes; fixes.c calls those of the causes that apply and ranks the results.
 *
 * A function marks what its change affects (whatif.h), replays, and records whether the program
 * gets past the failure. If more can be estimated than the recording shows (forecast.h), it also
 * records whether that fits. */
#ifndef ADVISE_FIX_CASE_H
#define ADVISE_FIX_CASE_H

#include "advise/causes.h"
#include "advise/fix.h"
#include "advise/whatif.h"

typedef struct fix_case {
  fixes *out;
  const evidence *e;
  const findings *f;
  const char *device;
  whatif w;
  whatif_result base; /* the replay without changes */
} fix_case;

/* Adds a fix; the caller fills in the saving. NULL if there are enough. */
fix *fix_add(fix_case *m, const char *cost, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds text to an existing fix. */
void fix_also(fix *x, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Replays what is marked, and stores what it saves. `x` may be NULL. */
stow_status fix_replay(fix_case *m, fix *x, bool expandable);
void fix_estimate(fix *x, uint64_t bytes, bool fits);

/* Writes "train.py:31 in main", or "the loop". */
const char *fix_place(const fix_case *m, char text[256], uint32_t frame_id);

/* In fix_growth.c: */
stow_status fix_graph(fix_case *m);
stow_status fix_no_grad(fix_case *m);
stow_status fix_leak(fix_case *m);
/* In fix_model.c: */
stow_status fix_twice(fix_case *m);
stow_status fix_weights(fix_case *m);
stow_status fix_optimizer(fix_case *m);
/* In fix_batch.c: */
stow_status fix_batch(fix_case *m);
stow_status fix_eval(fix_case *m);
stow_status fix_spike(fix_case *m);
/* Marks what grows with the batch, and the request that failed. */
void fix_scale_batch(fix_case *m, double factor);
/* Adds other ways to make a pass smaller: recomputing, 16 bits. */
stow_status fix_pass(fix_case *m);
/* In fix_program.c: fixes for a program that reported what it does. */
bool fix_knows_program(const fix_case *m);
stow_status fix_batch_counted(fix_case *m);
stow_status fix_training(fix_case *m);
stow_status fix_weights_counted(fix_case *m);
/* In fix_outlook.c: fixes by what a whole recording shows after the failure. *found: there is one,
 * and no other is needed for this cause. */
stow_status fix_by_outlook(fix_case *m, cause_id id, bool *found);
/* Names up to three lines that make what grows: "a.py:16 in forward, a.py:17 in forward". */
const char *fix_lines(const fix_case *m, char text[256]);
/* In fix_place.c: */
stow_status fix_fragments(fix_case *m);
stow_status fix_cache(fix_case *m);
stow_status fix_others(fix_case *m);
stow_status fix_outside(fix_case *m);
stow_status fix_limit(fix_case *m);

#endif
