/* Fix case: one explanation on its way to its fixes. Each cause has a function that adds its fixes;
 * fixes.c calls those of the causes that hold and ranks what they added.
 *
 * A function marks what its change touches (whatif.h), replays, and says whether the program gets
 * past the failure; where more can be estimated than the recording shows (outlook.h), whether that
 * fits too. */
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
  whatif_result base; /* as it was */
} fix_case;

/* Adds one; the caller fills in the saving. NULL when there are enough. */
fix *fix_add(fix_case *m, const char *cost, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Says more of one that is there. */
void fix_also(fix *x, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Replays what is marked, and writes what it saves. `x` may be NULL. */
stow_status fix_replay(fix_case *m, fix *x, bool expandable);
void fix_estimate(fix *x, uint64_t bytes, bool fits);

/* "train.py:31 in main", or "the loop". */
const char *fix_place(const fix_case *m, char text[256], uint32_t frame_id);

/* fix_growth.c */
stow_status fix_graph(fix_case *m);
stow_status fix_no_grad(fix_case *m);
stow_status fix_leak(fix_case *m);
/* fix_model.c */
stow_status fix_twice(fix_case *m);
stow_status fix_weights(fix_case *m);
stow_status fix_optimizer(fix_case *m);
/* fix_batch.c */
stow_status fix_batch(fix_case *m);
stow_status fix_eval(fix_case *m);
stow_status fix_spike(fix_case *m);
/* Marks what grows with the batch, and the request that failed. */
void fix_scale_batch(fix_case *m, double factor);
/* What else makes a pass smaller: recomputing, 16 bits. */
stow_status fix_pass(fix_case *m);
/* fix_program.c: where the program said what it does. */
bool fix_knows_program(const fix_case *m);
stow_status fix_batch_counted(fix_case *m);
stow_status fix_training(fix_case *m);
stow_status fix_weights_counted(fix_case *m);
/* fix_place.c */
stow_status fix_fragments(fix_case *m);
stow_status fix_cache(fix_case *m);
stow_status fix_others(fix_case *m);
stow_status fix_outside(fix_case *m);
stow_status fix_limit(fix_case *m);

#endif
