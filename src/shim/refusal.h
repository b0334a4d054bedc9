/* Refusal: a request that was answered with "out of memory" here, noted for `stowage explain`. */
#ifndef SHIM_REFUSAL_H
#define SHIM_REFUSAL_H

#include <stdint.h>

/* Notes it in the ledger, the trace and the log. */
void refusal_note(unsigned device, uint64_t asked_bytes);

#endif
