/* Refusal: records a request that was refused here with "out of memory", for `stowage explain`. */
#ifndef SHIM_REFUSAL_H
#define SHIM_REFUSAL_H

#include <stdint.h>

/* Records it in the ledger, the trace and the log. */
void refusal_note(unsigned device, uint64_t asked_bytes);

#endif
