/* Record: events of the hooks, written to the run's trace (recorder.h). */
#ifndef SHIM_RECORD_H
#define SHIM_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include <stowage/trace.h>

#include "run/ledger.h"

/* Writes one event. `device` is the run's number; `tier` is 0 for vram, 1 for the host. Never
 * fails; the first one opens the trace. */
void record_event(stow_trace_kind kind, uint64_t addr, uint64_t bytes, const void *stream,
                  unsigned device, unsigned tier);

/* Record memory that was allocated and freed by a single call: an allocation or, if a framework
 * with a cache is active, one of its segments. */
void record_taken(uint64_t addr, uint64_t bytes, const void *stream, unsigned device,
                  ledger_kind kind);
void record_given(uint64_t addr, uint64_t bytes, const void *stream, unsigned device,
                  ledger_kind kind);

#endif
