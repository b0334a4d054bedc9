/* Retry: who is refused first, and when. See retry.h for the rule. */
#include <stdatomic.h>

#include "base/assert.h"
#include "shim/account.h"
#include "shim/capture.h"
#include "shim/host_tier.h"
#include "shim/refusal.h"
#include "shim/retry.h"
#include "shim/retrying.h"

#define SKIP_MAX    64
#define ENOUGH_PART 128

/* The answers that one thread got. */
typedef struct asking {
  bool refused;         /* its request was refused, and it has not asked again yet */
  bool judged;          /* it is known whether that refusal freed anything */
  uint64_t released_at; /* account_released() when it was refused */
  uint64_t enough;      /* released bytes that make a refusal worth it */
  uint32_t skip;        /* requests that will not be refused */
  uint32_t skip_next;   /* how many requests after the next refusal that frees nothing */
} asking;
static _Thread_local asking mine;

static _Atomic int private_pools;

void spill_private_pool(int more) {
  ASSERT(more == 1 || more == -1);
  int now = atomic_fetch_add(&private_pools, more) + more;
  if (now < 0) atomic_store(&private_pools, 0);
}

/* ---- deciding ---- */

void spill_note_request(void) {
  if (!mine.refused || mine.judged) return;
  mine.judged = true;
  if (account_released() - mine.released_at >= mine.enough) {
    mine.skip_next = 0;
    return;
  }
  mine.skip_next = mine.skip_next == 0 ? 1 : mine.skip_next * 2;
  if (mine.skip_next > SKIP_MAX) mine.skip_next = SKIP_MAX;
  mine.skip = mine.skip_next;
}

bool spill_refused(void) {
  return mine.refused;
}

void spill_served(void) {
  if (mine.refused) {
    ledger *l = account_ledger();
    if (l->header != NULL) atomic_fetch_add(&l->header->retried_count, 1);
  } else if (mine.skip > 0)
    mine.skip--;
  mine.refused = false;
}

bool spill_wanted(unsigned device, cu_device ordinal, uint64_t bytes) {
  ASSERT(bytes > 0);
  if ((capture_on() || atomic_load(&private_pools) > 0 || mine.refused || mine.skip > 0 ||
       !retrying_caller()) &&
      host_tier_budget(ordinal) > 0)
    return true;
  refusal_note(device, bytes);
  mine.refused = true;
  mine.judged = false;
  mine.released_at = account_released();
  /* A framework waits for the device before it releases memory, so do not ask for only a few
   * pages. */
  const ledger *l = account_ledger();
  uint64_t limit = l->header != NULL ? ledger_limit(l, device) : LEDGER_UNLIMITED;
  mine.enough =
      limit != LEDGER_UNLIMITED && limit / ENOUGH_PART > bytes ? limit / ENOUGH_PART : bytes;
  return false;
}

static void after_fork(void) {
  atomic_store(&private_pools, 0);
  mine = (asking){0};
}
SHIM_AFTER_FORK(after_fork);
