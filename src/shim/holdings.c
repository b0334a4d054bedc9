/* Holdings: a map for each space, under one lock. */
#include "shim/holdings.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/lock.h"

static lock holdings_lock = LOCK_INIT(LOCK_POOL);
static map holdings[HOLDING_SPACES]; /* guarded by holdings_lock; key to holding */

/* Empties the maps in a child: the parent's memory is not the child's. The maps are leaked, because
 * another thread may have been changing them. */
static void after_fork(void) {
  lock_init(&holdings_lock, LOCK_POOL);
  memset(holdings, 0, sizeof holdings);
}
SHIM_AFTER_FORK(after_fork);

static holding *find(holding_space space, uint64_t key) {
  ASSERT(lock_held(&holdings_lock));
  ASSERT((unsigned)space < HOLDING_SPACES);
  uint64_t *value = map_get(&holdings[space], key);
  return value == NULL ? NULL : (holding *)(uintptr_t)*value;
}

bool holdings_add(holding_space space, uint64_t key, const holding *what) {
  ASSERT(what != NULL);
  ASSERT((unsigned)what->kind < LEDGER_KIND_COUNT);
  holding *copy = malloc(sizeof *copy);
  if (copy == NULL) return false;
  *copy = *what;
  lock_acquire(&holdings_lock);
  holding *old = find(space, key);
  bool added = map_put(&holdings[space], key, (uintptr_t)copy) == STOW_OK;
  lock_release(&holdings_lock);
  if (added) ledger_note_peak(account_ledger(), what->device);
  /* The old object ended unnoticed; otherwise the driver would not reuse its name. */
  if (added && old != NULL) account_uncharge(old->device, old->kind, old->bytes);
  free(added ? old : copy);
  return added;
}

static bool remove_locked(holding_space space, uint64_t key, holding *what) {
  ASSERT(lock_held(&holdings_lock));
  ASSERT(what != NULL);
  uint64_t value;
  if (!map_remove(&holdings[space], key, &value)) return false;
  *what = *(holding *)(uintptr_t)value;
  free((void *)(uintptr_t)value);
  return true;
}

bool holdings_remove(holding_space space, uint64_t key, holding *what) {
  ASSERT((unsigned)space < HOLDING_SPACES);
  lock_acquire(&holdings_lock);
  bool found = remove_locked(space, key, what);
  lock_release(&holdings_lock);
  return found;
}

int holdings_use(holding_space space, uint64_t key, int more, holding *what) {
  ASSERT(more == 1 || more == -1);
  ASSERT(what != NULL);
  lock_acquire(&holdings_lock);
  holding *found = find(space, key);
  int uses = -1;
  if (found != NULL) {
    found->uses = (uint32_t)((int)found->uses + more);
    uses = (int)found->uses;
    *what = *found;
    if (uses <= 0) remove_locked(space, key, what);
  }
  lock_release(&holdings_lock);
  if (uses == 0) account_uncharge(what->device, what->kind, what->bytes);
  return uses;
}

/* Removes up to a fixed number of entries that belong to a context. Returns how many. */
static size_t remove_some(holding_space space, unsigned device, cu_context context, size_t most,
                          uint64_t *keys, holding *gone) {
  ASSERT(most > 0);
  size_t count = 0, at = 0;
  uint64_t key, value;
  lock_acquire(&holdings_lock);
  while (count < most && map_next(&holdings[space], &at, &key, &value)) {
    const holding *h = (const holding *)(uintptr_t)value;
    if (h->device == device && (context == NULL || h->context == context)) keys[count++] = key;
  }
  for (size_t i = 0; i < count; i++) {
    gone[i] = (holding){.bytes = 0};
    remove_locked(space, keys[i], &gone[i]);
  }
  lock_release(&holdings_lock);
  return count;
}

void holdings_drop(unsigned device, cu_context context,
                   void (*drop_spilled)(cu_addr addr, const holding *what)) {
  ASSERT(drop_spilled != NULL);
  /* Pages and pinned memory outlive a context; the rest ends with it. */
  static const holding_space SPACES[] = {HOLDING_ADDRESS, HOLDING_ARRAY};
  enum { AT_ONCE = 256 };
  uint64_t keys[AT_ONCE];
  holding gone[AT_ONCE];
  for (size_t s = 0; s < sizeof SPACES / sizeof SPACES[0]; s++) {
    size_t count;
    do {
      count = remove_some(SPACES[s], device, context, AT_ONCE, keys, gone);
      for (size_t i = 0; i < count; i++) {
        if (gone[i].kind == LEDGER_SPILLED)
          drop_spilled(keys[i], &gone[i]);
        else
          account_uncharge(gone[i].device, gone[i].kind, gone[i].bytes);
      }
    } while (count == AT_ONCE);
  }
}
