/* Room: the sources of memory, and the order in which they are tried. */
#include "shim/room.h"

#include "base/assert.h"
#include "shim/counted.h"
#include "shim/measure.h"
#include "shim/page_room.h"
#include "shim/plain.h"

bool room_charge(unsigned device, ledger_kind kind, uint64_t bytes) {
  ASSERT((unsigned)kind < LEDGER_KIND_COUNT);
  return page_take(device, kind, bytes) ||
         (plain_trim(device, false) && ledger_charge(account_ledger(), device, kind, bytes));
}

bool room_make(unsigned device) {
  /* Pools that the driver trimmed since, and a context that shrank, leave room; so does what the
   * heap of plain requests holds idle. */
  bool measured = measure_here(device);
  return plain_trim(device, false) || measured;
}

bool room_trim(unsigned device, uint64_t bytes) {
  bool pages = page_reclaim(device, bytes);
  return plain_trim(device, false) || pages;
}

bool room_pool_grows(unsigned device, uint64_t bytes) {
  measure_look(device, bytes);
  if (measure_pool_announce(device, bytes)) return true;
  if (room_make(device) && measure_pool_announce(device, bytes)) return true;
  return page_reclaim(device, bytes) && measure_pool_announce(device, bytes);
}

/* ---- as a physical_account ---- */

bool room_account_charge(const void *who, uint64_t bytes) {
  const counted *c = who;
  return room_charge(c->device, c->kind, bytes);
}

bool room_account_make(const void *who, uint64_t bytes) {
  const counted *c = who;
  return c->kind < LEDGER_VRAM_KINDS && room_trim(c->device, bytes);
}

const physical_account ROOM_ACCOUNT = {.charge = room_account_charge,
                                       .make_room = room_account_make,
                                       .undo = counted_undo,
                                       .uncharge = counted_release};
