/* Mend: one function a cause, each of which adds what would mend it. fixes.c calls them for the
 * causes that hold and ranks what they added.
 *
 * A function marks what its change touches (whatif.h), replays, and says whether the program gets
 * past the failure; where more of it can be reckoned than the recording shows (outlook.h), whether
 * that fits too. */
#ifndef ADVISE_MEND_H
#define ADVISE_MEND_H

#include "advise/fixes.h"
#include "advise/whatif.h"

typedef struct mender {
  fixes *out;
  const evidence *e;
  const findings *f;
  const char *card;
  whatif w;
  whatif_result base; /* as it was */
} mender;

/* Adds one; the caller fills in the saving. NULL when there are enough. */
fix *fix_add(mender *m, const char *cost, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Says more of one that is there. */
void fix_also(fix *x, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Replays what is marked, and writes what it saves. `x` may be NULL. */
stow_status fix_replay(mender *m, fix *x, bool expandable);
void fix_estimate(fix *x, uint64_t bytes, bool fits);

uint64_t mender_asked(const mender *m);
/* "train.py:31 in main", or "the loop". */
const char *mender_place(const mender *m, char text[256], uint32_t frame_id);

/* mend_growth.c */
stow_status mend_graph(mender *m);
stow_status mend_no_grad(mender *m);
stow_status mend_leak(mender *m);
/* mend_model.c */
stow_status mend_twice(mender *m);
stow_status mend_weights(mender *m);
stow_status mend_optimizer(mender *m);
/* mend_batch.c */
stow_status mend_batch(mender *m);
stow_status mend_eval(mender *m);
stow_status mend_spike(mender *m);
/* mend_place.c */
stow_status mend_fragments(mender *m);
stow_status mend_cache(mender *m);
stow_status mend_others(mender *m);
stow_status mend_outside(mender *m);
stow_status mend_limit(mender *m);

#endif
