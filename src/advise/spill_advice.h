/* Spill advice: reports what a run moved between vram and the host in each step, and what would
 * avoid that, from the run's ledger. */
#ifndef ADVISE_SPILL_ADVICE_H
#define ADVISE_SPILL_ADVICE_H

#include "base/buffer.h"
#include "run/ledger.h"

/* Appends a line such as "2.0 GiB did not fit in vram, ...; 2.0 GiB more vram would avoid it".
 * Appends nothing if the run spilled nothing. */
void spill_advice(buffer *out, const ledger *l);

#endif
