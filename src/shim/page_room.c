/* Page room: over the free pages of the table. */
#include "shim/page_room.h"

#include "base/assert.h"
#include "shim/measure.h"
#include "shim/page_table.h"

bool page_reclaim(unsigned device, uint64_t bytes) {
  ASSERT(!lock_held(&pages_lock));
  page_enter();
  uint64_t given = page_free_trim(device, TIER_VRAM, bytes, NULL);
  page_leave();
  return given > 0;
}

bool page_take(unsigned device, ledger_kind kind, uint64_t bytes) {
  return measure_take(device, kind, bytes) ||
         (page_reclaim(device, bytes) && ledger_charge(account_ledger(), device, kind, bytes));
}
