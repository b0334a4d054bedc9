/* Counted: one ledger call each, and the reserve of a thread. */
#include "shim/counted.h"

#include "base/assert.h"

static _Thread_local struct {
  counted of;
  uint64_t bytes; /* 0: there is none */
} reserve;

void counted_reserve(const counted *c, uint64_t bytes) {
  ASSERT(reserve.bytes == 0);
  ledger_announce(account_ledger(), c->device, c->kind, bytes);
  reserve.of = *c;
  reserve.bytes = bytes;
}

void counted_unreserve(void) {
  if (reserve.bytes == 0) return;
  ledger_withdraw(account_ledger(), reserve.of.device, reserve.of.kind, reserve.bytes);
  reserve.bytes = 0;
}

bool counted_charge_by(const counted *c, uint64_t bytes,
                       bool (*charge)(const counted *c, uint64_t bytes)) {
  ASSERT(c != NULL && charge != NULL);
  bool ours = reserve.of.device == c->device && reserve.of.kind == c->kind;
  uint64_t part = !ours ? 0 : bytes < reserve.bytes ? bytes : reserve.bytes;
  if (part < bytes && !charge(c, bytes - part)) return false;
  if (part > 0) ledger_charge_announced(account_ledger(), c->device, c->kind, part);
  reserve.bytes -= part;
  return true;
}

static bool charge_ledger(const counted *c, uint64_t bytes) {
  ledger *l = account_ledger();
  return l->header != NULL && ledger_charge(l, c->device, c->kind, bytes);
}

bool counted_charge(const void *who, uint64_t bytes) {
  return counted_charge_by(who, bytes, charge_ledger);
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
