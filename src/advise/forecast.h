/* Forecast: what a training step that failed inside its optimizer would have requested next.
 *
 * A replay ends at the failure. Inside the first step of an optimizer more can be estimated: each
 * weight gets as much state as those before it; a step over lists of tensors (foreach, the default
 * on a device) needs temporaries as large as the weights; and the next iteration runs its forward
 * pass beside all of this, with the gradients unless they were dropped. The fixes check whether a
 * change leaves enough memory for that too. */
#ifndef ADVISE_FORECAST_H
#define ADVISE_FORECAST_H

#include "advise/evidence.h"

typedef struct forecast {
  bool known;                  /* it failed in the first step of an optimizer */
  char optimizer[64];          /* its class, "AdamW"; "" if unknown */
  uint64_t state_bytes;        /* state allocated so far, and requested */
  uint64_t whole_state_bytes;  /* size when every weight has its state */
  uint64_t scratch_bytes;      /* temporaries of the whole step */
  uint64_t scratch_live_bytes; /* the part of scratch_bytes that is live */
  uint64_t pass_bytes; /* the most that an iteration holds before its step, including gradients */
} forecast;

/* `weight_bytes`: the model's weights; 0: what was allocated while it was built. */
void forecast_find(forecast *o, const evidence *e, uint64_t weight_bytes);

/* Returns whether the rest of the step and the next iteration fit, with `less_bytes` freed, that
 * part of the state on the device, and with or without the temporaries. True if nothing is known.
 */
bool forecast_fits(const forecast *o, const evidence *e, uint64_t less_bytes, double state,
                   bool scratch);

/* Returns whether it is a temporary of a step over lists. */
bool forecast_is_scratch(const forecast *o, const evidence *e, uint32_t stack_id);

#endif
