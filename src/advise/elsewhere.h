/* Elsewhere: what a recording says of a device it was not made on, and of memory it wastes.
 *
 * The recorded requests are replayed with the allocator's own policy under what that device leaves.
 * Where one is refused, the explanation is made as if the program had failed there. */
#ifndef ADVISE_ELSEWHERE_H
#define ADVISE_ELSEWHERE_H

#include "advise/explanation.h"

/* A recording with the failure of a replay put into it, for evidence_gather. */
typedef struct elsewhere {
  bool fits;
  recording view; /* shares everything with the original but its events */
  evidence_given given;
  uint64_t peak_reserved_bytes, peak_live_bytes;
} elsewhere;

/* `e` is the evidence of the recording as it is. Undo with elsewhere_close, also after a failure.
 */
stow_status elsewhere_open(elsewhere *w, const evidence *e, uint64_t device_bytes);
void elsewhere_close(elsewhere *w);
/* The headline and the notes of a recording that fits. */
void elsewhere_say_fits(explanation *x, const elsewhere *w, uint64_t device_bytes);

/* Of a recording that did not fail: says what memory was held for nothing. */
stow_status elsewhere_say_waste(explanation *x);

#endif
