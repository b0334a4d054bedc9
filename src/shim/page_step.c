/* Page step: between and within the steps of a training program. Called by trim.py, or by a program
 * itself. */
#include "shim/page_step.h"

#include "base/assert.h"
#include "base/clock.h"
#include "shim/capture.h"
#include "shim/page_table.h"
#include "shim/resident.h"

/* Questions from a program's own thread are answered without the lock: the thread may hold a lock
 * that another thread waits for while pages move. */

void page_step_ended(void) {
  static _Atomic uint64_t last_ns, last_out;
  ledger *l = account_ledger();
  if (l->header == NULL) return;
  page_table_log("a step");
  uint64_t now = clock_ns(), out = atomic_load(&l->header->moved_out_bytes);
  uint64_t before = atomic_exchange(&last_ns, now);
  bool spilled = atomic_exchange(&last_out, out) != out || atomic_load(&token_held_on_host) > 0;
  if (before == 0) return;
  atomic_fetch_add(&l->header->steps[spilled], 1);
  atomic_fetch_add(&l->header->steps_ns[spilled], now - before);
  uint64_t best = atomic_load(&l->header->steps_best_ns);
  while (spilled && (best == 0 || now - before < best) &&
         !atomic_compare_exchange_weak(&l->header->steps_best_ns, &best, now - before)) {
  }
}

bool page_trim_wanted(void) {
  return !capture_on() && !resident_anywhere() && atomic_load(&token_held_on_host) > 0;
}

void page_trimming(bool begins) {
  ASSERT(!lock_held(&pages_lock));
  token_trimming = begins;
  if (begins) return;
  /* Their addresses will be vram's. Unmapping takes half as long while the device is idle. */
  page_enter();
  for (size_t i = 0; i < class_count; i++) page_free_loosen(&classes[i], TIER_HOST);
  page_leave();
}
