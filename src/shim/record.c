/* Record: what an event is, and the Python script that runs on events. */
#include "shim/record.h"

#include "shim/inside.h"
#include "shim/recorder.h"
#include "shim/retrying.h"
#include "shim/touches.h"

void record_event(stow_trace_kind kind, uint64_t addr, uint64_t bytes, const void *stream,
                  unsigned device, unsigned tier) {
  if (!recorder_on()) return;
  inside_schedule();
  touches_range(addr, bytes);
  recorder_event(&(stow_trace_record){.addr = addr,
                                      .bytes = bytes,
                                      .stream = (uintptr_t)stream,
                                      .device = (uint16_t)device,
                                      .kind = (uint8_t)kind,
                                      .tier = (uint8_t)tier});
}

/* Memory allocated on a stream is a block of its own, whoever requests it. */
static bool is_segment(ledger_kind kind) {
  return kind != LEDGER_POOLS && retrying_known();
}

void record_taken(uint64_t addr, uint64_t bytes, const void *stream, unsigned device,
                  ledger_kind kind) {
  unsigned tier = kind == LEDGER_SPILLED || kind == LEDGER_PINNED;
  if (kind == LEDGER_SPILLED) record_event(STOW_TRACE_SPILL, addr, bytes, stream, device, 1);
  record_event(is_segment(kind) ? STOW_TRACE_SEGMENT_ALLOC : STOW_TRACE_ALLOC, addr, bytes, stream,
               device, tier);
}

void record_given(uint64_t addr, uint64_t bytes, const void *stream, unsigned device,
                  ledger_kind kind) {
  unsigned tier = kind == LEDGER_SPILLED || kind == LEDGER_PINNED;
  record_event(is_segment(kind) ? STOW_TRACE_SEGMENT_FREE : STOW_TRACE_FREE, addr, bytes, stream,
               device, tier);
}
