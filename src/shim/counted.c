/* Counted: one ledger call each. */
#include "shim/counted.h"

#include "base/assert.h"

bool counted_charge(const void *who, uint64_t bytes) {
  ASSERT(who != NULL);
  const counted *c = who;
  ledger *l = account_ledger();
  return l->header != NULL && ledger_charge(l, c->device, c->kind, bytes);
}

void counted_made(const void *who, uint64_t bytes) {
  ASSERT(who != NULL);
  const counted *c = who;
  (void)bytes;
  ledger_note_peak(account_ledger(), c->device);
}

void counted_undo(const void *who, uint64_t bytes, cu_result code) {
  ASSERT(code != CU_OK);
  (void)code;
  counted_uncharge(who, bytes);
}

void counted_uncharge(const void *who, uint64_t bytes) {
  ASSERT(who != NULL);
  const counted *c = who;
  ledger_uncharge(account_ledger(), c->device, c->kind, bytes);
}

void counted_release(const void *who, uint64_t bytes) {
  ASSERT(who != NULL);
  const counted *c = who;
  account_uncharge(c->device, c->kind, bytes);
}
