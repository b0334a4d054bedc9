/* XLA part: the percentage of the memory reported to XLA that it may fill with results.
 *
 * With a spill, vram and spill together are reported. Results beyond vram would cross the bus in
 * each step, so XLA gets a part of vram only and recomputes the rest. Offers itself to
 * xla_settings.c, which is used before the ledger is open and so may not call the ledger. */
#include "shim/account.h"
#include "shim/shim.h"

/* XLA takes 80% of the memory reported to it, subtracts the program's arguments and results, and
 * plans with the flag's percentage of the rest. */
#define XLA_PERCENT_OF_ALL 80
/* What XLA may keep. The rest of vram is for arguments, code and what the pool cannot use. */
#define PERCENT_OF_VRAM 60

/* Returns the percentage for RUN_XLA_PART; 0: vram is not known, or nothing may spill. */
static unsigned part_of_vram(void) {
  const ledger *l = account_ledger();
  if (l->header == NULL) return 0;
  account_wait_devices();
  uint64_t vram = UINT64_MAX, spill = ledger_spill_limit(l);
  for (unsigned i = 0; i < LEDGER_DEVICES_MAX; i++) {
    uint64_t card = atomic_load(&l->header->card_bytes[i]), limit = ledger_limit(l, i);
    if (card != 0 && card < limit) limit = card;
    if (limit != LEDGER_UNLIMITED && limit < vram) vram = limit;
  }
  if (vram == UINT64_MAX || spill == 0 || spill > UINT64_MAX - vram) return 0;
  double percent =
      100.0 * PERCENT_OF_VRAM / XLA_PERCENT_OF_ALL * (double)vram / (double)(vram + spill);
  return percent < 1 ? 1 : (unsigned)percent;
}

__attribute__((constructor)) static void offer(void) {
  xla_settings_ask(part_of_vram);
}
