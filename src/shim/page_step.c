/* Page step: the rhythm of a program that trains. Called by trim.py, or by a program itself. */
#include "shim/page_step.h"

#include "base/assert.h"
#include "base/clock.h"
#include "shim/capture.h"
#include "shim/gate.h"
#include "shim/page_table.h"
#include "shim/resident.h"

static _Atomic bool settled_known; /* the program has released everything it could, once */

bool page_settled(void) {
  return atomic_load(&settled_known);
}

static void after_fork(void) {
  atomic_store(&settled_known, false);
}
SHIM_AFTER_FORK(after_fork);

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
  if (capture_on() || resident_anywhere()) return false;
  /* Always once: what is left then is what will stay. */
  return atomic_load(&token_held_on_host) > 0 ||
         (!atomic_load(&settled_known) && gate_here() && gate_used());
}

bool page_home_wanted(void) {
  return !resident_anywhere() && atomic_load(&token_held_on_host) > 0 &&
         atomic_load(&settled_known) && !capture_on();
}

void page_trimming(bool begins) {
  token_trimming = begins;
}

void page_come_home(bool last) {
  ASSERT(!lock_held(&pages_lock));
  uint64_t name, value;
  page_enter();
  for (size_t at = 0; last && map_next(&tokens, &at, &name, &value);) {
    token *t = (token *)(uintptr_t)value;
    t->settled = t->addr != 0;
  }
  settled_known = settled_known || last;
  shim_log("%zu pages are on the host %s", token_held_on_host, last ? "after a step" : "in a step");
  ledger *l = account_ledger();
  for (size_t i = 0; token_held_on_host > 0 && i < class_count; i++) {
    uint64_t limit = ledger_limit(l, classes[i].device);
    atomic_fetch_add(&l->header->moved_home_bytes, page_move_home(&classes[i], limit, last));
  }
  /* Their addresses will be vram's. Unmapping takes half as long while the device is idle. */
  for (size_t i = 0; last && i < class_count; i++) page_free_loosen(&classes[i], TIER_HOST);
  page_leave();
}
