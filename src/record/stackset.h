/* Stackset: stores each text of a trace (name, frame, stack) once and numbers it. A lock-free table
 * maps a caller's key to the number of its stack.
 *
 * Called by record.c. The texts themselves are in the ring, where a reader finds them after a
 * crash; this is only the index. All functions except stackset_find require the trace's lock. */
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

/* Readers probe a table that never moves. Growing creates a new table and keeps the old one for
 * readers that still use it (together at most twice the size of the newest). */
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

/* Starts over for a new ring. Clears and reuses the key tables of the previous trace: a thread that
 * still reads one finds nothing, or a number that no longer matters. */
void stackset_start(stackset *s, ring *r);
/* Frees the index. Keeps the key tables (see above). */
void stackset_stop(stackset *s);

/* Returns the number of a name or stack; appends it to the ring if it is new. */
stow_status stackset_name(stackset *s, const char *name, uint32_t *number);
stow_status stackset_stack(stackset *s, uint64_t key, const stow_trace_frame *frames, size_t count,
                           uint32_t *number);

/* Returns the number known for a key (not 0), or 0. Any thread may call it, without the lock. */
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
