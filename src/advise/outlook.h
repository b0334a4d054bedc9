/* Outlook: what a training step that failed inside its optimizer would have asked for next.
 *
 * A replay ends at the failure. Inside the first step of an optimizer more can be estimated: each
 * weight gets as much state as those before it did, a step over lists of tensors (foreach, the
 * default on a device) makes temporaries as large as the weights, and the next turn does its
 * forward pass beside all of it, with the gradients still there unless they were dropped. The fixes
 * ask whether a change leaves room for that too. */
#ifndef ADVISE_OUTLOOK_H
#define ADVISE_OUTLOOK_H

#include "advise/causes.h"

typedef struct outlook {
  bool known;                  /* it failed in the first step of an optimizer */
  char optimizer[64];          /* its class, "AdamW"; "" if unknown */
  uint64_t state_bytes;        /* made so far, and asked for */
  uint64_t whole_state_bytes;  /* when every weight has its own */
  uint64_t scratch_bytes;      /* temporaries of the whole step … */
  uint64_t scratch_live_bytes; /* … of which so much is live */
  uint64_t pass_bytes;         /* the most a turn holds before its step, gradients with it */
} outlook;

void outlook_find(outlook *o, const evidence *e, const findings *f);

/* Is there room for the rest of the step and the next turn, with `less_bytes` gone, that part of
 * the state on the device, and with the temporaries or without? True where nothing is known. */
bool outlook_fits(const outlook *o, const evidence *e, uint64_t less_bytes, double state,
                  bool scratch);

/* Is it a temporary of a step over lists? */
bool outlook_is_scratch(const outlook *o, const evidence *e, uint32_t stack_id);

#endif
