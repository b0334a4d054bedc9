/* Live blocks: a map of them, and a list of changes once there is a follower. */
#include "shim/live_blocks.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/lock.h"
#include "shim/capture.h"
#include "shim/shim.h"

/* Stored in the low bits of a block's bytes, which are a multiple of 512: the device's number, and
 * whether it was allocated during a capture. A graph uses such blocks after they are freed, so they
 * stay live. */
enum { DEVICE_MASK = 255, CAPTURED = 256, LOW_BITS = 511 };

static lock blocks_lock = LOCK_INIT(LOCK_TRACE);
static map live; /* address to bytes and device */
static block_change *changes;
static size_t change_capacity;
static _Atomic size_t change_count;
static bool follows, failed;

static void add_change(const block_change *c) {
  ASSERT(lock_held(&blocks_lock));
  size_t count = atomic_load_explicit(&change_count, memory_order_relaxed);
  if (count == change_capacity) {
    size_t capacity = change_capacity == 0 ? 4096 : 2 * change_capacity;
    block_change *list = realloc(changes, capacity * sizeof *list);
    if (list == NULL) {
      failed = true;
      return;
    }
    changes = list;
    change_capacity = capacity;
  }
  changes[count] = *c;
  atomic_store_explicit(&change_count, count + 1, memory_order_relaxed);
}

void live_blocks_note(uint64_t addr, uint64_t bytes, unsigned device) {
  ASSERT(device <= DEVICE_MASK);
  lock_acquire(&blocks_lock);
  const uint64_t *known = bytes == 0 ? map_get(&live, addr) : NULL;
  if (known != NULL && (*known & CAPTURED) != 0) {
    lock_release(&blocks_lock);
    return;
  }
  if (bytes == 0)
    map_remove(&live, addr, NULL);
  else if (map_put(&live, addr,
                   ((bytes + LOW_BITS) & ~(uint64_t)LOW_BITS) | device |
                       (capture_on() ? CAPTURED : 0)) != STOW_OK)
    failed = true;
  if (follows) add_change(&(block_change){addr, bytes, device});
  lock_release(&blocks_lock);
}

bool live_blocks_follow(void) {
  uint64_t addr, value;
  lock_acquire(&blocks_lock);
  follows = true;
  atomic_store(&change_count, 0);
  for (size_t at = 0; map_next(&live, &at, &addr, &value);)
    add_change(&(block_change){addr, value & ~(uint64_t)LOW_BITS, value & DEVICE_MASK});
  bool good = !failed;
  lock_release(&blocks_lock);
  return good;
}

bool live_blocks_changed(void) {
  return atomic_load_explicit(&change_count, memory_order_relaxed) > 0;
}

bool live_blocks_changes(void (*change)(const block_change *c)) {
  lock_acquire(&blocks_lock);
  size_t count = atomic_load(&change_count);
  for (size_t i = 0; i < count; i++) change(&changes[i]);
  atomic_store(&change_count, 0);
  bool good = !failed;
  lock_release(&blocks_lock);
  return good;
}

static void after_fork(void) {
  lock_init(&blocks_lock, LOCK_TRACE);
  memset(&live, 0, sizeof live);
  changes = NULL;
  change_capacity = 0;
  atomic_store(&change_count, 0);
  follows = failed = false;
}
SHIM_AFTER_FORK(after_fork);
