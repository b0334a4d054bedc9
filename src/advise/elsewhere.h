/* Elsewhere: explains a recording for a device other than its own, and finds memory that it wastes.
 *
 * The recorded requests are replayed with the allocator's own policy and the memory that the device
 * leaves. If a request is refused, the explanation is made as if the program had failed there. */
#ifndef ADVISE_ELSEWHERE_H
#define ADVISE_ELSEWHERE_H

#include "advise/explanation.h"

/* A recording with the failure of a replay inserted, for evidence_gather. */
typedef struct elsewhere {
  bool fits;
  recording view; /* shares everything except the events with the original */
  evidence_given given;
  evidence whole; /* of the recording up to its end */
  uint64_t peak_reserved_bytes, peak_live_bytes;
} elsewhere;

/* Prepares the replay. `e` is the evidence of the recording itself. Undo with elsewhere_close, also
 * after a failure. */
stow_status elsewhere_open(elsewhere *w, const evidence *e, uint64_t device_bytes);
void elsewhere_close(elsewhere *w);
/* Writes the headline and the notes for a recording that fits. */
void elsewhere_say_fits(explanation *x, const elsewhere *w, uint64_t device_bytes);

/* For a recording that did not fail: reports memory that was held without use. */
stow_status elsewhere_say_waste(explanation *x);

#endif
