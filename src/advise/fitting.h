/* Fitting: the largest part of the recorded batch with which a program fits a limit, by replay.
 *
 * Called by `stowage tune` and the public API (stowage/tune.h). Activations, inputs and their
 * gradients are made smaller, and every part that is returned was replayed. Weights, their
 * gradients, optimizer state and what is made once stay as they are. */
#ifndef ADVISE_FITTING_H
#define ADVISE_FITTING_H

#include "advise/evidence.h"
#include "replay/tune.h"

typedef enum fitting_answer {
  FITTING_UNKNOWN = 0, /* no limit was given, or nothing in the recording grows with the batch */
  FITTING_WHOLE,       /* the recorded batch fits */
  FITTING_PART,        /* a smaller batch fits */
  FITTING_NONE,        /* the smallest part that was tried does not fit */
} fitting_answer;

/* Steps of a batch whose size the recording does not have. */
#define FITTING_PARTS 64u

typedef struct fitting {
  fitting_answer answer;
  uint64_t batch;   /* samples in the recorded batch; 0 if not known */
  uint32_t part;    /* FITTING_PART: `part` of `whole` fit; … */
  uint32_t whole;   /* … the batch in samples, or FITTING_PARTS */
  bool until_fail;  /* the recording ends with a failure: later requests are not known */
  uint32_t setting; /* index in the tuning's list: use it with this batch */
  uint64_t peak_reserved_bytes; /* FITTING_NONE: with the smallest part and no limit */
} fitting;

/* Finds the largest part of the batch with which a recording that did not fail replays to its end
 * on a device: given->part of given->of, the batch in samples or FITTING_PARTS, and whether that
 * needs expandable segments. The figure is that of fitting_find. given->part is 0 if no part fits,
 * or if nothing grows with the batch. */
stow_status fitting_part(evidence_given *given, const evidence *e, uint64_t device_bytes);

/* Finds the part for the limit of `job`; `t` holds the tuning of the same job. */
stow_status fitting_find(fitting *out, const replay_job *job, const tuning *t);

#endif
