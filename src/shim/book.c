/* Book: a map for each space, under one lock. */
#include "shim/book.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/lock.h"

static lock book_lock = LOCK_INIT(LOCK_POOL);
static map book[BOOK_SPACES]; /* guarded by book_lock; name to holding */

/* Empties the book in a child: the parent's memory is not the child's. The maps are leaked, because
 * another thread may have been changing them. */
static void after_fork(void) {
  lock_init(&book_lock, LOCK_POOL);
  memset(book, 0, sizeof book);
}
SHIM_AFTER_FORK(after_fork);

static holding *find(book_space space, uint64_t key) {
  ASSERT(lock_held(&book_lock));
  ASSERT((unsigned)space < BOOK_SPACES);
  uint64_t *value = map_get(&book[space], key);
  return value == NULL ? NULL : (holding *)(uintptr_t)*value;
}

bool book_add(book_space space, uint64_t key, const holding *what) {
  ASSERT(what != NULL);
  ASSERT((unsigned)what->kind < LEDGER_KIND_COUNT);
  holding *copy = malloc(sizeof *copy);
  if (copy == NULL) return false;
  *copy = *what;
  lock_acquire(&book_lock);
  holding *old = find(space, key);
  bool added = map_put(&book[space], key, (uintptr_t)copy) == STOW_OK;
  lock_release(&book_lock);
  if (added) ledger_note_peak(account_ledger(), what->device);
  /* The old object ended unnoticed; otherwise the driver would not reuse its name. */
  if (added && old != NULL) account_uncharge(old->device, old->kind, old->bytes);
  free(added ? old : copy);
  return added;
}

static bool take_out(book_space space, uint64_t key, holding *what) {
  ASSERT(lock_held(&book_lock));
  ASSERT(what != NULL);
  uint64_t value;
  if (!map_remove(&book[space], key, &value)) return false;
  *what = *(holding *)(uintptr_t)value;
  free((void *)(uintptr_t)value);
  return true;
}

bool book_remove(book_space space, uint64_t key, holding *what) {
  ASSERT((unsigned)space < BOOK_SPACES);
  lock_acquire(&book_lock);
  bool found = take_out(space, key, what);
  lock_release(&book_lock);
  return found;
}

int book_use(book_space space, uint64_t key, int more, holding *what) {
  ASSERT(more == 1 || more == -1);
  ASSERT(what != NULL);
  lock_acquire(&book_lock);
  holding *found = find(space, key);
  int uses = -1;
  if (found != NULL) {
    found->uses = (uint32_t)((int)found->uses + more);
    uses = (int)found->uses;
    *what = *found;
    if (uses <= 0) take_out(space, key, what);
  }
  lock_release(&book_lock);
  if (uses == 0) account_uncharge(what->device, what->kind, what->bytes);
  return uses;
}

/* Removes up to a fixed number of entries that belong to a context. Returns how many. */
static size_t take_out_of(book_space space, unsigned device, cu_context context, size_t most,
                          uint64_t *keys, holding *gone) {
  ASSERT(most > 0);
  size_t count = 0, at = 0;
  uint64_t key, value;
  lock_acquire(&book_lock);
  while (count < most && map_next(&book[space], &at, &key, &value)) {
    const holding *h = (const holding *)(uintptr_t)value;
    if (h->device == device && (context == NULL || h->context == context)) keys[count++] = key;
  }
  for (size_t i = 0; i < count; i++) {
    gone[i] = (holding){.bytes = 0};
    take_out(space, keys[i], &gone[i]);
  }
  lock_release(&book_lock);
  return count;
}

void book_drop(unsigned device, cu_context context,
               void (*drop_spilled)(cu_addr addr, const holding *what)) {
  ASSERT(drop_spilled != NULL);
  /* Pages and pinned memory outlive a context; the rest ends with it. */
  static const book_space SPACES[] = {BOOK_ADDRESS, BOOK_ARRAY};
  enum { AT_ONCE = 256 };
  uint64_t keys[AT_ONCE];
  holding gone[AT_ONCE];
  for (size_t s = 0; s < sizeof SPACES / sizeof SPACES[0]; s++) {
    size_t count;
    do {
      count = take_out_of(SPACES[s], device, context, AT_ONCE, keys, gone);
      for (size_t i = 0; i < count; i++) {
        if (gone[i].kind == LEDGER_SPILLED)
          drop_spilled(keys[i], &gone[i]);
        else
          account_uncharge(gone[i].device, gone[i].kind, gone[i].bytes);
      }
    } while (count == AT_ONCE);
  }
}
