/* Refusal: the ledger's figures at that moment. */
#include "shim/refusal.h"

#include <unistd.h>

#include "base/clock.h"
#include "shim/measure.h"
#include "shim/record.h"

void refusal_note(unsigned device, uint64_t asked_bytes) {
  ledger *l = account_ledger();
  if (l->header == NULL) return;
  ledger_totals totals;
  ledger_reap(l);
  ledger_sum(l, device, &totals);
  ledger_refusal refusal = {(uint64_t)getpid(),
                            device,
                            asked_bytes,
                            ledger_limit(l, device),
                            totals.vram_bytes,
                            ledger_spill_limit(l),
                            totals.bytes[LEDGER_SPILLED],
                            clock_wall_ns(),
                            totals.bytes[LEDGER_CONTEXT],
                            measure_fixed(device)};
  ledger_refuse(l, &refusal);
  record_event(STOW_TRACE_FAIL, account_room(device), asked_bytes, NULL, device, 0);
  shim_log("refused %llu bytes on device %u: %llu held", (unsigned long long)asked_bytes, device,
           (unsigned long long)totals.vram_bytes);
}
