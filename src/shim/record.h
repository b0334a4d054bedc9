/* Record: what the program asks of the driver goes into the run's trace.
 *
 * The recorder is in libstowage.so, which lies beside the shim; it is opened at the first event, so
 * that programs without CUDA do not carry it. Each process of a run has a ring in the run's folder
 * and, where the run records, a .stow file. Without a run's folder nothing is recorded. */
#ifndef SHIM_RECORD_H
#define SHIM_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include <stowage/trace.h>

#include "run/ledger.h"

/* One event. `device` is the run's number; `tier` 0 vram, 1 host. Never fails, never waits long. */
void record_event(stow_trace_kind kind, uint64_t addr, uint64_t bytes, const void *stream,
                  unsigned device, unsigned tier);

/* Memory taken and given by a call of its own: an allocation, or, where a framework that caches is
 * known to be at work, one of its segments. */
void record_taken(uint64_t addr, uint64_t bytes, const void *stream, unsigned device,
                  ledger_kind kind);
void record_given(uint64_t addr, uint64_t bytes, const void *stream, unsigned device,
                  ledger_kind kind);

/* The beginning or the end of what `name` names; a fact about the process. */
void record_mark(const char *name, bool begins);
void record_fact(const char *key, const char *value);

#endif
