/* Stackset: the texts of a trace (names, frames, stacks), each kept once and numbered, and the
 * lock-free table from a caller's key to the number of its stack.
 *
 * record.c calls it. The texts themselves stand in the ring, where a reader finds them after a
 * crash; here is only the index to find one again. All but stackset_find is called with the trace's
 * lock held. */
#ifndef RECORD_STACKSET_H
#define RECORD_STACKSET_H

#include <stowage/trace.h>

#include "base/hash.h"
#include "trace/ring.h"

enum { STACK_FRAMES_MAX = 512 };

typedef struct key_slot {
  _Atomic uint64_t key; /* 0: empty; stored after the number */
  _Atomic uint32_t number;
} key_slot;

/* Readers probe a table that never moves; growing makes a new one and keeps the old for readers
 * that are still in it (all together at most twice the newest). */
typedef struct key_table {
  struct key_table *older;
  uint64_t capacity; /* a power of two */
  uint64_t seed;
  key_slot slots[];
} key_table;

typedef struct stackset {
  ring *ring;
  map index; /* hash of kind and payload → offset / 8 << 32 | number */
  uint32_t counts[TEXT_STACK + 1];
  map addresses; /* native address → frame number */
  _Atomic(key_table *) keys;
  uint64_t key_count, key_max;
} stackset;

/* Starts over for a new ring. Key tables of an earlier life are emptied and used again: a thread
 * that lingers in one finds nothing, or a number that no longer matters. */
void stackset_start(stackset *s, ring *r);
/* Frees the index; the key tables stay (above). */
void stackset_stop(stackset *s);

/* The number of one name or stack, appended to the ring if it is new. */
stow_status stackset_name(stackset *s, const char *name, uint32_t *number);
stow_status stackset_stack(stackset *s, uint64_t key, const stow_trace_frame *frames, size_t count,
                           uint32_t *number);

/* The number known for a key (not 0), or 0. From any thread, no lock. */
static inline uint32_t stackset_find(stackset *s, uint64_t key) {
  key_table *t = atomic_load_explicit(&s->keys, memory_order_acquire);
  if (t == NULL) return 0;
  for (uint64_t mask = t->capacity - 1, i = hash_u64(key, t->seed) & mask;; i = (i + 1) & mask) {
    uint64_t have = atomic_load_explicit(&t->slots[i].key, memory_order_acquire);
    if (have == key) return atomic_load_explicit(&t->slots[i].number, memory_order_relaxed);
    if (have == 0) return 0;
  }
}

#endif
