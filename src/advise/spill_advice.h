/* Spill advice: reports what a run moved between vram and the host in each step, and what would
 * avoid that, from the run's ledger. */
#ifndef ADVISE_SPILL_ADVICE_H
#define ADVISE_SPILL_ADVICE_H

#include <stddef.h>

#include "run/ledger.h"

/* Writes two sentences such as "2.0 GiB do not fit: ...; 2.0 GiB more vram would avoid it"; "" if
 * the run spilled nothing. */
void spill_advice(char *out, size_t size, const ledger *l);

#endif
